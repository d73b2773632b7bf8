"""The checkpoint directory of a streaming query, as every Spark writes it. Sources: Spark's OffsetSeqLog,
CommitLog, StreamMetadata and MicroBatchExecution.populateStartOffsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from deltaflow.errors import DeltaIllegalArgumentException, DeltaIllegalStateException
from deltaflow.log.streams.source_offset import DeltaSourceOffset, decode_offset
from deltaflow.log.untrusted_json import decode_json
from deltaflow.store import LogStore, store_for

OFFSETS = "offsets"
COMMITS = "commits"
EDITS = "edits"
"""Where changes of a checkpoint (checkpoint_edit) leave a note; Spark knows no folder of this name."""
SOURCES = "sources"
"""Where each source of the query has a folder of its own."""
UNFINISHED = b"unfinished: "
"""How the file `metadata` begins of a checkpoint that is being made (checkpoint_edit). Spark refuses it."""
RECORD = "deltaflow.json"
"""What deltaflow records of a source, in the source's folder."""
_NEWEST_FORMAT = 2
_MOST_DIGITS = 9
_NO_OFFSET = "-"


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """An entry of the log `offsets`: how far each source is read at the end of a batch."""

    batch_id: int
    format_version: int
    """1 or 2. In version 2 the sources have names; in version 1 they are numbered by their lines."""
    metadata: str
    """Spark's OffsetSeqMetadata (watermark, time, settings) as JSON; it may be empty."""
    offsets: Mapping[str, str | None]
    """The JSON of the offset of each source, by its number or name; None for a source without one yet."""
    path: str
    """The file of the entry."""

    def text(self) -> str:
        """The content of the file."""
        lines = [json or _NO_OFFSET for json in self.offsets.values()]
        if self.format_version > 1:
            lines = [f"{name}:{line}" for name, line in zip(self.offsets, lines, strict=True)]
        return "\n".join([f"v{self.format_version}", self.metadata, *lines])

    def delta_offset(self, source: str) -> DeltaSourceOffset | None:
        """The offset of a source if it is one of a Delta table; None for another one, or without one.

        DeltaIllegalStateException for an offset of a Delta table that cannot be read.
        """
        json = self.offsets.get(source)
        if json is None or reservoir_id(json) is None:
            return None
        return decode_offset(json, self.path)


def reservoir_id(json: str) -> str | None:
    """The id of the Delta table of an offset; None if it is the offset of something else."""
    try:
        fields: Any = decode_json(json)
    except msgspec.DecodeError:
        return None
    found = fields.get("reservoirId") if isinstance(fields, dict) else None
    return found if isinstance(found, str) else None


