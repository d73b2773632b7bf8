"""The `deltaflow.streaming` package. Its folder stands beside `deltaflow` in the repository.

    from deltaflow.streaming import lag, plan_restart

The public names are loaded when they are asked for: `lag` starts no JVM, and loads neither the source nor the
sink of Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if __name__ != "deltaflow.streaming":
    raise ImportError(
        f"this package is deltaflow.streaming, but it was imported as {__name__!r}: a second copy of its "
        "modules would be loaded. Import deltaflow.streaming instead."
    )

if TYPE_CHECKING:
    from deltaflow.streaming.cdc import apply_changes
    from deltaflow.streaming.operating.batch_plan import BatchPlan, SourceStep
    from deltaflow.streaming.operating.lag import Headroom, SourceLag, StreamLag, lag
    from deltaflow.streaming.operating.obstacles import Obstacle
    from deltaflow.streaming.operating.progress import Progress, SourceProgress
    from deltaflow.streaming.operating.progress_listener import ProgressListener
    from deltaflow.streaming.operating.restart_plan import RestartPlan, plan_restart

__all__ = [
    "BatchPlan",
    "Headroom",
    "Obstacle",
    "Progress",
    "ProgressListener",
    "RestartPlan",
    "SourceLag",
    "SourceProgress",
    "SourceStep",
    "StreamLag",
    "apply_changes",
    "lag",
    "plan_restart",
]

_MODULES = {
    "BatchPlan": "operating.batch_plan",
    "Headroom": "operating.lag",
    "Obstacle": "operating.obstacles",
    "Progress": "operating.progress",
    "ProgressListener": "operating.progress_listener",
    "RestartPlan": "operating.restart_plan",
    "SourceLag": "operating.lag",
    "SourceProgress": "operating.progress",
    "SourceStep": "operating.batch_plan",
    "StreamLag": "operating.lag",
    "apply_changes": "cdc",
    "lag": "operating.lag",
    "plan_restart": "operating.restart_plan",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
