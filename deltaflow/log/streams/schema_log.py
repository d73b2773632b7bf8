"""The schema log of a stream: the schemas in which it has read its table, one numbered file for each.

A stream with the option schemaTrackingLocation reads the table in the schema of the newest entry. The files
are delta-spark's, so that a stream may change hands. Source: delta-spark's DeltaSourceMetadataTrackingLog and
Spark's HDFSMetadataLog.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self

import msgspec

from deltaflow.errors import DeltaAnalysisException, DeltaError, DeltaIllegalStateException
from deltaflow.log.observer import observe
from deltaflow.log.protocol.actions import Metadata, Protocol
from deltaflow.log.protocol.schema import schema_from_string
from deltaflow.log.untrusted_json import decode_json
from deltaflow.store import store_for

_FORMAT = "v1"
SCHEMA_LOG = "_schema_log_"
"""The beginning of the name of a schema log's directory; the id of the table follows."""


class TrackedMetadata(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, dict=True
):
    """An entry of a schema log: a table's schema, configuration and protocol at one version."""

    table_id: str
    delta_commit_version: int
    """The version whose metadata this is, or one later: no version in between has changed it."""
    data_schema_json: str
    """The schema of the table, its partition columns included."""
    partition_schema_json: str
    source_metadata_path: str
    """The directory of the source below its query's checkpoint, as Spark names it."""
    table_configurations: dict[str, str] | None = None
    protocol_json: str | None = None
    """The action `protocol` as it stands in a commit."""
    previous_metadata_seq_num: int | None = None
    """The number of the entry before this one, if that is not the number before: -1 for none."""

    @cached_property
    def metadata(self) -> Metadata:
        """The entry as the table's metaData, as far as reading needs it."""
        return Metadata(
            id=self.table_id,
            schema_string=self.data_schema_json,
            partition_columns=decode_json(self.partition_schema_json, as_type=_Struct).names,
            configuration=self.table_configurations or {},
        )

    @cached_property
    def protocol(self) -> Protocol | None:
        """The table's protocol; None in an entry of an older release."""
        if self.protocol_json is None:
            return None
        return decode_json(self.protocol_json, as_type=_ProtocolAction).protocol


class _Field(msgspec.Struct):
    name: str


class _Struct(msgspec.Struct):
    fields: list[_Field]

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]


class _ProtocolAction(msgspec.Struct):
    protocol: Protocol


class _RawStruct(msgspec.Struct):
    fields: list[msgspec.Raw]


def tracked_metadata(
    metadata: Metadata, protocol: Protocol, version: int, source_metadata_path: str
) -> TrackedMetadata:
    """The entry for a table that has these actions at a version."""
    return TrackedMetadata(
        table_id=metadata.id,
        delta_commit_version=version,
        source_metadata_path=source_metadata_path,
        **metadata_fields(metadata),
        **protocol_fields(protocol),
    )


def metadata_fields(metadata: Metadata) -> dict[str, Any]:
    """The fields of an entry that the action metaData gives."""
    schema = metadata.schema_string or '{"type":"struct","fields":[]}'
    fields = decode_json(schema, as_type=_RawStruct).fields
    raw = {decode_json(field, as_type=_Field).name: field for field in fields}
    partition_fields = [raw[name] for name in metadata.partition_columns]
    return {
        "data_schema_json": schema,
        "partition_schema_json": msgspec.json.encode({"type": "struct", "fields": partition_fields}).decode(),
        "table_configurations": metadata.configuration,
    }


def protocol_fields(protocol: Protocol) -> dict[str, Any]:
    """The fields of an entry that the action protocol gives."""
    return {"protocol_json": msgspec.json.encode(_ProtocolAction(protocol)).decode()}


