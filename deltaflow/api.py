"""The public functions, with every room wired in."""

from deltaflow import batch
from deltaflow.batch.delta_table import DeltaTable
from deltaflow.spark import register, session
from deltaflow.streaming import sink, source, source_start

__all__ = ["DeltaTable", "register", "session"]

# Importing these gave the dispatcher their handlers: nobody below imports them.
_ROOMS = (batch, sink, source, source_start)
