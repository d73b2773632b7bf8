"""Checks arguments of the Python API without a JVM; the errors are those that `delta.tables` raises."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pyspark.sql import Column

from deltaflow.errors import DeltaIllegalArgumentException

FILE_SYSTEM_PREFIXES = ("fs.", "dfs.")
"""Options that begin so are settings of Hadoop's file systems."""
_Value = TypeVar("_Value")


def is_connect_session(session: Any) -> bool:
    """Whether a session is a client of Spark Connect, which reaches no JVM."""
    return not hasattr(session, "_jsparkSession")


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


def check_condition(given: Any) -> None:
    """TypeError unless it is None, SQL or a Column."""
    if given is not None and not isinstance(given, str | Column):
        raise TypeError(
            "'condition' must be a Spark SQL Column or a string (an expression in SQL syntax), "
            f"found {given!r} of type '{type(given)}'"
        )


def check_assignments(given: Any, argument: str) -> Mapping[str, str | Column]:
    """Names of columns with their new values, in SQL or Columns.

    ValueError for None, TypeError for anything but a dict of such.
    """
    if given is None:
        raise ValueError(f"{argument} cannot be None")
    if not isinstance(given, Mapping):
        raise TypeError(f"{argument} must be a dict, found to be {type(given)}")
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
    return given


def check_clone(target: Any, shallow: Any, replace: Any, properties: Any) -> None:
    """ValueError for arguments of wrong types."""
    check_string(target, "target")
    check_boolean(shallow, "isShallow")
    check_boolean(replace, "replace")
    for name, value in check_dictionary(properties, "properties").items() if properties is not None else ():
        check_string(name, f"All property keys including {name}")
        check_string(value, f"All property values including {value}")


def check_vacuum(retention_hours: Any, dry_run: Any, checkpoints: Any, lite: Any) -> None:
    """ValueError for arguments of wrong types."""
    is_number = isinstance(retention_hours, int | float) and not isinstance(retention_hours, bool)
    if retention_hours is not None and not (is_number and math.isfinite(retention_hours)):
        raise ValueError(f"retentionHours needs to be a number of hours but got {retention_hours!r}.")
    check_boolean(dry_run, "dryRun")
    if lite is not None:
        check_boolean(lite, "lite")
    if isinstance(checkpoints, str):
        raise ValueError("checkpoints needs to be a list of directories but got one string.")
    for checkpoint in checkpoints:
        check_string(checkpoint, "checkpoints")


def check_protocol_versions(reader: Any, writer: Any) -> None:
    """ValueError unless both versions are integers."""
    for name, version in (("readerVersion", reader), ("writerVersion", writer)):
        if not isinstance(version, int):
            raise ValueError(f"The {name} needs to be an integer but got '{type(version)}'.")


def check_file_system_options(configuration: Mapping[str, str]) -> None:
    """DELTA_TABLE_FOR_PATH_UNSUPPORTED_HADOOP_CONF unless all are settings of Hadoop's file systems."""
    others = {key: value for key, value in configuration.items() if not key.startswith(FILE_SYSTEM_PREFIXES)}
    if others:
        raise DeltaIllegalArgumentException(
            error_class="DELTA_TABLE_FOR_PATH_UNSUPPORTED_HADOOP_CONF",
            prefixes=", ".join(FILE_SYSTEM_PREFIXES),
            options=", ".join(sorted(others)),
        )


def names_of(given: Sequence[str | Sequence[str]], message: str) -> list[str]:
    """Names that are given one by one or as one list; TypeError, with the message, for anything but a str."""
    names = given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{message} Found {name} with type {type(name)}")
    return [str(name) for name in names]


def _checked(value: Any, name: str, expected: type[_Value], wanted: str) -> _Value:
    if not isinstance(value, expected):
        raise ValueError(f"{name} needs to be {wanted} but got '{type(value)}'.")
    return value
