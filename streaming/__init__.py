"""The `deltaflow.streaming` package. Its folder stands beside `deltaflow` in the repository."""

if __name__ != "deltaflow.streaming":
    raise ImportError(
        f"this package is deltaflow.streaming, but it was imported as {__name__!r}: a second copy of its "
        "modules would be loaded. Import deltaflow.streaming instead."
    )

from typing import TYPE_CHECKING, Any

from deltaflow.streaming import sink, source

if TYPE_CHECKING:
    from deltaflow.streaming.cdc import apply_changes

__all__ = ["apply_changes", "sink", "source"]


def __getattr__(name: str) -> Any:
    if name == "apply_changes":
        from deltaflow.streaming import cdc

        return cdc.apply_changes
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
