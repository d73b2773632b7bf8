"""A change of a checkpoint's files: planned first, so that somebody can read what it does, and then made.

Spark keeps the batches of a query as files with numbers as names. A change adds batches and never replaces
one: the table that the query writes knows the numbers of its batches, and skips those that it has.

A change may be interrupted at any moment. Spark then starts the query as if nothing had been changed, or not
at all, and the change can be made again. A new checkpoint has a file `metadata` that Spark cannot read until
it is whole. In one that is changed, the entry of the batch before the newest one is written last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec

from deltaflow.errors import DeltaIllegalStateException, DeltaUnsupportedOperationException
from deltaflow.log.replay.log_files import LogFiles, existing_log
from deltaflow.log.replay.snapshot import Snapshot, newest_snapshot
from deltaflow.log.streams.checkpoint import (
    COMMITS,
    EDITS,
    OFFSETS,
    UNFINISHED,
    BatchOffsets,
    StreamCheckpoint,
)
from deltaflow.log.streams.schema_log import SCHEMA_LOG
from deltaflow.log.streams.source_offset import POST_METADATA_CHANGE
from deltaflow.store import EntryType, LogStore, store_for

METADATA = "metadata"
_CHUNK_BYTES = 1 << 20
FIRST_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'
"""Spark's entry of the log `commits` for a query without a watermark."""


@dataclass(frozen=True, kw_only=True)
class CheckpointEdit:
    """What a change of a checkpoint does. Nothing has happened before `apply`."""

    directory: str
    """The checkpoint that is changed or made."""
    steps: Sequence[str]
    """What is done and what follows from it, as sentences."""
    files: Mapping[str, str]
    """The texts of the files to be written, by their places in the directory, in this order."""
    copied_from: str | None = None
    """The checkpoint of which a copy is made first."""
    copied: Sequence[str] = ()
    """The places of the files that are copied."""
    planned: Sequence[int] | None = None
    """The batches that the checkpoint had when this was planned; None if there was no checkpoint."""

    def apply(self) -> str | None:
        """Make the change. The path of the backup, a whole checkpoint beside this one; None for a new one.

        DeltaIllegalStateException if the checkpoint has changed since the plan: its stream is running. If
        this raises, what has been written is removed. If its process ends, the same change can be planned
        and made again, which removes it.
        """
        if self.planned is None:
            _make(self.directory, self.files, self.copied_from, self.copied)
            return None
        found = StreamCheckpoint(self.directory)
        if found.planned != list(self.planned):
            raise _is_running(self.directory)
        backup = f"{self.directory}.backup-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        _make(backup, {}, self.directory, [p for p in places(self.directory) if p not in found.leftovers])
        # The stream does not run: nobody else writes there.
        store, root = store_for(self.directory, single_writer=True)
        for place in found.leftovers:
            store.delete(f"{root}/{place}")
        _write(self.directory, self.files, None, ())
        return backup


def is_unfinished(directory: str) -> bool:
    """Whether the making of a new checkpoint there was interrupted."""
    store, root = store_for(directory)
    try:
        return store.read(f"{root}/{METADATA}").startswith(UNFINISHED)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _make(directory: str, files: Mapping[str, str], copied_from: str | None, copied: Sequence[str]) -> None:
    """Makes a new checkpoint; all of it, or something that Spark refuses and that can be made again."""
    store, root = store_for(directory, single_writer=True)
    metadata = f"{root}/{METADATA}"
    if is_unfinished(directory):
        for place in sorted(places(directory), key=lambda place: place == METADATA):
            store.delete(f"{root}/{place}")
    text = files.get(METADATA, "").encode()
    if METADATA in copied:
        assert copied_from is not None
        source, source_root = store_for(copied_from)
        text = source.read(f"{source_root}/{METADATA}")
    store.make_directory(root)
    try:
        store.put_if_absent(
            metadata, UNFINISHED + b"this checkpoint is being made, or that was interrupted\n"
        )
    except FileExistsError as error:
        raise _is_running(directory) from error
    done: list[str] = []
    try:
        others = {place: content for place, content in files.items() if place != METADATA}
        done = _write(directory, others, copied_from, [place for place in copied if place != METADATA])
        if text:
            with store.open_output(metadata) as output:
                output.write(text)
        else:
            store.delete(metadata)
    except BaseException:
        if is_unfinished(directory):
            # Without it, Spark would begin a query with what else is there: it goes last.
            _remove(store, [metadata, *done])
        raise


