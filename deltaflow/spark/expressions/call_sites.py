"""PySpark notes of each expression in which line it was made, for the messages of errors: nine crossings to
the JVM and a walk over the stack, which take more time than the expression itself.

PySpark's setting against it (spark.python.sql.dataFrameDebugging.enabled) is read once in a process, and is
for the expressions of users, too. So the function that tells the setting is wrapped: it says no to
threads that are inside of `without_call_sites`, and to all others what it said before. Where PySpark has no
such function, lines are noted as ever. Clients of Spark Connect are not concerned: operations run in the
server.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import utils


class _Quiet(threading.local):
    depth = 0


_quiet = _Quiet()


@contextmanager
def without_call_sites() -> Iterator[None]:
    """PySpark does not note the lines of expressions that this thread makes inside: they would be lines of
    deltaflow. Those of other threads, and of expressions that were made before, stay as they are."""
    _install()
    _quiet.depth += 1
    try:
        yield
    finally:
        _quiet.depth -= 1


def _install() -> None:
    """Once. Two threads that do it at once wrap the same function, and either's wrapper will do."""
    asked = getattr(utils, "is_debugging_enabled", None)
    if asked is None or hasattr(asked, "of_deltaflow"):
        return

    def is_debugging_enabled() -> bool:
        return _quiet.depth == 0 and bool(asked())

    is_debugging_enabled.of_deltaflow = True  # type: ignore[attr-defined]
    utils.is_debugging_enabled = is_debugging_enabled
