"""The public functions, with every room wired in."""

from deltaflow import batch, streaming
from deltaflow.spark import register, session

__all__ = ["register", "session"]

# Importing these two gave the dispatcher their handlers: nobody below imports them.
_ROOMS = (batch, streaming)
