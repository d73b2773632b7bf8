"""Conditions and values as users give them: SQL, or a Column."""

from __future__ import annotations

from typing import overload

from pyspark.sql import Column
from pyspark.sql import functions as F


@overload
def as_column(given: str | Column) -> Column: ...


@overload
def as_column(given: str | Column | None) -> Column | None: ...


def as_column(given: str | Column | None) -> Column | None:
    """A condition or value as a Column; None for None. TypeError for anything else."""
    if given is None or isinstance(given, Column):
        return given
    if isinstance(given, str):
        return F.expr(given)
    raise TypeError(f"a condition or value has to be SQL (str) or a Column, not {type(given).__name__}")
