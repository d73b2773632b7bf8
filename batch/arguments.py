"""Checks arguments of the Python API, and raises the errors that users of `delta.tables` know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

from pyspark.errors import ParseException
from pyspark.sql import Column
from pyspark.sql import functions as F

from deltaflow.errors import DeltaAnalysisException
from deltaflow.spark.expressions.expressions import sql_text


def check_string(value: Any, name: str) -> str:
    """The value; ValueError unless it is a str."""
    return _checked(value, name, str, "a string")


def check_integer(value: Any, name: str) -> int:
    """The value; ValueError unless it is an int."""
    return _checked(value, name, int, "an int")


def check_boolean(value: Any, name: str) -> bool:
    """The value; ValueError unless it is a bool."""
    return _checked(value, name, bool, "a boolean")


def check_dictionary(value: Any, name: str) -> dict[Any, Any]:
    """The value; ValueError unless it is a dict."""
    return _checked(value, name, dict, "a dict")


@overload
def as_column(given: str | Column) -> Column: ...


@overload
def as_column(given: str | Column | None) -> Column | None: ...


def as_column(given: str | Column | None) -> Column | None:
    """A condition, in SQL or a Column, as a Column; None for None. TypeError for anything else."""
    if given is None or isinstance(given, Column):
        return given
    if isinstance(given, str):
        return F.expr(given)
    raise TypeError(
        "'condition' must be a Spark SQL Column or a string (an expression in SQL syntax), "
        f"found {given!r} of type '{type(given)}'"
    )


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


def as_assignments(given: Mapping[str, str | Column] | None, argument: str) -> list[tuple[Column, Column]]:
    """Pairs of a column and its new value. ValueError for None, TypeError for anything but a dict of such."""
    if given is None:
        raise ValueError(f"{argument} cannot be None")
    if not isinstance(given, Mapping):
        raise TypeError(f"{argument} must be a dict, found to be {type(given)}")
    assignments = []
    for name, value in given.items():
        if not isinstance(name, str):
            raise TypeError(
                f"Keys of dict in {argument} must contain only strings with column names, "
                f"found {name!r} of type '{type(name)}'"
            )
        if not isinstance(value, str | Column):
            raise TypeError(
                f"Values of dict in {argument} must contain only Spark SQL Columns or strings (expressions "
                f"in SQL syntax) as values, found {value!r} of type '{type(value)}'"
            )
        assignments.append((F.col(name), as_column(value)))
    return assignments


def _checked(value: Any, name: str, expected: type, wanted: str) -> Any:
    if not isinstance(value, expected):
        raise ValueError(f"{name} needs to be {wanted} but got '{type(value)}'.")
    return value
