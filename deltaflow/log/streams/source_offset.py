"""Offsets of the streaming source: delta-spark's JSON, so that a checkpoint may change hands.

An offset says how far a stream has come: all files up to `index` of version `reservoir_version` are
done, in log order for a commit, by (modification time, path) for the initial snapshot. Source:
delta-spark's DeltaSourceOffset.
"""

from __future__ import annotations

from typing import Any

import msgspec

from deltaflow.errors import DeltaIllegalStateException
from deltaflow.log.untrusted_json import decode_json

BASE_INDEX = -100
"""Before everything in a version; -1 in the JSON of source version 1."""
_BASE_INDEX_V1 = -1
METADATA_CHANGE = -20
"""Before the files of a version whose commit changes the metadata: the batch up to here is the last one in
the stream's old schema (see schema_log)."""
POST_METADATA_CHANGE = -19
"""Behind that place: a batch without files, with whose offset Spark says that the one before is done."""
BARRIERS = (METADATA_CHANGE, POST_METADATA_CHANGE)
_SOURCE_VERSION = 1
# Version 3 says that the index is one of the barriers; 2 was never released.
_SOURCE_VERSION_OF_BARRIERS = _NEWEST_SOURCE_VERSION = 3
INITIAL_SNAPSHOT_ORDER = [("modification_time", "ascending"), ("path", "ascending")]
"""The order in which the files of an initial snapshot are numbered, as Arrow's sort keys."""


class DeltaSourceOffset(msgspec.Struct, frozen=True, order=False):
    """(reservoir_version, index) of the table `reservoir_id`.

    `is_starting_version` is delta-spark's name for "inside the initial snapshot"; it has nothing to do
    with the option startingVersion.
    """

    reservoir_id: str
    reservoir_version: int
    index: int
    is_starting_version: bool

    def json(self) -> str:
        """The offset as it stands in `<checkpoint>/offsets`."""
        return msgspec.json.encode(
            {
                "sourceVersion": _SOURCE_VERSION_OF_BARRIERS if self.is_barrier else _SOURCE_VERSION,
                "reservoirId": self.reservoir_id,
                "reservoirVersion": self.reservoir_version,
                "index": _BASE_INDEX_V1 if self.index == BASE_INDEX else self.index,
                "isStartingVersion": self.is_starting_version,
            }
        ).decode()

    @property
    def is_barrier(self) -> bool:
        """Whether this is a place of a metadata change, and not of a file."""
        return self.index in BARRIERS

    @property
    def position(self) -> tuple[int, int]:
        """The sort key of the offsets of one table."""
        return (self.reservoir_version, self.index)


def check_advance(start: DeltaSourceOffset, end: DeltaSourceOffset, path: str) -> None:
    """DeltaIllegalStateException if a stream that goes from `start` to `end` would go back."""
    if end.is_starting_version and not start.is_starting_version:
        moved = "'isInitialSnapshot' flipped incorrectly"
    elif end.reservoir_version < start.reservoir_version:
        moved = "'reservoirVersion' moved back"
    elif end.position < start.position:
        moved = "'index' moved back"
    else:
        return
    raise DeltaIllegalStateException(
        f"Found invalid offsets: {moved}. Previous: {start.json()}, current: {end.json()}. Restore the "
        "offsets of the checkpoint from a copy, or restart with a new checkpoint location",
        table=path,
    )


class _Json(msgspec.Struct, rename="camel"):
    reservoir_id: str
    reservoir_version: int
    index: int
    is_starting_version: bool


def parse_offset(json: str, table_id: str, path: str) -> DeltaSourceOffset:
    """The offset of a checkpoint, checked to be one of the table; DeltaIllegalStateException otherwise."""
    offset = decode_offset(json, path)
    if offset.reservoir_id != table_id:
        raise DeltaIllegalStateException(
            error_class="DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
            new_table_id=table_id,
            old_table_id=offset.reservoir_id,
            table=path,
        )
    return offset


def decode_offset(json: str, path: str) -> DeltaSourceOffset:
    """The offset of any table; DeltaIllegalStateException if it is none.

    `path` is for the error.
    """
    _check_source_version(json, path)
    try:
        parsed = decode_json(json, as_type=_Json)
    except msgspec.MsgspecError as error:
        raise _bad_format(json, path) from error
    index = BASE_INDEX if parsed.index == _BASE_INDEX_V1 else parsed.index
    return DeltaSourceOffset(parsed.reservoir_id, parsed.reservoir_version, index, parsed.is_starting_version)


def _check_source_version(json: str, path: str) -> None:
    try:
        fields: Any = decode_json(json)
    except msgspec.MsgspecError as error:
        raise _bad_format(json, path) from error
    if not isinstance(fields, dict):
        raise _bad_format(json, path)
    version = fields.get("sourceVersion", 0)
    if not isinstance(version, int) or isinstance(version, bool):
        raise _bad_format(json, path)
    if version > _NEWEST_SOURCE_VERSION:
        raise DeltaIllegalStateException(
            error_class="DELTA_INVALID_FORMAT_FROM_SOURCE_VERSION",
            expected_version=_NEWEST_SOURCE_VERSION,
            real_version=version,
            table=path,
        )
    if version < 1 or version == 2:
        raise DeltaIllegalStateException(
            error_class="DELTA_INVALID_SOURCE_VERSION", source_version=version, table=path
        )


def _bad_format(json: str, path: str) -> DeltaIllegalStateException:
    return DeltaIllegalStateException(
        error_class="DELTA_INVALID_SOURCE_OFFSET_FORMAT", offset=json, table=path
    )