def _write(
    directory: str, files: Mapping[str, str], copied_from: str | None, copied: Sequence[str]
) -> list[str]:
    """Copies files into a directory and writes others, none of which may be there; if this raises, none.

    Returns their paths.
    """
    store, root = store_for(directory, single_writer=True)
    done: list[str] = []
    try:
        for place in copied:
            assert copied_from is not None
            source, source_root = store_for(copied_from)
            done.append(f"{root}/{place}")
            with source.open(f"{source_root}/{place}") as content, store.open_output(done[-1]) as output:
                while chunk := content.read(_CHUNK_BYTES):
                    output.write(chunk)
        for place, text in files.items():
            folder, _, name = f"{root}/{place}".rpartition("/")
            store.make_directory(folder)
            # Hadoop's checksum of a file that was there once would refuse the new one.
            store.delete(f"{folder}/.{name}.crc")
            done.append(f"{folder}/{name}")
            store.put_if_absent(done[-1], text.encode())
    except FileExistsError as error:
        _remove(store, done[:-1])
        raise _is_running(directory) from error
    except BaseException:
        _remove(store, done)
        raise
    return done


def _remove(store: LogStore, paths: Sequence[str]) -> None:
    """Deletes the files, the last one first."""
    for path in reversed(paths):
        store.delete(path)


def _is_running(directory: str) -> DeltaIllegalStateException:
    return DeltaIllegalStateException(
        f"The checkpoint {directory} changed while it was looked at, and was not changed: its stream is "
        "running. Stop the stream, and try again.",
        error_class="DELTA_STREAM_CHECKPOINT_CHANGED",
        file=directory,
    )


def places(checkpoint: str) -> Iterator[str]:
    """The places of a checkpoint's files in its directory, without hidden ones."""
    store, root = store_for(checkpoint)
    directory = store.data_directory(root)
    folders = [""]
    while folders:
        folder = folders.pop()
        for entry in directory.entries(folder):
            place = f"{folder}/{entry.name}".removeprefix("/")
            if entry.name.startswith("."):
                continue
            if entry.type is EntryType.DIRECTORY:
                folders.append(place)
            elif entry.type is EntryType.FILE:
                yield place


def schema_log_places(checkpoint: str, table_id: str = "") -> list[str]:
    """The places in a checkpoint of the entries of schema logs, of all tables or of one."""
    start = f"{SCHEMA_LOG}{table_id}"
    return [place for place in places(checkpoint) if f"/{place}".rsplit("/", 2)[1].startswith(start)]


def with_offset(
    checkpoint: StreamCheckpoint, entry: BatchOffsets, sources: Sequence[str], json: str, last_batch: int
) -> dict[str, str]:
    """The files that let a query go on after `last_batch` with the offsets of `entry`, and another one of
    `sources`.

    They are two empty batches, which are done. Spark reads the last two, and asks the sources for what is
    between them; a source would refuse to go back. It starts without the second one, and not without the
    first one: so that is written last.
    """
    done = checkpoint.newest_done
    commit = FIRST_COMMIT
    if done is not None:
        commit = checkpoint.store.read(checkpoint.path_of(COMMITS, done)).decode()
    offsets = replace(entry, offsets={**entry.offsets, **dict.fromkeys(sources, json)}).text()
    first, second = last_batch + 1, last_batch + 2
    return {
        f"{OFFSETS}/{second}": offsets,
        f"{COMMITS}/{first}": commit,
        f"{COMMITS}/{second}": commit,
        f"{OFFSETS}/{first}": offsets,
    }


