"""Pipelines of the log core: they start no JVM, so that very many trials are cheap."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T

from deltaflow.log import (
    AddFile,
    DeltaLog,
    Metadata,
    Operation,
    SetTransaction,
    remove_files,
    schema_to_string,
)

_SCHEMA = schema_to_string(T.StructType([T.StructField("id", T.LongType())]))


def commits(folder: str) -> None:
    """Five appends, every second with a checkpoint."""
    for number in range(5):
        append(f"{folder}/table", number, {"delta.checkpointInterval": "2"})


def checkpoints_v2(folder: str) -> None:
    """Three appends, each with a V2 checkpoint with sidecars."""
    for number in range(3):
        append(f"{folder}/table", number, {"delta.checkpointInterval": "1", "delta.checkpointPolicy": "v2"})


def clean_up(folder: str) -> None:
    """Four appends, then a checkpoint and the deletion of the commits before it, and one append more."""
    path = f"{folder}/table"
    for number in range(4):
        append(path, number, {"delta.checkpointInterval": "100"})
    log = DeltaLog.for_table(path)
    if log.snapshot().txn_version("writer") == 3:
        make_old(path)
        log.checkpoint()
        log.truncate_history(86_400_000)
    append(path, 4, {})


def make_old(path: str) -> None:
    """Sets the times of a local table's commits to two days ago."""
    old = time.time() - 2 * 86_400
    for name in sorted(os.listdir(f"{path}/_delta_log")):
        if name.endswith(".json"):
            os.utime(f"{path}/_delta_log/{name}", (old + int(name[:20]),) * 2)


def replace(folder: str) -> None:
    """Three versions, each of which replaces all rows of the one before."""
    for number in range(3):
        append(f"{folder}/table", number, {}, replaces=True)


def append(
    path: str, number: int, configuration: Mapping[str, str], *, replaces: bool = False, marked: bool = True
) -> None:
    """One commit of a file with ten rows, unless the table has it: `txn` tells, if it is `marked`."""
    log = DeltaLog.for_table(path)
    transaction = log.start_transaction()
    done = transaction.record_read_of_txn("writer")
    if marked and done is not None and done >= number:
        return
    if transaction.snapshot is None:
        metadata = Metadata(
            id="table", schema_string=_SCHEMA, partition_columns=[], configuration=dict(configuration)
        )
        transaction.update_metadata(metadata)
    file = write_file(log, number)
    removed = []
    if replaces and transaction.snapshot is not None:
        transaction.record_read_of_whole_table()
        removed = remove_files(transaction.snapshot.files, log._files.clock(), data_change=True)
    mark = SetTransaction(app_id="writer", version=number, last_updated=log._files.clock())
    actions = [*([mark] if marked else []), *removed, file]
    transaction.commit(actions, Operation("WRITE", {"mode": "Append"}))


def write_file(log: DeltaLog, number: int) -> AddFile:
    """A new file with the ten rows of a number."""
    content, store = io.BytesIO(), log._files.store
    pq.write_table(pa.table({"id": list(range(10 * number, 10 * number + 10))}), content)
    data, name = content.getvalue(), f"part-{log._files.ids()}.parquet"
    store.make_directory(log.path)
    store.put_if_absent(f"{log.path}/{name}", data)
    return AddFile(
        path=name,
        partition_values={},
        size=len(data),
        modification_time=log._files.clock(),
        data_change=True,
        stats=json.dumps({"numRecords": 10}),
    )
