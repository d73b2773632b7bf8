"""Columns whose type grows by a write, by MERGE or by ALTER TABLE (PROTOCOL.md, "Type Widening").

Source: delta-spark's TypeWideningMetadata and ImplicitMetadataOperation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from pyspark.sql import types as T

from deltaflow.batch.rows.column_expressions import generation_expressions
from deltaflow.errors import DeltaAnalysisException, DeltaUnsupportedOperationException
from deltaflow.log import Snapshot
from deltaflow.log.protocol.data_types import have_one_shape, inner_fields
from deltaflow.log.protocol.features import supported_features, widens_types
from deltaflow.log.protocol.properties import check_constraints
from deltaflow.log.protocol.schema_reading import Path, dotted
from deltaflow.log.protocol.type_widening import can_widen, with_type_changes

_TIMESTAMP_NTZ: Final = "timestampNtz"
# Names may begin with a digit; what has nothing but digits is a number.
_NAME: Final = r"(?:`(?:[^`]|``)+`|(?<!\w)(?!\d+\b)\w+)"
_TOKEN: Final = re.compile(
    rf"""(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")|(?P<path>{_NAME}(?:\s*\.\s*{_NAME})*)(?P<call>\s*\()?"""
)


def widened(snapshot: Snapshot, schema: T.StructType, *, by_alter: bool = False) -> T.StructType:
    """The new schema of a table, in which the changes of types are recorded; as it is without any.

    `by_alter`: by ALTER TABLE, whose errors have other names. DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT for a
    column that becomes TIMESTAMP_NTZ in a table without that feature. For a column that a CHECK constraint
    or a generated column names, DELTA_CONSTRAINT_DATA_TYPE_MISMATCH or
    DELTA_GENERATED_COLUMNS_DATA_TYPE_MISMATCH (with ALTER … _DEPENDENT_COLUMN_CHANGE).
    """
    if not widens_types(snapshot.protocol, snapshot.metadata):
        return schema
    changes = list(_changes(snapshot.schema, schema, ()))
    for path, old, new in changes:
        is_new_type = isinstance(new, T.TimestampNTZType)
        if is_new_type and _TIMESTAMP_NTZ not in supported_features(snapshot.protocol):
            raise DeltaUnsupportedOperationException(
                error_class="DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT",
                unsupported_features=_TIMESTAMP_NTZ,
                table=snapshot.path,
                column=dotted(path),
            )
        _check_expressions(snapshot, path, old, new, by_alter=by_alter)
    return with_type_changes(schema, snapshot.schema) if changes else schema


def _changes(
    old: T.DataType, new: T.DataType, path: tuple[str, ...]
) -> Iterator[tuple[Path, T.DataType, T.DataType]]:
    """The columns, fields, elements, keys and values that were widened, with both types."""
    if have_one_shape(old, new):
        after = {field.name.lower(): field.dataType for field in inner_fields(new)}
        for field in inner_fields(old):
            if field.name.lower() in after:
                yield from _changes(field.dataType, after[field.name.lower()], (*path, field.name))
    elif can_widen(old, new):
        yield path, old, new


def _check_expressions(
    snapshot: Snapshot, path: Path, old: T.DataType, new: T.DataType, *, by_alter: bool
) -> None:
    constraints = check_constraints(snapshot.metadata.configuration)
    generated = generation_expressions(snapshot.schema)
    what = "DEPENDENT_COLUMN_CHANGE" if by_alter else "DATA_TYPE_MISMATCH"
    found = {
        f"DELTA_CONSTRAINT_{what}": _naming(constraints, path),
        # The expression of a generated column has the type that the column had.
        f"DELTA_GENERATED_COLUMNS_{what}": _naming(generated, path)
        | {name: sql for name, sql in generated.items() if name == path[0]},
    }
    for error_class, expressions in found.items():
        if expressions:
            lines = "\n".join(f"{name} -> {sql}" for name, sql in expressions.items())
            raise DeltaAnalysisException(
                error_class=error_class,
                column_name=dotted(path),
                column_type=old.simpleString(),
                data_type=new.simpleString(),
                constraints=lines,
                generated_columns=lines,
                table=snapshot.path,
                column=dotted(path),
            )


def _naming(expressions: Mapping[str, str], path: Path) -> dict[str, str]:
    """The expressions that name the column, what it is in, or what is in it."""
    return {
        name: sql
        for name, sql in expressions.items()
        if any(
            all(one.lower() == other.lower() for one, other in zip(used, path, strict=False))
            for used in named_columns(sql)
        )
    }


def named_columns(sql: str) -> Iterator[Path]:
    """The paths in an expression that may be columns: every name that is neither a text nor a function."""
    for token in _TOKEN.finditer(sql):
        if token["path"] is not None and token["call"] is None:
            yield tuple(
                name[1:-1].replace("``", "`") if name.startswith("`") else name
                for name in re.findall(_NAME, token["path"])
            )