class SchemaLog(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schema log at its newest entry."""

    directory: str
    """Of the log itself: `<schemaTrackingLocation>/_schema_log_<table id>`."""
    source_metadata_path: str
    """That of the source that uses the log now; empty as long as no query has started."""
    number: int = -1
    """The number of the newest entry; -1 without one."""
    current: TrackedMetadata | None = None
    before: TrackedMetadata | None = None
    """The entry that the newest one has followed."""
    is_dry: bool = False
    """Whether new entries are only remembered: for a plan of what a stream will do."""

    @classmethod
    def read(
        cls, location: str, table_id: str, tracking_id: str | None, source_metadata_path: str = ""
    ) -> Self:
        """The log at a schemaTrackingLocation for a table and, of several sources, the one with this id.

        DeltaIllegalStateException (DELTA_STREAMING_SCHEMA_LOG_…) if it is of another table, or cannot be
        read.
        """
        suffix = "" if tracking_id is None else f"_{tracking_id}"
        log = cls(
            directory=f"{location.rstrip('/')}/{SCHEMA_LOG}{table_id}{suffix}",
            source_metadata_path=source_metadata_path,
        )
        number = max(log._numbers(), default=-1)
        current = log._entry(number)
        if current is None:
            return log
        if current.table_id != table_id:
            raise DeltaAnalysisException(
                error_class="DELTA_STREAMING_SCHEMA_LOG_INCOMPATIBLE_DELTA_TABLE_ID",
                persisted_id=current.table_id,
                table_id=table_id,
                file=log.directory,
            )
        before = current.previous_metadata_seq_num
        return msgspec.structs.replace(
            log, number=number, current=current, before=log._entry(number - 1 if before is None else before)
        )

    def with_entry(self, entry: TrackedMetadata, *, replaces_current: bool = False, table: str = "") -> Self:
        """The log after a new entry, which is written; `table` is the path of its table, for the error.

        An entry that replaces the current one follows the one before that. DeltaAnalysisException
        (DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT) if another source has written an entry meanwhile.
        """
        before = self.current
        if replaces_current and self.current is not None:
            before = self.before
            pointer = self.current.previous_metadata_seq_num
            number = self.number - 1 if pointer is None else pointer
            entry = msgspec.structs.replace(entry, previous_metadata_seq_num=number)
        if entry == self.current:
            return self
        number = self.number + 1
        if not self.is_dry:
            self._write(number, entry, table)
        return msgspec.structs.replace(self, number=number, current=entry, before=before)

    def _write(self, number: int, entry: TrackedMetadata, table: str) -> None:
        # Of two processes at the same moment, the one that loses is stopped at its next start.
        store, directory = store_for(self.directory, single_writer=True)
        observe("schema entry prepared", path=directory)
        store.make_directory(directory)
        # Hadoop's checksum of a file that was there once would refuse the new one.
        store.delete(f"{directory}/.{number}.crc")
        try:
            store.put_if_absent(f"{directory}/{number}", f"{_FORMAT}\n".encode() + msgspec.json.encode(entry))
        except FileExistsError as error:
            raise DeltaAnalysisException(
                error_class="DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT",
                location=self.directory,
                streamed_table=table,
            ) from error
        observe("schema entry put", path=directory)

    def _numbers(self) -> list[int]:
        store, directory = store_for(self.directory)
        try:
            found = store.list_from(directory, "")
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [int(status.name) for status in found if status.name.isdecimal()]

    def _entry(self, number: int) -> TrackedMetadata | None:
        if number < 0:
            return None
        store, directory = store_for(self.directory)
        path = f"{directory}/{number}"
        try:
            version, _, json = store.read(path).decode().partition("\n")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise _unreadable(path) from error
        try:
            if version != _FORMAT:
                raise _unreadable(path)
            entry = decode_json(json, as_type=TrackedMetadata)
            assert entry.protocol is None or entry.protocol.min_reader_version
        except msgspec.MsgspecError as error:
            raise _unreadable(path) from error
        try:
            schema_from_string(entry.metadata.schema_string)
        except (DeltaError, msgspec.MsgspecError) as error:
            raise DeltaIllegalStateException(
                error_class="DELTA_STREAMING_SCHEMA_LOG_PARSE_SCHEMA_FAILED", file=path
            ) from error
        return entry


def _unreadable(path: str) -> DeltaIllegalStateException:
    return DeltaIllegalStateException(error_class="DELTA_STREAMING_SCHEMA_LOG_DESERIALIZE_FAILED", file=path)
