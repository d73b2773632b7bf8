"""Deletion vectors for tests, written and read by hand."""

from __future__ import annotations

import json
import posixpath
import time
import uuid
import zlib
from base64 import b85decode, b85encode
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pyroaring import BitMap64

from deltaflow.log import AddFile, DeltaLog, RemoveFile, add_files, encode_actions, remove_files

MAGIC = (1681511377).to_bytes(4, "little")
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_FROM_B85, _TO_B85 = bytes.maketrans(_B85, _Z85), bytes.maketrans(_Z85, _B85)
_FEATURES = ["deletionVectors"]


def z85(content: bytes) -> str:
    return b85encode(content, pad=True).translate(_FROM_B85).decode()


def of_z85(text: str) -> bytes:
    return b85decode(text.encode().translate(_TO_B85))


def bitmap(rows: Iterable[int]) -> bytes:
    return MAGIC + BitMap64(rows).serialize()


def described(kind: str, text: str, size: int, rows: int, offset: int | None = None) -> dict[str, Any]:
    return {
        "storageType": kind,
        "pathOrInlineDv": text,
        "offset": offset,
        "sizeInBytes": size,
        "cardinality": rows,
    }


def inline(rows: Iterable[int]) -> dict[str, Any]:
    content = bitmap(rows)
    return described("i", z85(content), len(content), len(set(rows)))


def marked_rows(vector: Mapping[str, Any], read: Callable[[str], bytes]) -> set[int]:
    """The rows that a vector marks, as the log describes it; `read` reads a file of the table by its path."""
    text, size = vector["pathOrInlineDv"], vector["sizeInBytes"]
    if vector["storageType"] == "i":
        content = of_z85(text)[:size]
    else:
        assert vector["storageType"] == "u"
        prefix, name = text[:-20], uuid.UUID(bytes=of_z85(text[-20:]))
        start = vector["offset"]
        file = read(posixpath.join(prefix, f"deletion_vector_{name}.bin"))
        assert int.from_bytes(file[start : start + 4], "big") == size
        content = file[start + 4 : start + 4 + size]
        assert int.from_bytes(file[start + 4 + size : start + 8 + size], "big") == zlib.crc32(content)
    assert content.startswith(MAGIC)
    found = set(BitMap64.deserialize(content[len(MAGIC) :]))
    assert len(found) == vector["cardinality"]
    return found


class Bin:
    """A file of deletion vectors in a table."""

    def __init__(self, table: Path, prefix: str = "") -> None:
        self.id = uuid.uuid4()
        self.content = bytearray(b"\1")
        self.text = prefix + z85(self.id.bytes)
        self.path = table / prefix / f"deletion_vector_{self.id}.bin"

    def add(self, rows: Iterable[int], *, gap: int = 0) -> dict[str, Any]:
        self.content += bytes(gap)
        content, offset = bitmap(rows), len(self.content)
        self.content += len(content).to_bytes(4, "big") + content + zlib.crc32(content).to_bytes(4, "big")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(self.content)
        return described("u", self.text, len(content), len(BitMap64(rows)), offset)


def mark_deleted(
    table: str,
    rows: Mapping[str, Iterable[int]] | Iterable[int],
    *,
    is_inline: bool = False,
    data_change: bool = True,
) -> int:
    """Commits as another writer would that rows of files are deleted, and returns the version.

    `rows` has the positions of all deleted rows of a file by its path in the log, or those of every file.
    All vectors are in one file, or inline. The first such commit upgrades the protocol.
    """
    log = DeltaLog.for_table(table)
    snapshot = log.snapshot()
    by_path = dict(rows) if isinstance(rows, Mapping) else {path: list(rows) for path in paths(table)}
    shared = Bin(Path(table))
    actions: list[AddFile | RemoveFile] = []
    lines: list[dict[str, Any]] = [
        {"commitInfo": {"operation": "DELETE", "timestamp": time.time_ns() // 1_000_000}}
    ]
    if "deletionVectors" not in (snapshot.protocol.reader_features or ()):
        lines.append({"protocol": _upgraded(snapshot.protocol)})
    for path, deleted in by_path.items():
        vector = inline(list(deleted)) if is_inline else shared.add(deleted)
        files = snapshot.files.filter([found == path for found in snapshot.files["path"].to_pylist()])
        files = snapshot.with_stats(files)
        actions += remove_files(files, time.time_ns() // 1_000_000, data_change=data_change)
        [add] = add_files(files, data_change=data_change)
        fields = json.loads(encode_actions([add]))["add"] | {"deletionVector": vector}
        if add.stats is not None:
            fields["stats"] = json.dumps(json.loads(add.stats) | {"tightBounds": False})
        lines.append({"add": {name: value for name, value in fields.items() if value is not None}})
    version = snapshot.version + 1
    content = "".join(json.dumps(line) + "\n" for line in lines).encode() + encode_actions(actions)
    commit = Path(table) / "_delta_log" / f"{version:020}.json"
    with commit.open("xb") as file:
        file.write(content)
    return version


def _upgraded(protocol: Any) -> dict[str, Any]:
    named = {*(protocol.writer_features or ("appendOnly", "invariants"))}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": sorted({*(protocol.reader_features or ()), *_FEATURES}),
        "writerFeatures": sorted({*named, *_FEATURES}),
    }


def paths(table: str) -> list[str]:
    """The paths of a table's files, in the order of their names."""
    found: list[str] = DeltaLog.for_table(table).snapshot().files["path"].to_pylist()
    return sorted(found, key=posixpath.basename)
