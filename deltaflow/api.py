"""The public functions, with every room wired in."""

from deltaflow import batch, streaming
from deltaflow.batch.delta_table import DeltaTable
from deltaflow.spark import register, session

__all__ = ["DeltaTable", "register", "session"]

# Importing these two gave the dispatcher their handlers: nobody below imports them.
_ROOMS = (batch, streaming)
