"""The actions of a commit (PROTOCOL.md, "Actions") as structs, and their JSON.

A field or an action that these structs do not know survives: it is kept raw and written back.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from deltaflow.errors import CorruptLogError

Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""The protocol's long: an action with a larger number is refused."""
Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""The protocol's int, in the same way."""


_ActionT = TypeVar("_ActionT", bound="Action")


def _parquet() -> str:
    return "parquet"


def _no_options() -> dict[str, str]:
    return {}


class Action(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """Base of all actions. Fields that are None, and so absent from the JSON, have the default None.

    Defaults that must be written all the same come from a factory of ours: msgspec omits a value
    only if it is the default itself or an empty built-in collection from `dict`, `list` or `set`.
    """

    unknown: dict[str, Raw] | UnsetType = field(default=UNSET, name="deltaflow:unknown")
    """The fields that the struct does not have, by their names in the JSON."""


class Format(Action, frozen=True, kw_only=True):
    """How the data files are encoded."""

    provider: str = field(default_factory=_parquet)
    options: dict[str, str] = field(default_factory=_no_options)


class Metadata(Action, frozen=True, kw_only=True):
    """metaData: identity, schema, partitioning and configuration of the table."""

    id: str
    name: str | None = None
    description: str | None = None
    format: Format = field(default_factory=lambda: Format())
    schema_string: str | None = None
    """None, as in the first commits of some writers, says that the table has no columns yet."""
    partition_columns: list[str]
    configuration: dict[str, str] = field(default_factory=_no_options)
    created_time: Long | None = None
    """Milliseconds since the epoch."""


class Protocol(Action, frozen=True, kw_only=True):
    """protocol: what a reader and a writer must implement."""

    min_reader_version: int
    min_writer_version: int
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class DeletionVectorDescriptor(Action, frozen=True, kw_only=True):
    """Which rows of a file are deleted."""

    storage_type: str
    path_or_inline_dv: str
    offset: Int | None = None
    size_in_bytes: Int
    cardinality: Long

    @property
    def unique_id(self) -> str:
        """Identity of the vector (PROTOCOL.md, "Derived Fields")."""
        offset = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{offset}"


class AddFile(Action, frozen=True, kw_only=True):
    """add: a file becomes part of the table. `path` is URI-encoded, relative to the table or absolute."""

    path: str
    partition_values: dict[str, str | None]
    size: Long
    """Bytes."""
    modification_time: Long
    """Milliseconds since the epoch."""
    data_change: bool
    stats: str | None = None
    """Statistics as JSON text."""
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None
    clustering_provider: str | None = None

    def remove(self, deletion_timestamp_ms: int, *, data_change: bool = True) -> RemoveFile:
        """The action that takes this file out of the table."""
        return RemoveFile(
            path=self.path,
            deletion_timestamp=deletion_timestamp_ms,
            data_change=data_change,
            extended_file_metadata=True,
            partition_values=self.partition_values,
            size=self.size,
            stats=self.stats,
            tags=self.tags,
            deletion_vector=self.deletion_vector,
            base_row_id=self.base_row_id,
            default_row_commit_version=self.default_row_commit_version,
        )


class RemoveFile(Action, frozen=True, kw_only=True):
    """remove: a file is no longer part of the table."""

    path: str
    deletion_timestamp: Long | None = None
    """Milliseconds since the epoch."""
    data_change: bool
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: Long | None = None
    """Bytes."""
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None


class AddCDCFile(Action, frozen=True, kw_only=True):
    """cdc: a file that holds what a commit changed."""

    path: str
    partition_values: dict[str, str | None]
    size: Long
    data_change: bool
    tags: dict[str, str | None] | None = None


class SetTransaction(Action, frozen=True, kw_only=True):
    """txn: how far an application has come."""

    app_id: str
    version: Long
    last_updated: Long | None = None
    """Milliseconds since the epoch."""


class DomainMetadata(Action, frozen=True, kw_only=True):
    """domainMetadata: configuration of a named domain."""

    domain: str
    configuration: str
    removed: bool


class CheckpointMetadata(Action, frozen=True, kw_only=True):
    """checkpointMetadata: of which version a V2 checkpoint is. Only in checkpoints."""

    version: Long
    tags: dict[str, str | None] | None = None


class Sidecar(Action, frozen=True, kw_only=True):
    """sidecar: a Parquet file that holds file actions of a V2 checkpoint. Only in checkpoints."""

    path: str
    """A name in _delta_log/_sidecars, or an absolute path; URI-encoded."""
    size_in_bytes: Long
    modification_time: Long
    """Milliseconds since the epoch."""
    tags: dict[str, str | None] | None = None


class CommitInfo(Action, frozen=True, kw_only=True):
    """commitInfo: provenance. A value of another type than these stays among the unknown fields."""

    timestamp: Long | None = None
    """Milliseconds since the epoch."""
    in_commit_timestamp: Long | None = None
    operation: str | None = None
    operation_parameters: dict[str, Any] | None = None
    read_version: Long | None = None
    isolation_level: str | None = None
    is_blind_append: bool | None = None
    data_change: bool | None = None
    operation_metrics: dict[str, Any] | None = None
    user_metadata: str | None = None
    engine_info: str | None = None
    txn_id: str | None = None
    source_offsets: list[str] | None = None
    """For a stream's batch: the offset of each source at its end. Only deltaflow writes and reads this."""
    tags: dict[str, Any] | None = None


class UnknownAction(msgspec.Struct, frozen=True):
    """An action that deltaflow does not know: it is ignored, and written back as it is."""

    name: str
    body: Raw


AnyAction = (
    Metadata
    | Protocol
    | AddFile
    | RemoveFile
    | AddCDCFile
    | SetTransaction
    | DomainMetadata
    | CheckpointMetadata
    | Sidecar
    | CommitInfo
    | UnknownAction
)

_ACTION_TYPES: dict[str, type[Action]] = {
    "add": AddFile,
    "remove": RemoveFile,
    "cdc": AddCDCFile,
    "txn": SetTransaction,
    "metaData": Metadata,
    "protocol": Protocol,
    "domainMetadata": DomainMetadata,
    "checkpointMetadata": CheckpointMetadata,
    "sidecar": Sidecar,
    "commitInfo": CommitInfo,
}
_NAMES = {action_type: name for name, action_type in _ACTION_TYPES.items()}
_Line = msgspec.defstruct(
    "_Line",
    [
        (action_type.__name__, action_type | None, field(default=None, name=name))
        for name, action_type in _ACTION_TYPES.items()
    ],
    forbid_unknown_fields=True,
)
_LINES = msgspec.json.Decoder(_Line)
_FIELDS = msgspec.json.Decoder(dict[str, Raw])
_DECODERS = {
    action_type: msgspec.json.Decoder(action_type)
    for action_type in (*_ACTION_TYPES.values(), Format, DeletionVectorDescriptor)
}
_NESTED: dict[type[Action], dict[str, type[Action]]] = {
    Metadata: {"format": Format},
    AddFile: {"deletionVector": DeletionVectorDescriptor},
    RemoveFile: {"deletionVector": DeletionVectorDescriptor},
}
_PROPERTIES: dict[type[Action], str] = {Metadata: "configuration", Format: "options"}
_ENCODER = msgspec.json.Encoder()


def decode_actions(data: bytes, file: str) -> list[AnyAction]:
    """The actions of a commit file in its order; CorruptLogError naming `file` and the line."""
    actions: list[AnyAction] = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.isspace() or not line:
            continue
        try:
            found = _decode_line(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CorruptLogError(
                f"Line {number} of {file} is not an action of a Delta log: {error}. The file was damaged or "
                "was not written by a Delta writer; restore it from a copy.",
                file=file,
                line=number,
            ) from error
        known = sum(not isinstance(action, UnknownAction) for action in found)
        if known > 1:
            raise CorruptLogError(
                f"Line {number} of {file} holds {known} actions instead of one. Restore it from a copy.",
                file=file,
                line=number,
            )
        actions.extend(found)
    return actions


def encode_actions(actions: Iterable[AnyAction]) -> bytes:
    """The content of a commit file: one JSON object a line."""
    content = io.BytesIO()  # bytes.join would keep all lines beside their whole
    for action in actions:
        content.write(_encode_line(action))
        content.write(b"\n")
    return content.getvalue()


def encode_body(action: Action) -> Raw:
    """The JSON object of an action, without its name."""
    return Raw(_ENCODER.encode(action if _is_plain(action) else _encode_fields(action)))


def name_and_body(action: AnyAction) -> tuple[str, Raw]:
    """The name of an action in a commit file, and its JSON object there."""
    if isinstance(action, UnknownAction):
        return action.name, action.body
    return _NAMES[type(action)], encode_body(action)


def fields_beyond(file: AddFile | RemoveFile, names: Iterable[str]) -> str | None:
    """The JSON object of a file action's fields other than those named; None without any.

    A deletion vector with fields that the protocol does not know is in it, too.
    """
    vector = file.deletion_vector
    is_known = vector is None or vector.unknown is UNSET
    is_clustered = isinstance(file, AddFile) and file.clustering_provider is not None
    if is_known and file.unknown is UNSET and not is_clustered:
        return None
    fields = _encode_fields(file)
    for name in names:
        if is_known or name != "deletionVector":
            fields.pop(name, None)
    return _ENCODER.encode(fields).decode() if fields else None


def add_from_fields(fields: dict[str, Any], beyond: str | None) -> AddFile:
    """The add action of these JSON fields and of a `fields_beyond`."""
    return _from_fields(AddFile, fields, beyond)


def remove_from_fields(fields: dict[str, Any], beyond: str | None) -> RemoveFile:
    """The remove action of these JSON fields and of a `fields_beyond`."""
    return _from_fields(RemoveFile, fields, beyond)


def _from_fields(action_type: type[_ActionT], fields: dict[str, Any], beyond: str | None) -> _ActionT:
    if beyond is None:
        return msgspec.convert(fields, action_type)
    raw = _ENCODER.encode({**fields, **_FIELDS.decode(beyond)})
    action: _ActionT = _decode_with_unknown_fields(action_type, Raw(raw))
    return action


def _decode_line(line: bytes) -> list[AnyAction]:
    # msgspec does not check the text of values that stay raw.
    if not line.isascii():
        line.decode()
    try:
        values = msgspec.structs.astuple(_LINES.decode(line))
    except msgspec.ValidationError:
        return [
            _decode_with_unknown_fields(_ACTION_TYPES[name], body)
            if name in _ACTION_TYPES
            else UnknownAction(name, Raw(bytes(body)))
            for name, body in _FIELDS.decode(line).items()
            if bytes(body) != b"null"
        ]
    return [value for value in values if value is not None]


def _decode_with_unknown_fields(action_type: type[Action], body: Raw) -> Any:
    """One action whose JSON has fields beyond the struct's, or is wrong (msgspec.ValidationError).

    Writers may say by null that a field or a property is not set.
    """
    fields = _FIELDS.decode(body)
    attributes, properties = _attributes(action_type), _PROPERTIES.get(action_type)
    fields = {name: raw for name, raw in fields.items() if name not in attributes or bytes(raw) != b"null"}
    nested = {
        name: _decode_with_unknown_fields(inner, fields.pop(name))
        for name, inner in _NESTED.get(action_type, {}).items()
        if name in fields
    }
    if properties in fields:
        given = _FIELDS.decode(fields[properties])
        fields[properties] = Raw(_ENCODER.encode({k: v for k, v in given.items() if bytes(v) != b"null"}))
    known = {name: raw for name, raw in fields.items() if _fits(action_type, name, raw)}
    # A Raw keeps the whole line in memory, its copy does not.
    unknown = {name: Raw(bytes(raw)) for name, raw in fields.items() if name not in known}
    action = _DECODERS[action_type].decode(_ENCODER.encode(known))
    if unknown:
        nested["unknown"] = unknown
    return msgspec.structs.replace(
        action, **{_attribute(action_type, name): value for name, value in nested.items()}
    )


def _fits(action_type: type[Action], name: str, raw: Raw) -> bool:
    if name not in _attributes(action_type):
        return False
    if action_type is not CommitInfo:
        return True
    try:
        _DECODERS[action_type].decode(_ENCODER.encode({name: raw}))
    except msgspec.ValidationError:
        return False
    return True


def _attribute(action_type: type[Action], name: str) -> str:
    return _attributes(action_type).get(name, name)


@cache
def _attributes(action_type: type[Action]) -> dict[str, str]:
    """The names of a struct's attributes by their names in the JSON."""
    return {encoded.encode_name: encoded.name for encoded in msgspec.structs.fields(action_type)}


def _encode_line(action: AnyAction) -> bytes:
    if isinstance(action, UnknownAction):
        return _ENCODER.encode({action.name: action.body})
    name = _NAMES[type(action)]
    if _is_plain(action):
        return _ENCODER.encode({name: action})
    return _ENCODER.encode({name: _encode_fields(action)})


def _nested_attributes(action: Action) -> dict[str, Action]:
    values = {name: getattr(action, _attribute(type(action), name)) for name in _NESTED.get(type(action), {})}
    return {name: value for name, value in values.items() if value is not None}


def _is_plain(action: Action) -> bool:
    return action.unknown is UNSET and all(
        value.unknown is UNSET for value in _nested_attributes(action).values()
    )


def _encode_fields(action: Action) -> dict[str, Any]:
    known = msgspec.structs.replace(action, unknown=UNSET)
    fields: dict[str, Any] = dict(_FIELDS.decode(_ENCODER.encode(known)))
    fields.update({name: _encode_fields(value) for name, value in _nested_attributes(action).items()})
    if action.unknown is not UNSET:
        fields.update(action.unknown)
    return fields
