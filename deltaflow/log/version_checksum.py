"""Version checksum files (PROTOCOL.md, "Version Checksum File"): what a writer says that a version comes to.

The log alone is the truth. A checksum only serves to doubt: where it says something else, then writer or
reader of the log is wrong, and that is told.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from deltaflow.errors import StoreError
from deltaflow.log.log_files import LogFiles
from deltaflow.log.snapshot import Snapshot

_LOG = logging.getLogger(__name__)


def checksum_differences(log: LogFiles, snapshot: Snapshot) -> dict[str, tuple[Any, Any]] | None:
    """What the checksum of a snapshot's version says otherwise: by its name, the log's value and its own.

    None without a checksum, or with one that cannot be read. Reads one file.
    """
    path = f"{log.directory}/{snapshot.version:020}.crc"
    try:
        said = msgspec.json.decode(log.store.read(path), type=dict[str, Any])
    except FileNotFoundError:
        return None
    except (StoreError, OSError, msgspec.DecodeError) as error:
        _LOG.warning("The checksum %s cannot be read: %s", path, error)
        return None
    differences: dict[str, tuple[Any, Any]] = {}
    for name, value in _values(snapshot).items():
        action, _, field = name.rpartition(".")
        own = said.get(action) if action else said
        if isinstance(own, Mapping) and own.get(field, value) != value:
            differences[name] = value, own[field]
    return differences


def warn_of_differences(log: LogFiles, snapshot: Snapshot) -> None:
    """A warning in this module's log where a version's checksum says something else than the log."""
    differences = checksum_differences(log, snapshot)
    if differences:
        said = [f"{name} is {of_log!r}, there {own!r}" for name, (of_log, own) in differences.items()]
        _LOG.warning(
            "Version %s of %s is not what its checksum file says. By the log, which counts: %s",
            snapshot.version,
            log.path,
            "; ".join(said),
        )


def _values(snapshot: Snapshot) -> dict[str, Any]:
    metadata, protocol = snapshot.metadata, snapshot.protocol
    return {
        "numFiles": snapshot.num_files,
        "tableSizeBytes": snapshot.size_in_bytes,
        "metadata.id": metadata.id,
        "metadata.schemaString": metadata.schema_string,
        "metadata.partitionColumns": metadata.partition_columns,
        "metadata.configuration": metadata.configuration,
        "protocol.minReaderVersion": protocol.min_reader_version,
        "protocol.minWriterVersion": protocol.min_writer_version,
    }
