"""Errors of single records: a record that is no change stops the stream, and the error shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F

from deltaflow.errors import DeltaIllegalStateException

if TYPE_CHECKING:
    from pyspark.sql import Column

Failure: TypeAlias = "Callable[[str], Column]"
"""Makes the expression that raises an error with this reason, and shows the record."""
_SHOWN_CHARACTERS = 2_000


def record_failure(record: Column) -> Failure:
    """Makes expressions that raise an error with a reason and the text of the record."""

    def failure(reason: str) -> Column:
        error = DeltaIllegalStateException(error_class="DELTA_CHANGE_RECORD_UNREADABLE", reason=reason)
        shown = F.substring(F.coalesce(record, F.lit("null")), 1, _SHOWN_CHARACTERS)
        return F.raise_error(F.concat(F.lit(f"{error} Record: "), shown))

    return failure
