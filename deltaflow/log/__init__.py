"""The Delta transaction log in Python: what a table's state is, and how to commit to it. Starts no JVM.

The public names are those of `deltaflow.log.api`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltaflow.log.api import *  # noqa: F403


def __getattr__(name: str) -> Any:
    # Lazy: these names load pyarrow and PySpark's types, without which `deltaflow log history` starts faster.
    public = importlib.import_module("deltaflow.log.api")
    if name == "__all__" or name in public.__all__:
        return getattr(public, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
