"""The option computeUpdates: change rows that are computed, by keys, from files that commits add and remove.

A commit that writes rows of a file again tells them as deleted and as inserted. Within a commit, the row that
a key had before it and the one that it has after it are compared: if they are the same, nothing has changed.
With netChanges, the rows before and after the whole range are compared. All of it is SQL that Spark runs over
the scans of the range (see ChangeFeeds.java).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import types as T

from deltaflow.batch.options import boolean_option, option
from deltaflow.batch.read.messages import ChangeStep
from deltaflow.batch.sql_names import quoted
from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaIllegalArgumentException,
    DeltaIllegalStateException,
)
from deltaflow.log.files.change_files import CHANGE_COLUMNS, CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from deltaflow.log.protocol.column_names import column_paths
from deltaflow.log.protocol.data_types import has_order
from deltaflow.spark.expressions.orderable import orderable_sql

OPTION = "computeUpdates"
NET_OPTION = "netChanges"

_DIFFER = "(before IS NULL) <> (after IS NULL) OR NOT ({before} <=> {after})"


def keys_of(options: Mapping[str, str], schema: T.StructType, table: str) -> tuple[str, ...]:
    """The columns that the option names, as the table writes them; none without the option.

    DELTA_ILLEGAL_OPTION if it is no list of columns, or if netChanges has no keys;
    DELTA_COLUMN_NOT_FOUND_IN_SCHEMA for a column that the table lacks, and
    DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS for a table that has columns with names of those of change rows.
    """
    given = option(options, OPTION)
    if given is None:
        if boolean_option(options, NET_OPTION):
            raise _illegal("true", NET_OPTION, f"needs the option {OPTION}, which names the key columns")
        return ()
    try:
        paths = column_paths(given)
    except ValueError as error:
        raise _illegal(given, OPTION, f"has to be key columns, separated by commas: {error}") from error
    names = {field.name.lower(): field for field in schema.fields}
    reserved = [names[name].name for name in CHANGE_COLUMNS.names if name in names]
    if reserved:
        raise DeltaIllegalStateException(
            error_class="DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS",
            column_list=", ".join(reserved),
            table=table,
        )
    keys: list[str] = []
    for path in paths:
        name = ".".join(path)
        field = names.get(name.lower()) if len(path) == 1 else None
        if field is None:
            raise DeltaAnalysisException(
                error_class="DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
                name=name,
                schema=schema.simpleString(),
                table=table,
            )
        if not has_order(field.dataType) or field.name in keys:
            fault = "is named twice" if field.name in keys else f"is of type {field.dataType.simpleString()}"
            raise _illegal(given, OPTION, f"has to be columns that can be compared, and {name} {fault}")
        keys.append(field.name)
    if not keys:
        raise _illegal(given, OPTION, "has to name at least one column")
    return tuple(keys)


def is_net(options: Mapping[str, str]) -> bool:
    """Whether a key has at most one change in the whole range."""
    return boolean_option(options, NET_OPTION)


def steps(keys: Sequence[str], *, net: bool, schema: T.StructType, table: str) -> list[ChangeStep]:
    """What Spark has to do with the rows of files that commits have added (`insert`) and removed (`delete`).

    The rows have the table's columns and those of change rows, and so has the result.
    """
    names = [quoted(field.name) for field in schema.fields]
    numbered = [f"k{i}" for i in range(len(keys))]
    # Conditions on them reach the scans. Of other types Spark may group values that are not quite the same.
    exact = {
        key: number
        for key, number in zip(keys, numbered, strict=True)
        if not isinstance(schema[key].dataType, T.FractionalType | T.ArrayType | T.StructType)
    }
    differ = _DIFFER.format(before=_comparable("before", schema), after=_comparable("after", schema))
    twice = DeltaIllegalStateException(
        error_class="DELTA_CHANGE_KEYS_NOT_UNIQUE", keys=", ".join(keys), table=table
    )
    found = [
        ChangeStep(
            columns=[
                *[f"{quoted(key)} AS {number}" for key, number in zip(keys, numbered, strict=True)],
                f"{CHANGE_TYPE} = 'insert' AS added",
                f"{COMMIT_VERSION} AS version",
                f"{COMMIT_TIMESTAMP} AS moment",
                f"struct({', '.join(names)}) AS data",
            ]
        ),
        ChangeStep(
            group_by=[*numbered, "version", "moment"],
            columns=[
                "first(data) FILTER (WHERE NOT added) AS before",
                "first(data) FILTER (WHERE added) AS after",
                "greatest(count_if(added), count_if(NOT added)) AS most",
            ],
        ),
        ChangeStep(
            columns=[
                *numbered,
                "version",
                "moment",
                f"CASE WHEN most > 1 THEN raise_error({_text(str(twice))}) ELSE before END AS before",
                "after",
            ],
            condition=differ,
        ),
    ]
    if net:
        found += [
            ChangeStep(
                group_by=numbered,
                columns=[
                    "min_by(struct(before), version) AS earliest",
                    "max_by(struct(after), version) AS latest",
                    "max(struct(version, moment)) AS newest",
                ],
            ),
            ChangeStep(
                columns=[*numbered, "newest.version", "newest.moment", "earliest.before", "latest.after"],
                condition=differ,
            ),
        ]
    return [
        *found,
        ChangeStep(
            columns=[
                *numbered,
                "version",
                "moment",
                "explode(CASE WHEN before IS NULL THEN array(struct('insert' AS type, after AS data)) "
                "WHEN after IS NULL THEN array(struct('delete' AS type, before AS data)) "
                "ELSE array(struct('update_preimage' AS type, before AS data), "
                "struct('update_postimage' AS type, after AS data)) END) AS change",
            ]
        ),
        ChangeStep(
            columns=[
                *[
                    f"{exact.get(field.name, f'change.data.{quoted(field.name)}')} AS {quoted(field.name)}"
                    for field in schema.fields
                ],
                f"change.type AS {CHANGE_TYPE}",
                f"version AS {COMMIT_VERSION}",
                f"moment AS {COMMIT_TIMESTAMP}",
            ]
        ),
    ]


def _comparable(row: str, schema: T.StructType) -> str:
    """The row as one value that Spark can compare."""
    values = [orderable_sql(f"{row}.{quoted(field.name)}", field.dataType) for field in schema.fields]
    return f"struct({', '.join(values)})"


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _illegal(given: str, name: str, explain: str) -> DeltaIllegalArgumentException:
    return DeltaIllegalArgumentException(
        error_class="DELTA_ILLEGAL_OPTION", input=given, name=name, explain=explain
    )