class StreamCheckpoint:
    """A checkpoint as it was when this object was made; only its entries are read later.

    `path` is the query's checkpointLocation. DeltaIllegalArgumentException (DELTA_NOT_A_STREAM_CHECKPOINT) if
    nothing of a query is there, DeltaIllegalStateException (DELTA_CORRUPT_STREAM_CHECKPOINT) where a file is
    not what Spark writes.
    """

    def __init__(self, path: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.store: LogStore
        self.store, self.directory = store_for(path, storage_options)
        planned, done, edits = self._batches(OFFSETS), self._batches(COMMITS), self._batches(EDITS) or []
        self.query_id = self._query_id()
        """The query's id, which is the application id of its commits; None if the file `metadata` is lost."""
        if planned is None and self.query_id is None:
            raise DeltaIllegalArgumentException(
                f"{path} is no checkpoint of a stream: it has neither offsets nor metadata. Give the "
                "directory that the stream has as its checkpointLocation.",
                error_class="DELTA_NOT_A_STREAM_CHECKPOINT",
                file=path,
            )
        interrupted = _interrupted_edit(planned or [], edits)
        left_out = () if interrupted is None else (interrupted - 1, interrupted)
        self.planned: list[int] = [batch for batch in planned or [] if batch not in left_out]
        """The batches, ascending, whose ends are recorded; Spark removes old ones."""
        self.done: list[int] = [batch for batch in done or [] if batch not in left_out]
        """The batches, ascending, that are recorded as done."""
        self.is_blocked: bool = interrupted is not None and interrupted in (planned or [])
        """Whether Spark does not start the query because a change of the checkpoint was interrupted. The
        batches of the change are not in `planned` and `done`."""
        self.leftovers = [
            f"{log}/{batch}"
            for log, found in ((COMMITS, done), (OFFSETS, planned), (EDITS, edits))
            for batch in left_out
            if batch in (found or [])
        ]
        """The places of the files that an interrupted change has written, the note of it last."""
        self.newest_edit = max((edit for edit in edits if edit != interrupted), default=None)
        """The last batch that the query has not run itself, because somebody has changed its checkpoint; None
        without a change. The table that the query writes need not have the batches up to it."""

    @property
    def newest_planned(self) -> int | None:
        """The batch with which the query goes on if it is not done."""
        return self.planned[-1] if self.planned else None

    @property
    def newest_done(self) -> int | None:
        """The last batch that is done, and whose end is recorded."""
        return max(set(self.planned) & set(self.done), default=None)

    @cached_property
    def has_state(self) -> bool:
        """Whether the query keeps state (aggregations, joins of streams, deduplication, …)."""
        return self.store.exists(f"{self.directory}/state")

    def offsets(self, batch_id: int) -> BatchOffsets:
        """The entry of a batch in the log `offsets`."""
        path = self.path_of(OFFSETS, batch_id)
        try:
            lines = self.store.read(path).decode().removesuffix("\n").split("\n")
        except FileNotFoundError as error:
            raise _corrupt(path, f"the end of batch {batch_id} is not recorded") from error
        except UnicodeDecodeError as error:
            raise _corrupt(path, "it is no text in UTF-8") from error
        version = _format_version(path, lines[0])
        if len(lines) < 2:
            raise _corrupt(path, "it ends after its first line")
        offsets: dict[str, str | None] = {}
        for number, line in enumerate(lines[2:]):
            source, json = str(number), line
            if version > 1:
                source, colon, json = line.partition(":")
                if not colon:
                    raise _corrupt(path, f"its line {number + 3} has no name of a source")
            if json.startswith("{"):
                try:
                    decode_json(json)
                except msgspec.DecodeError as error:
                    raise _corrupt(path, f"its line {number + 3} is cut off: it is no JSON") from error
            offsets[source] = None if json == _NO_OFFSET else json
        if not offsets:
            raise _corrupt(path, "it has no offset of any source")
        return BatchOffsets(batch_id, version, lines[1].strip(), offsets, path)

    def reads_change_feed(self, source: str, table_id: str) -> bool | None:
        """Whether a source, which reads a table, reads change rows; None where deltaflow has recorded no such
        source under that number or name."""
        record = self._record(source)
        return None if record is None or record.table_id != table_id else record.options.read_change_feed

    def occurrences(self, entry: BatchOffsets, source: str) -> list[str] | None:
        """The numbers by which an entry has a Delta source: several if the query reads it in several places,
        as in a union of a frame with itself. None if that is not known: it is known of deltaflow's streams.
        """
        table_id = reservoir_id(entry.offsets[source] or "")
        same = [name for name, json in entry.offsets.items() if json == entry.offsets[source]]
        # In version 2 of the format each source has one name.
        if len(same) == 1 or entry.format_version > 1:
            return [source]
        of_table = [json for json in entry.offsets.values() if reservoir_id(json or "") == table_id]
        # Spark counts the folders of the sources, and has one for all places of a source.
        folders = [record for name in entry.offsets if (record := self._record(name)) is not None]
        recorded = [record for record in folders if record.table_id == table_id]
        if len(recorded) >= len(of_table):
            return [source]
        return same if len(recorded) == 1 else None

    def path_of(self, log: str, batch_id: int) -> str:
        """Where the entry of a batch is in the log `offsets` or `commits`."""
        return f"{self.directory}/{log}/{batch_id}"

    def _record(self, source: str) -> _Record | None:
        try:
            text = self.store.read(f"{self.directory}/{SOURCES}/{source}/{RECORD}")
            return decode_json(text, as_type=_Record)
        except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
            return None

    def _batches(self, log: str) -> list[int] | None:
        """The batches with an entry in one of the two logs; None without that log."""
        try:
            found = self.store.list_from(f"{self.directory}/{log}", "")
        except (FileNotFoundError, NotADirectoryError):
            return None
        return sorted(int(status.name) for status in found if status.name.isdecimal())

    def _query_id(self) -> str | None:
        path = f"{self.directory}/metadata"
        try:
            text = self.store.read(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if text.startswith(UNFINISHED):
            raise DeltaIllegalStateException(
                f"The checkpoint {self.path} is not whole: the fork, the rebuilding or the copy that was to "
                "make it was interrupted. Make it again, or remove the directory.",
                error_class="DELTA_CORRUPT_STREAM_CHECKPOINT",
                file=path,
            )
        try:
            return decode_json(text, as_type=_Metadata).id
        except msgspec.DecodeError as error:
            raise _corrupt(path, f"it does not name the query's id ({error})") from error


class _RecordedOptions(msgspec.Struct):
    read_change_feed: bool = False


class _Record(msgspec.Struct, rename="camel"):
    """What this module needs of a record (deltaflow.streaming.stream_records)."""

    table_id: str
    options: _RecordedOptions


class _Metadata(msgspec.Struct):
    """Spark's StreamMetadata."""

    id: str


def _interrupted_edit(planned: Sequence[int], edits: Sequence[int]) -> int | None:
    """The last batch of a change that was not made to its end: its note comes first, and the entry of the
    batch before last, without which Spark does not start, after all others."""
    newest = max(edits, default=0)
    is_whole = newest - 1 in planned or any(batch > newest for batch in planned)
    return None if newest < 1 or is_whole else newest


def _format_version(path: str, line: str) -> int:
    number = line.strip().removeprefix("v")
    is_number = number.isdecimal() and len(number) <= _MOST_DIGITS
    if not line.startswith("v") or not is_number or int(number) < 1:
        raise _corrupt(path, f"it begins with {line[:20]!r}, and not with the version of its format")
    if int(number) > _NEWEST_FORMAT:
        raise _corrupt(path, f"it has version {number} of its format, which only a newer Spark knows")
    return int(number)


def _corrupt(path: str, reason: str) -> DeltaIllegalStateException:
    return DeltaIllegalStateException(
        f"The file {path} of the checkpoint cannot be read: {reason}. Restore it from a copy, or rebuild the "
        "checkpoint from the commits of the table that the stream writes.",
        error_class="DELTA_CORRUPT_STREAM_CHECKPOINT",
        file=path,
    )
