"""deltaflow: the `delta` format for PySpark, streaming and batch, without a jar.

    import deltaflow
    spark = deltaflow.session("my app")      # or: deltaflow.register(existing_spark)

Errors are in `deltaflow.errors`, the transaction log, which needs no Spark and no Java, in `deltaflow.log`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltaflow.api import register, session
    from deltaflow.batch.delta_table import DeltaTable

__version__ = "0.1.0"
__all__ = ["DeltaTable", "__version__", "register", "session"]


def __getattr__(name: str) -> Any:
    # Lazy, so that `import deltaflow.log` loads no PySpark session code.
    if name in ("register", "session"):
        from deltaflow import api

        return getattr(api, name)
    if name == "DeltaTable":
        from deltaflow.batch.delta_table import DeltaTable

        return DeltaTable
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
