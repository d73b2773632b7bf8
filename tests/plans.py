"""What Spark has planned for a frame, and what its scans have read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def executed_plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def file_scans(frame: DataFrame) -> list[Any]:
    """The scans of files in the plan of a frame, as nodes of Spark's."""
    found: list[Any] = []

    def walk(node: Any) -> None:
        name = node.getClass().getSimpleName()
        if name == "FileSourceScanExec":
            found.append(node)
        elif name == "AdaptiveSparkPlanExec":
            walk(node.executedPlan())
        elif name.endswith("QueryStageExec"):
            walk(node.plan())
        children = node.children()
        for i in range(children.size()):
            walk(children.apply(i))

    walk(frame._jdf.queryExecution().executedPlan())
    return found


def files_read(frame: DataFrame) -> int:
    """How many files the only scan of a frame has read, after the frame was collected."""
    [scan] = file_scans(frame)
    return int(scan.metrics().apply("numFiles").value())