def note(last_batch: int, steps: Sequence[str]) -> dict[str, str]:
    """The file that says that the query has not run the batches up to `last_batch` itself, and why."""
    content = {"steps": list(steps), "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
    return {f"{EDITS}/{last_batch}": msgspec.json.encode(content).decode()}


def refuse_state(checkpoint: StreamCheckpoint, what: str) -> None:
    """DeltaUnsupportedOperationException for a query with state, which would not fit other offsets."""
    if checkpoint.has_state:
        raise refused(
            checkpoint.path,
            f"The query of the checkpoint {checkpoint.path} keeps state (an aggregation, a join of streams, "
            f"deduplication, …), and {what} would not change that: rows would count twice or be missing. "
            "Start the query with a new checkpoint, into a new table.",
        )


def refused(path: str, message: str) -> DeltaUnsupportedOperationException:
    """The error for a checkpoint that a tool cannot change rightly."""
    return DeltaUnsupportedOperationException(
        message, error_class="DELTA_STREAM_CHECKPOINT_UNSUPPORTED", file=path
    )


def _is_empty(checkpoint: StreamCheckpoint, batch_id: int) -> bool:
    """Whether a batch only passes a change of the schema (POST_METADATA_CHANGE)."""
    if batch_id - 1 not in checkpoint.planned:
        return False
    start, end = checkpoint.offsets(batch_id - 1), checkpoint.offsets(batch_id)
    for source, json in end.offsets.items():
        if json == start.offsets.get(source):
            continue
        offset = end.delta_offset(source)
        if offset is None or offset.index != POST_METADATA_CHANGE:
            return False
    return True


def newest_version(table: str) -> tuple[LogFiles, Snapshot]:
    """The log of a table, and its newest version without files; DeltaTableNotFoundError if there is none."""
    log = replace(existing_log(table), file_fields=frozenset())
    return log, newest_snapshot(log)


def last_batch_in(table: str, query_id: str) -> int | None:
    """The last batch of a query that a table has; None if it has none."""
    return newest_version(table)[1].txn_version(query_id)


def written_batch(checkpoint: StreamCheckpoint, sink: str | None, *, at_least: bool = False) -> int:
    """The last batch whose rows the query has written.

    It is the newest one if that is done, or if the table `sink` has it, and otherwise the one before; that
    one, too, if the newest has no rows, as behind a change of the schema. Without `sink` it is the one before
    if `at_least` says that an earlier one will do. Otherwise, and if there is no such batch,
    DeltaUnsupportedOperationException.
    """
    newest = checkpoint.newest_planned
    if newest is None:
        raise refused(
            checkpoint.path,
            f"The stream of the checkpoint {checkpoint.path} has not begun a batch yet. Give it the option "
            "startingVersion or startingTimestamp when it starts.",
        )
    if newest == checkpoint.newest_done:
        return newest
    if _is_empty(checkpoint, newest):
        return newest - 1
    if sink is None and not at_least:
        raise refused(
            checkpoint.path,
            f"Batch {newest} is planned and not recorded as done, so it is not known whether its rows are "
            "written. Start the stream once so that it finishes the batch, with the trigger availableNow, "
            "or name the table that it writes.",
        )
    if sink is not None and checkpoint.query_id is not None:
        held = last_batch_in(sink, checkpoint.query_id)
        if held is not None and held >= newest:
            return newest
    if newest - 1 not in checkpoint.planned:
        raise refused(
            checkpoint.path,
            f"The stream of the checkpoint {checkpoint.path} has not finished its first batch yet. Start it "
            "once so that it does, with the trigger availableNow.",
        )
    return newest - 1
