"""_last_checkpoint: where the newest checkpoint is, as a hint (PROTOCOL.md, "Last Checkpoint File")."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec

from deltaflow.errors import StoreError
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.untrusted_json import decode_json

LAST_CHECKPOINT = "_last_checkpoint"
_LOG = logging.getLogger(__name__)


class _Hint(msgspec.Struct):
    version: int


def hinted_version(log: LogFiles) -> int:
    """The version that the hint names; 0 without a hint, and, with a warning, if it is unreadable."""
    path = f"{log.directory}/{LAST_CHECKPOINT}"
    try:
        return max(0, decode_json(log.store.read(path), as_type=_Hint).version)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except (msgspec.DecodeError, StoreError) as error:
        _LOG.warning("%s is ignored, the log is listed from its start: %s", path, error)
        return 0


class V2Checkpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a V2 checkpoint is (delta-spark's LastCheckpointV2): the name of its file, and its status."""

    path: str
    size_in_bytes: int
    modification_time: int
    """Milliseconds since the epoch."""


class LastCheckpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The content of the hint, without its checksum."""

    version: int
    size: int
    """Number of actions."""
    parts: int | None = None
    """Of a multi-part checkpoint."""
    size_in_bytes: int
    num_of_add_files: int
    checkpoint_schema: dict[str, Any] | None = None
    """As Spark's schema JSON; of a Parquet checkpoint."""
    v2_checkpoint: V2Checkpoint | None = None


def write_hint(log: LogFiles, checkpoint: LastCheckpoint) -> None:
    """Let the hint name this checkpoint, unless it names a later one that is there."""
    hint = hinted_version(log)
    if hint > checkpoint.version and any(other.version >= hint for other in log.list(hint).checkpoints):
        return
    content = msgspec.to_builtins(checkpoint)
    with log.store.open_output(f"{log.directory}/{LAST_CHECKPOINT}") as file:
        file.write(msgspec.json.encode({**content, "checksum": json_checksum(content)}))


def json_checksum(content: dict[str, Any]) -> str:
    """MD5 of a JSON object (PROTOCOL.md, "JSON checksum"), whose own `checksum` is left out."""
    own = {name: value for name, value in content.items() if name != "checksum"}
    canonical = ",".join(f"{path}={value}" for path, value in sorted(_leaves("", own)))
    return hashlib.md5(canonical.encode(), usedforsecurity=False).hexdigest()


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Canonical paths and values of the scalars in a JSON value."""
    before = f"{path}+" if path else ""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(before + _canonical(name), item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(f"{before}{index}", item)
    else:
        yield path, _canonical(value)


def _canonical(scalar: Any) -> str:
    if isinstance(scalar, str):
        return f'"{quote(scalar, safe="")}"'
    return msgspec.json.encode(scalar).decode()
