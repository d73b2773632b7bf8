"""The `deltaflow.streaming` package. Its folder stands beside `deltaflow` in the repository."""

if __name__ != "deltaflow.streaming":
    raise ImportError(
        f"this package is deltaflow.streaming, but it was imported as {__name__!r}: a second copy of its "
        "modules would be loaded. Import deltaflow.streaming instead."
    )

from deltaflow.streaming import sink, source

__all__ = ["sink", "source"]
