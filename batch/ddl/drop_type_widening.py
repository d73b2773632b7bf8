"""Takes all traces of changed types out of a table, before its feature typeWidening is dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import types as T

from deltaflow.batch.ddl.changes import begin_change, commit_change
from deltaflow.batch.ddl.table_properties import unset_properties
from deltaflow.batch.optimize.optimize import optimize
from deltaflow.batch.optimize.purge import files_of_older_types
from deltaflow.log import DeltaLog, Operation, schema_to_string
from deltaflow.log.protocol.type_widening import has_type_changes, without_type_changes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROPERTY = "delta.enableTypeWidening"


def remove_type_changes(spark: SparkSession, log: DeltaLog, settings: Mapping[str, str]) -> bool:
    """Unsets the property, writes the files anew that have columns of older types, and takes the changes out
    of the schema. True if there was something to remove.

    Each step is a commit. Without the property no type can change meanwhile.
    """
    snapshot = log.snapshot()
    is_enabled = _PROPERTY in snapshot.metadata.configuration
    if is_enabled:
        unset_properties(log, [_PROPERTY], True, settings)
    if not has_type_changes(snapshot.schema):
        return is_enabled
    optimize(spark, log.path, settings, purge=files_of_older_types)
    transaction, metadata = begin_change(log, settings)
    assert transaction.snapshot is not None
    before = transaction.snapshot.schema
    schema = without_type_changes(before)
    changed = [field.jsonValue() for field in before.fields if has_type_changes(T.StructType([field]))]
    metadata = msgspec.structs.replace(metadata, schema_string=schema_to_string(schema))
    commit_change(
        transaction, metadata, Operation("DROP FEATURE", {"columns": msgspec.json.encode(changed).decode()})
    )
    return True
