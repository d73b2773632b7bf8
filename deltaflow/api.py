"""The public functions, with every room wired in: `batch` and `streaming` add their handlers when imported."""

import deltaflow.batch
import deltaflow.streaming
from deltaflow.spark import register, session

__all__ = ["register", "session"]
