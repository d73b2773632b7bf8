"""Takes column mapping out of a table: all files are written again, with the columns' names in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from deltaflow.batch.ddl.changes import begin_change
from deltaflow.batch.optimize.bin_rewrite import BinRewrite
from deltaflow.batch.optimize.compaction import check_all_are_in, whole_partitions
from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaAnalysisException
from deltaflow.log import AddFile, DeltaLog, Operation, RemoveFile, schema_to_string
from deltaflow.log.protocol.column_mapping import MAX_ID, mapping_mode, without_mapping
from deltaflow.log.protocol.properties import COLUMN_MAPPING_MODE
from deltaflow.log.protocol.schema import names_with_invalid_characters

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OPERATION = "REMOVE COLUMN MAPPING"


def is_mapped(log: DeltaLog) -> bool:
    """Whether the table's newest version has column mapping."""
    return mapping_mode(log.snapshot().metadata, log.path) != "none"


def remove_column_mapping(
    spark: SparkSession, log: DeltaLog, settings: Mapping[str, str], *, unset: bool
) -> None:
    """Rewrites all files with logical names, by one commit that also sets the property to none, or unsets it.

    Any other commit in between is a conflict. Raises DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING
    for a table whose columns have names that Parquet files of tables without mapping cannot have.
    """
    transaction, metadata = begin_change(log, settings)
    snapshot = transaction.snapshot
    assert snapshot is not None
    schema = without_mapping(snapshot.schema)
    invalid = names_with_invalid_characters(schema)
    if invalid:
        raise DeltaAnalysisException(
            error_class="DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING",
            columns=", ".join(repr(name) for name in invalid),
            table=log.path,
        )
    left = {COLUMN_MAPPING_MODE.name, MAX_ID}
    configuration = {name: text for name, text in metadata.configuration.items() if name not in left}
    if not unset:
        configuration[COLUMN_MAPPING_MODE.name] = "none"
    metadata = msgspec.structs.replace(
        metadata, schema_string=schema_to_string(schema), configuration=configuration
    )
    transaction.record_read_of_whole_table()
    bins = whole_partitions(snapshot.files, tuple(snapshot.physical_partition_columns.values()))
    check_all_are_in(bins, snapshot.files, log.path)
    columns = snapshot.clustering_columns
    transaction.clustering.by([".".join(map(quoted, path)) for path in columns])
    transaction.update_metadata(metadata, replaces_table=True)
    if bins:
        BinRewrite(transaction, bins, _describe, {}, _as_they_are, operation=_OPERATION).run(spark)
    else:
        transaction.commit([], _describe((), ()))


def _describe(adds: Sequence[AddFile], removes: Sequence[RemoveFile]) -> Operation:
    metrics = {"numAddedFiles": str(len(adds)), "numRemovedFiles": str(len(removes))}
    return Operation(_OPERATION, {}, metrics)


def _as_they_are(first: int, bins: Sequence[DataFrame]) -> Sequence[DataFrame]:
    """The layout in which Spark reads the rows: about one file for each."""
    return bins
