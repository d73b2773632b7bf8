"""Pipelines of the log core: they start no JVM, so that very many trials are cheap."""

from __future__ import annotations

import io
import json
import os
import posixpath
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs
from pyroaring import BitMap64
from pyspark.sql import types as T

from deltaflow.cli import main
from deltaflow.log import (
    AddFile,
    DeltaLog,
    Metadata,
    Operation,
    SetTransaction,
    add_files,
    remove_files,
    schema_to_string,
)
from deltaflow.log.files.deletion_vectors import packed_vectors, read_deletion_vectors
from deltaflow.log.replay.log_files import Clock, system_clock
from deltaflow.log.streams.checkpoint_edit import CheckpointEdit
from deltaflow.log.streams.fork import plan_fork
from deltaflow.log.streams.rebuilding import plan_rebuilding
from deltaflow.log.streams.rewind import plan_adoption, plan_rewind
from deltaflow.log.streams.source_offset import BASE_INDEX, DeltaSourceOffset, decode_offset

_DAY_MS = 86_400_000
_CHECKPOINT = "spark.databricks.delta.checkpoint"
_SCHEMA = schema_to_string(T.StructType([T.StructField("id", T.LongType())]))


def commits(folder: str) -> None:
    """Five appends, every second with a checkpoint."""
    for number in range(5):
        append(f"{folder}/table", number, {"delta.checkpointInterval": "2"})


def checkpoints_v2(folder: str) -> None:
    """Three appends, each with a V2 checkpoint with sidecars."""
    for number in range(3):
        append(f"{folder}/table", number, {"delta.checkpointInterval": "1", "delta.checkpointPolicy": "v2"})


def checkpoints_of_parts(folder: str) -> None:
    """Three appends, a checkpoint of two parts, and an append."""
    _checkpoint_between(f"{folder}/table", {}, {f"{_CHECKPOINT}.partSize": "2"})


def checkpoints_v2_of_parquet(folder: str) -> None:
    """Three appends, a V2 checkpoint whose top level is Parquet, with two sidecars, and an append."""
    session = {f"{_CHECKPOINT}.partSize": "2", f"{_CHECKPOINT}V2.topLevelFileFormat": "parquet"}
    _checkpoint_between(f"{folder}/table", {"delta.checkpointPolicy": "v2"}, session)


def _checkpoint_between(path: str, configuration: Mapping[str, str], session: Mapping[str, str]) -> None:
    for number in range(3):
        append(path, number, {"delta.checkpointInterval": "100", **configuration})
    DeltaLog.for_table(path).checkpoint(session)
    append(path, 3, {})


def clean_up(folder: str, root: str = "") -> None:
    """Four appends, then a checkpoint and the deletion of the commits before it, and one append more.

    The folder is local, and `root` comes before the paths by which the store knows it.
    """
    path = f"{root}{folder}/table"
    for number in range(4):
        append(path, number, {"delta.checkpointInterval": "100"})
    log = DeltaLog.for_table(path)
    if log.snapshot().txn_version("writer") == 3:
        make_old(f"{folder}/table")
        log.checkpoint()
        log.truncate_history(_DAY_MS)
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
    path: str,
    number: int,
    configuration: Mapping[str, str],
    *,
    replaces: bool = False,
    marked: bool = True,
    operation: Operation | None = None,
) -> None:
    """One commit of a file with ten rows, unless the table has it: `txn` tells, if it is `marked`.

    The table's id is the last part of its path.
    """
    log = _log(path)
    transaction = log.start_transaction()
    done = transaction.record_read_of_txn("writer")
    if marked and done is not None and done >= number:
        return
    if transaction.snapshot is None:
        metadata = Metadata(
            id=posixpath.basename(path),
            schema_string=_SCHEMA,
            partition_columns=[],
            configuration=dict(configuration),
        )
        transaction.update_metadata(metadata)
    file = write_file(log, number)
    removed = []
    if replaces and transaction.snapshot is not None:
        transaction.record_read_of_whole_table()
        files = transaction.snapshot.with_stats(transaction.snapshot.files)
        removed = remove_files(files, log._files.clock(), data_change=True)
    actions = [*([_mark(log, number)] if marked else []), *removed, file]
    transaction.commit(actions, operation or Operation("WRITE", {"mode": "Append"}))


