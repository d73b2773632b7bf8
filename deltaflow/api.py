"""The public functions, with every room wired in.

The modules of the rooms take Python about as long as the JVM takes to prepare a session: they are imported in
another thread meanwhile.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import ParamSpec, TypeVar

from deltaflow import spark

__all__ = ["register", "session"]

_ROOMS = (
    "deltaflow.batch",
    "deltaflow.streaming.sink",
    "deltaflow.streaming.source",
    "deltaflow.streaming.source_start",
)
"""Importing these gives the dispatcher their handlers: nobody below imports them."""

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def _with_rooms(prepare: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """The function, which returns when all rooms are imported, too."""

    @functools.wraps(prepare)
    def prepare_beside_imports(*arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        with ThreadPoolExecutor(1, "deltaflow-import") as thread:
            imported = thread.submit(lambda: [import_module(room) for room in _ROOMS])
            prepared = prepare(*arguments, **named)
            imported.result()
        return prepared

    return prepare_beside_imports


register = _with_rooms(spark.register)
session = _with_rooms(spark.session)
