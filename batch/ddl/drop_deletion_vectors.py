"""Takes all deletion vectors out of a table, before its feature deletionVectors is dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.batch.ddl.changes import begin_change
from deltaflow.batch.ddl.table_properties import unset_properties
from deltaflow.batch.optimize.optimize import optimize
from deltaflow.batch.optimize.purge import files_to_purge
from deltaflow.log import DeltaLog, Operation, RemoveFile, Snapshot
from deltaflow.log.files.data_path import store_paths
from deltaflow.log.files.deletion_vectors import vector_uris
from deltaflow.log.protocol.properties import DELETED_FILE_RETENTION_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROPERTY = "delta.enableDeletionVectors"


def remove_deletion_vectors(spark: SparkSession, log: DeltaLog, settings: Mapping[str, str]) -> bool:
    """Unsets the property, purges the table, and leaves tombstones of the vectors' files. True if there was
    something to remove.

    Each step is a commit. The tombstones keep the vacuum of a writer that does not know vectors from deleting
    those that older versions need.
    """
    snapshot = log.snapshot()
    is_enabled = _PROPERTY in snapshot.metadata.configuration
    if is_enabled:
        unset_properties(log, [_PROPERTY], True, settings)
    if snapshot.num_deletion_vectors:
        optimize(spark, log.path, settings, purge=files_to_purge)
    _add_tombstones(log, settings)
    return is_enabled or snapshot.num_deletion_vectors > 0


def _add_tombstones(log: DeltaLog, settings: Mapping[str, str]) -> None:
    transaction, metadata = begin_change(log, settings)
    assert transaction.snapshot is not None
    now_ms = transaction.log.clock()
    before_ms = now_ms - DELETED_FILE_RETENTION_MS.of(metadata.configuration, log.path)
    tombstones = [
        RemoveFile(path=path, deletion_timestamp=now_ms, data_change=False)
        for path in _paths_without_tombstone(transaction.snapshot, before_ms)
    ]
    if tombstones:
        transaction.commit(tombstones, Operation("Deletion Vector Tombstones", {}))


def _paths_without_tombstone(snapshot: Snapshot, before_ms: int) -> list[str]:
    """The table's own files of vectors that files had which were removed since, and not as long ago."""
    removed = snapshot.tombstones
    is_young = pc.greater_equal(pc.fill_null(removed["deletion_timestamp"], 0), before_ms)
    uris = pa.chunked_array([vector_uris(removed["deletion_vector"].filter(is_young))], pa.string())
    places = store_paths(snapshot.path, uris)
    is_own = pc.starts_with(places, snapshot.path.rstrip("/") + "/")
    there = store_paths(snapshot.path, removed["path"])
    is_new = pc.invert(pc.is_in(places, value_set=there.combine_chunks()))
    paths: list[str] = uris.filter(pc.and_(is_own, is_new)).to_pylist()
    return paths