def _log(path: str, clock: Clock = system_clock) -> DeltaLog:
    # Nobody else writes the tables of a pipeline; fsspec's local files want to be told.
    return DeltaLog.for_table(path, single_writer=path.startswith("local:"), clock=clock)


def _mark(log: DeltaLog, number: int) -> SetTransaction:
    return SetTransaction(app_id="writer", version=number, last_updated=log._files.clock())


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


def vacuum_log(folder: str, root: str = "") -> None:
    """Rows replaced twice, stray files beside them, and a vacuum by the command line; then one append.

    The folder is local, and `root` comes before the paths by which the store knows it.
    """
    path, local = f"{root}{folder}/table", Path(folder, "table")
    for number in range(3):
        append(path, number, {"delta.deletedFileRetentionDuration": "interval 0 seconds"}, replaces=True)
    if DeltaLog.for_table(path).snapshot().txn_version("writer") == 2:
        for number in range(3):
            stray = local / f"left-{number}" / "stray.parquet"
            stray.parent.mkdir(exist_ok=True)
            stray.write_bytes(b"stray")
            os.utime(stray, (0, 0))
        main(["vacuum", path, "--yes"], standalone_mode=False)
    append(path, 3, {})
    assert not list(local.glob("left-*/*"))


def upkeep(folder: str) -> None:
    """Replaced rows, deletion vectors and a stray file: the log is cleaned up after two days, the table by
    both kinds of vacuum, and looked at by the doctor; then one append. The folder is on any store."""
    path = f"{folder}/table"
    configuration = {
        "delta.checkpointInterval": "100",
        "delta.deletedFileRetentionDuration": "interval 0 seconds",
        "delta.enableDeletionVectors": "true",
    }
    for number in range(3):
        append(path, number, configuration, replaces=number == 1)
    for number in (3, 4):
        _delete_row(path, number)
    log = _log(path)
    if log.snapshot().txn_version("writer") == 4:
        if log.available_versions()[0] == 0:  # without it, this kind of vacuum refuses
            main(["vacuum", path, "--lite", "--yes"], standalone_mode=False)
        later = _log(path, lambda: system_clock() + 2 * _DAY_MS)
        later.checkpoint()
        later.truncate_history(_DAY_MS)
        log._files.store.make_directory(f"{path}/left")
        with suppress(FileExistsError):
            log._files.store.put_if_absent(f"{path}/left/stray.parquet", b"stray")
        main(["vacuum", path, "--yes"], standalone_mode=False)
        main(["doctor", path], standalone_mode=False)
    append(path, 5, {})


def _delete_row(path: str, number: int) -> None:
    """One commit that deletes the row at this position of every file by deletion vectors, beside those that
    are deleted already, unless the table has it."""
    log = _log(path)
    transaction = log.start_transaction()
    done = transaction.record_read_of_txn("writer")
    assert done is not None
    if done >= number:
        return
    assert transaction.snapshot is not None
    transaction.record_read_of_whole_table()
    table = transaction.snapshot.with_stats(transaction.snapshot.files)
    old, before = list(add_files(table)), read_deletion_vectors(table, path, transaction.snapshot.version)
    rows = [BitMap64([number]) if vector is None else vector.rows | BitMap64([number]) for vector in before]
    files, vectors = packed_vectors(rows, None)
    for file in files:
        with log._files.store.open_output(f"{log.path}/{file.name}") as output:
            output.write(file.content)
    removed = [add.remove(log._files.clock(), data_change=True) for add in old]
    new = [structs.replace(add, deletion_vector=vector) for add, vector in zip(old, vectors, strict=True)]
    transaction.commit([_mark(log, number), *removed, *new], Operation("DELETE", {}))


def _stream_checkpoint(folder: str, root: str = "") -> str:
    """The checkpoint of a stream that has read three commits of a table, in two batches."""
    for number in range(3):
        append(f"{root}{folder}/source", number, {})
    checkpoint = f"{folder}/checkpoint"
    files = _files(folder)
    if not files.exists(f"{checkpoint}/metadata"):
        for batch, version in enumerate((2, 3)):
            text = f"v1\n{{}}\n{_offset('source', version)}"
            files.pipe_file(f"{checkpoint}/offsets/{batch}", text.encode())
            files.pipe_file(f"{checkpoint}/commits/{batch}", b"v1\n{}")
        files.pipe_file(f"{checkpoint}/metadata", b'{"id":"query-1"}')
    return checkpoint


