"""The only room that touches Spark internals: the bridge, scans and file writes."""

from deltaflow.spark.registration import register
from deltaflow.spark.session import session

__all__ = ["register", "session"]
