"""Makes Columns of arguments of the Python API, which deltaflow.interface has checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import overload

from pyspark.errors import ParseException
from pyspark.sql import Column
from pyspark.sql import functions as F

from deltaflow.errors import DeltaAnalysisException
from deltaflow.spark.expressions.expressions import sql_text


@overload
def as_column(given: str | Column) -> Column: ...


@overload
def as_column(given: str | Column | None) -> Column | None: ...


def as_column(given: str | Column | None) -> Column | None:
    """A condition, in SQL or a Column, as a Column; None for None."""
    return F.expr(given) if isinstance(given, str) else given


def check_predicate(predicate: str, path: str) -> None:
    """Raises DELTA_FAILED_RECOGNIZE_PREDICATE if the text is no expression of SQL; 1 crossing."""
    try:
        sql_text(F.expr(predicate))
    except ParseException as error:
        raise DeltaAnalysisException(
            error_class="DELTA_FAILED_RECOGNIZE_PREDICATE",
            predicate=predicate,
            reason=str(error).strip(),
            table=path,
        ) from error


def as_columns(assignments: Mapping[str, str | Column]) -> list[tuple[Column, Column]]:
    """Pairs of a column and its new value, of assignments that are checked."""
    return [(F.col(name), as_column(value)) for name, value in assignments.items()]
