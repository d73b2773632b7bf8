"""The command `deltaflow`: looks after tables and streams without a Spark session."""

from deltaflow.cli.root import main

__all__ = ["main"]
