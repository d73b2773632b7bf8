"""Pipelines of the log core: they start no JVM, so that very many trials are cheap."""

from __future__ import annotations

import io
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T

from deltaflow.cli import main
from deltaflow.log import (
    AddFile,
    DeltaLog,
    Metadata,
    Operation,
    SetTransaction,
    remove_files,
    schema_to_string,
)
from deltaflow.log.streams.checkpoint import StreamCheckpoint
from deltaflow.log.streams.fork import plan_fork
from deltaflow.log.streams.rewind import plan_rewind
from deltaflow.log.streams.source_offset import BASE_INDEX, DeltaSourceOffset

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
        files = transaction.snapshot.with_stats(transaction.snapshot.files)
        removed = remove_files(files, log._files.clock(), data_change=True)
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


def vacuum_log(folder: str) -> None:
    """Rows replaced twice, stray files beside them, and a vacuum by the command line; then one append."""
    path = f"{folder}/table"
    for number in range(3):
        append(path, number, {"delta.deletedFileRetentionDuration": "interval 0 seconds"}, replaces=True)
    if DeltaLog.for_table(path).snapshot().txn_version("writer") == 2:
        for number in range(3):
            stray = Path(path, f"stray-{number}.parquet")
            stray.write_bytes(b"stray")
            os.utime(stray, (0, 0))
        main(["vacuum", path, "--yes"], standalone_mode=False)
    append(path, 3, {})
    assert not list(Path(path).glob("stray-*"))


def _stream_checkpoint(folder: str, *, version: int = 3) -> str:
    """The checkpoint of a stream that has read three commits of a table, in two batches."""
    checkpoint = Path(folder, "checkpoint")
    for number in range(3):
        append(f"{folder}/source", number, {})
    table_id = DeltaLog.for_table(f"{folder}/source").snapshot().table_id
    if not checkpoint.exists():
        new = Path(folder, "checkpoint-new")
        for place in ("offsets", "commits"):
            (new / place).mkdir(parents=True, exist_ok=True)
        (new / "metadata").write_text('{"id":"query-1"}')
        for batch in range(2):
            offset = DeltaSourceOffset(table_id, version - 1 + batch, BASE_INDEX, False).json()
            (new / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{offset}")
            (new / "commits" / str(batch)).write_text("v1\n{}")
        new.rename(checkpoint)
    return str(checkpoint)


def _position(checkpoint: str) -> int:
    """The version with which the stream of a checkpoint goes on, all of whose batches have to be done."""
    found = StreamCheckpoint(checkpoint)
    assert found.planned == found.done, (found.planned, found.done)
    offset = found.offsets(found.planned[-1]).delta_offset("0")
    assert offset is not None
    return offset.reservoir_version


def rewind(folder: str) -> None:
    """A stream's checkpoint goes back to version 1. After a kill the backup is put back first, if need be."""
    checkpoint = _stream_checkpoint(folder)
    if not Path(folder, "rewound").exists():
        found = StreamCheckpoint(checkpoint)
        if (found.planned, found.done) != ([0, 1], [0, 1]):
            backup = sorted(Path(folder).glob("checkpoint.backup-*"))[-1]
            shutil.rmtree(checkpoint)
            shutil.copytree(backup, checkpoint)
        plan_rewind(checkpoint, f"{folder}/source", version=1).apply()
        Path(folder, "rewound").touch()
    assert _position(checkpoint) == 1
    append(f"{folder}/result", 1, {})


def fork(folder: str) -> None:
    """A second stream goes on where the first one is. After a kill an unfinished fork is removed first."""
    checkpoint, target = _stream_checkpoint(folder), f"{folder}/fork"
    if not Path(folder, "forked").exists():
        shutil.rmtree(target, ignore_errors=True)
        plan_fork(checkpoint, target).apply()
        Path(folder, "forked").touch()
    assert _position(target) == _position(checkpoint) == 3
    append(f"{folder}/result", 3, {})
