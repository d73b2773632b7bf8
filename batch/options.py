"""Reads the options of readers and writers, whose names are in any case and whose values are strings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from deltaflow.errors import DeltaIllegalArgumentException, DeltaUnsupportedOperationException
from deltaflow.log.protocol.properties import Property
from deltaflow.store import qualified_path, table_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Value = TypeVar("_Value")


def required_path(path: str | None) -> str:
    """The path of a load, save or start; DELTA_PATH_REQUIRED without one.

    A path without a scheme gets that of Spark's default file system, if it is not the local one.
    """
    if not path:
        raise DeltaIllegalArgumentException(
            "'path' is not specified. Give one to load(…), save(…) or start(…), or as option(\"path\", …).",
            error_class="DELTA_PATH_REQUIRED",
        )
    # This refuses a storage that Spark cannot reach before anything is read.
    table_path(path)
    return qualified_path(path)


def option(options: Mapping[str, str], name: str) -> str | None:
    """The value of an option; None if it is not set."""
    return next((value for key, value in options.items() if key.lower() == name.lower()), None)


def boolean_option(options: Mapping[str, str], name: str) -> bool:
    """The value of a boolean option, false if it is not set. DELTA_ILLEGAL_OPTION for another value."""
    value = option(options, name)
    if value is None:
        return False
    if value.lower() not in ("true", "false"):
        raise DeltaIllegalArgumentException(
            error_class="DELTA_ILLEGAL_OPTION", input=value, name=name, explain="must be 'true' or 'false'"
        )
    return value.lower() == "true"


def session_setting(spark: SparkSession, setting: Property[_Value]) -> _Value:
    """The value of one of the session's settings that are not Delta's own. One crossing."""
    text = spark.conf.get(setting.name, None)
    return setting.of({} if text is None else {setting.name: text})


def unsupported_options(options: Mapping[str, str], names: Iterable[str], doing: str) -> None:
    """Raises for options that would change the result and are not supported yet.

    The values `false` and `static` (of partitionOverwriteMode) ask for what is done anyway.
    """
    found = [name for name in names if (option(options, name) or "false").lower() not in ("false", "static")]
    if found:
        raise DeltaUnsupportedOperationException(
            f"{doing} with option {', '.join(found)} is not supported yet. Remove it",
            error_class="DELTA_UNSUPPORTED_OPTION",
        )


def table_properties(options: Mapping[str, str]) -> dict[str, str]:
    """The options that become properties of a new table: those that begin with "delta."."""
    return {name: value for name, value in options.items() if name.lower().startswith("delta.")}


def clustering_columns(options: Mapping[str, str]) -> list[str]:
    """The columns that a writer's clusterBy names, nested ones with their paths."""
    return msgspec.json.decode(option(options, "__clustering_columns") or "[]", type=list[str])
