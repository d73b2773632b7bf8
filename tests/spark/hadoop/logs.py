"""Logs in stores of Hadoop's file systems."""

from __future__ import annotations

from pyspark.sql.types import LongType, StructField, StructType

from deltaflow.log import AddFile, DeltaLog, Metadata, Operation, schema_to_string
from deltaflow.spark.hadoop.open_store import StoresOfSpark
from deltaflow.store import LogStore

WRITE = Operation("WRITE", {"mode": "Append", "partitionBy": "[]"})
SCHEMA = StructType([StructField("id", LongType())])


def ready(stores: StoresOfSpark, path: str) -> tuple[LogStore, str]:
    """A store that has been tried, and the path there."""
    found = stores.open(path, False)
    assert found is not None
    store, root = found
    store.make_directory(f"{root}/before")
    store.put_if_absent(f"{root}/before/0.json", b"")
    return store, root


def commit(log: DeltaLog, name: str) -> int:
    """Adds a file, to a new table if there is none; returns the version."""
    transaction = log.start_transaction()
    if transaction.snapshot is None:
        transaction.update_metadata(
            Metadata(id="table", schema_string=schema_to_string(SCHEMA), partition_columns=[])
        )
    add = AddFile(path=name, partition_values={}, size=1, modification_time=1, data_change=True)
    return transaction.commit([add], WRITE).version