def _files(folder: str) -> fsspec.AbstractFileSystem:
    """The files as they are, without deltaflow's stores and the faults around them."""
    protocol, _ = fsspec.core.split_protocol(folder)
    if protocol is None:
        return fsspec.filesystem("file", auto_mkdir=True)
    return fsspec.filesystem(protocol, use_listings_cache=False)


def _offset(table_id: str, version: int) -> str:
    return DeltaSourceOffset(table_id, version, BASE_INDEX, False).json()


def _position(checkpoint: str) -> DeltaSourceOffset | None:
    """Where the stream of a checkpoint goes on; None if Spark does not start it, and says so.

    AssertionError if Spark would start it from somewhere else, or with an offset that goes back.
    """
    files = _files(checkpoint)
    # S3A marks directories by objects of no bytes.
    found = [name for name, info in files.find(checkpoint, detail=True).items() if info["size"]]
    names = [name.rpartition(f"{posixpath.basename(checkpoint)}/")[2] for name in found]
    if "metadata" not in names:
        assert all(posixpath.basename(name).startswith(".") for name in names), "Spark begins anew"
        return None
    try:
        json.loads(files.cat_file(f"{checkpoint}/metadata"))
    except ValueError:
        return None
    offsets, commits = (
        [int(name.removeprefix(log)) for name in names if name.removeprefix(log).isdecimal()]
        for log in ("offsets/", "commits/")
    )
    newest = max(offsets)
    if newest > 0 and newest - 1 not in offsets:
        return None
    assert newest == max(commits), "Spark runs a batch again"
    start, end = (
        decode_offset(files.cat_file(f"{checkpoint}/offsets/{batch}").decode().splitlines()[2], checkpoint)
        for batch in (max(newest - 1, 0), newest)
    )
    assert start.position <= end.position or start.reservoir_id != end.reservoir_id
    return end


def _edited(
    folder: str, checkpoint: str, plan: Callable[[], CheckpointEdit], expected: str, root: str = ""
) -> None:
    """Changes a checkpoint, unless that is done; whatever a kill has left is something to go on from."""
    position = _position(checkpoint)
    for name in _files(folder).glob(f"{folder}/checkpoint.backup-*"):
        _position(f"{folder}/{posixpath.basename(name)}")
    if position is None or position.json() != expected:
        plan().apply()
    position = _position(checkpoint)
    assert position is not None
    assert position.json() == expected
    append(f"{root}{folder}/result", 1, {})


def rewind(folder: str, root: str = "") -> None:
    """A stream's checkpoint goes back to version 1.

    `root` comes before the paths by which the store knows them.
    """
    checkpoint, table = _stream_checkpoint(folder, root), f"{root}{folder}/source"
    plan = partial(plan_rewind, f"{root}{checkpoint}", table, version=1)
    _edited(folder, checkpoint, plan, _offset("source", 1), root)


def adopt(folder: str) -> None:
    """A stream goes on with another table than its first one."""
    checkpoint, table = _stream_checkpoint(folder), f"{folder}/anew"
    append(table, 0, {})
    _edited(folder, checkpoint, lambda: plan_adoption(checkpoint, table, version=0), _offset("anew", 0))


def fork(folder: str) -> None:
    """A second stream goes on where the first one is."""
    checkpoint, target = _stream_checkpoint(folder), f"{folder}/fork"
    _edited(folder, target, lambda: plan_fork(checkpoint, target), _offset("source", 3))


def rebuild(folder: str) -> None:
    """A stream's checkpoint is made from the commits of the table that it writes."""
    for batch, version in enumerate((1, 2)):
        parameters = {"outputMode": "Append", "queryId": "query-1", "epochId": str(batch)}
        operation = Operation("STREAMING UPDATE", parameters, source_offsets=[_offset("source", version)])
        append(f"{folder}/sink", batch, {}, operation=operation)
    target = f"{folder}/checkpoint"
    _edited(folder, target, lambda: plan_rebuilding(target, f"{folder}/sink"), _offset("source", 2))
