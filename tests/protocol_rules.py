"""What PROTOCOL.md asks of the commits and checkpoints that deltaflow has written, checked without deltaflow.

`broken_rules` reads a log as plain files. It looks at the commits that say by `engineInfo` that deltaflow has
made them, and at the checkpoints of logs that deltaflow has written alone.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

Action = dict[str, Any]
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_KNOWN = {"add", "remove", "cdc", "txn", "metaData", "protocol", "domainMetadata", "commitInfo"}
_REQUIRED = {
    "add": {"path", "partitionValues", "size", "modificationTime", "dataChange"},
    "remove": {"path", "dataChange"},
    "cdc": {"path", "partitionValues", "size", "dataChange"},
    "txn": {"appId", "version"},
    "metaData": {"id", "format", "schemaString", "partitionColumns", "configuration"},
    "protocol": {"minReaderVersion", "minWriterVersion"},
    "domainMetadata": {"domain", "configuration", "removed"},
    "commitInfo": {"timestamp", "operation"},
}
_LEGACY_WRITERS = {
    "appendOnly": 2,
    "invariants": 2,
    "checkConstraints": 3,
    "changeDataFeed": 4,
    "generatedColumns": 4,
    "columnMapping": 5,
    "identityColumns": 6,
}
_FOR_READERS = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "typeWidening",
    "typeWidening-preview",
    "variantType",
    "variantType-preview",
    "variantShredding",
    "variantShredding-preview",
    "catalogManaged",
}
_NEEDS_DOMAINS = {"rowTracking", "clustering"}


@dataclass
class _Table:
    """The state that one commit leaves to the next."""

    folder: Path
    protocol: Action | None = None
    metadata: Action | None = None
    files: dict[tuple[str, str], Action] = field(default_factory=dict)
    highest_row_id: int = -1
    """By the domain delta.rowTracking."""
    is_complete: bool = False
    """Whether every commit from the first on was seen, all by deltaflow."""
    timestamp: int | None = None
    """The in-commit timestamp of the version before."""

    @property
    def features(self) -> set[str]:
        protocol = self.protocol or {}
        if protocol.get("minWriterVersion") == 7:
            return {*protocol.get("writerFeatures", ()), *protocol.get("readerFeatures", ())}
        return {
            name
            for name, version in _LEGACY_WRITERS.items()
            if version <= protocol.get("minWriterVersion", 0)
            and (name not in _FOR_READERS or protocol.get("minReaderVersion", 0) >= 2)
        }

    @property
    def configuration(self) -> dict[str, str]:
        return dict((self.metadata or {}).get("configuration") or {})

    def is_on(self, name: str) -> bool:
        return self.configuration.get(name, "").lower() == "true"


def broken_rules(log: Path) -> Iterator[str]:
    """A sentence for each rule that the log breaks."""
    table = _Table(log.parent)
    names = {int(found[1]): file for file in log.iterdir() if (found := _COMMIT.fullmatch(file.name))}
    checkpoints = {
        int(found[1]): file for file in log.iterdir() if (found := _CHECKPOINT.fullmatch(file.name))
    }
    before = -1
    for version in sorted(names):
        lines = names[version].read_bytes().splitlines()
        try:
            actions = [json.loads(line) for line in lines if line.strip()]
        except ValueError:
            return  # written by hand, to be broken
        table.is_complete = version == before + 1 and (version == 0 or table.is_complete)
        before = version
        if not all(isinstance(action, dict) for action in actions):
            return
        infos = [action["commitInfo"] for action in actions if isinstance(action.get("commitInfo"), dict)]
        is_ours = bool(infos) and str(infos[0].get("engineInfo", "")).startswith("deltaflow")
        table.is_complete = table.is_complete and is_ours
        try:
            _follow(table, actions)
        except (KeyError, TypeError, AttributeError, ValueError):
            return  # another writer's, or broken on purpose
        if is_ours:
            for problem in _problems(table, actions, version):
                yield f"{names[version].name}: {problem}"
        if table.is_complete and version in checkpoints:
            for problem in _problems_of_checkpoint(table, checkpoints[version]):
                yield f"{checkpoints[version].name}: {problem}"


def _follow(table: _Table, actions: list[Action]) -> None:
    for action in actions:
        table.protocol = action.get("protocol") or table.protocol
        table.metadata = action.get("metaData") or table.metadata
        domain = action.get("domainMetadata") or {}
        if domain.get("domain") == "delta.rowTracking":
            mark = -1 if domain["removed"] else json.loads(domain["configuration"])["rowIdHighWaterMark"]
            table.highest_row_id = mark
    for action in actions:
        if remove := action.get("remove"):
            table.files.pop(_key(remove), None)
    for action in actions:
        if add := action.get("add"):
            table.files[_key(add)] = add


def _key(file: Action) -> tuple[str, str]:
    vector = file.get("deletionVector") or {}
    offset = "" if vector.get("offset") is None else f"@{vector['offset']}"
    return unquote(file["path"]), f"{vector.get('storageType', '')}{vector.get('pathOrInlineDv', '')}{offset}"


def _problems(table: _Table, actions: list[Action], version: int) -> Iterator[str]:
    for action in actions:
        if len(action) != 1 or not action.keys() <= _KNOWN:
            yield f"a line has the actions {sorted(action)}"
        for name, body in action.items():
            missing = _REQUIRED.get(name, set()) - body.keys()
            if missing:
                yield f"{name} lacks {sorted(missing)}"
    bodies = [(name, body) for action in actions for name, body in action.items()]
    for name in ("metaData", "protocol", "commitInfo"):
        if sum(found == name for found, _ in bodies) > 1:
            yield f"there is more than one {name}"
    if version == 0 and not {"metaData", "protocol"} <= {name for name, _ in bodies}:
        yield "the first commit lacks metaData or protocol"
    for what, names in {
        "application": [body["appId"] for name, body in bodies if name == "txn"],
        "domain": [body["domain"] for name, body in bodies if name == "domainMetadata"],
        "file": [str(_key(body)) for name, body in bodies if name in ("add", "remove")],
    }.items():
        if len(set(names)) < len(names):
            yield f"a commit names one {what} twice"
    if table.protocol is None or table.metadata is None:
        return
    changed = any(name in ("metaData", "protocol") for name, _ in bodies)
    if changed:
        yield from _problems_of_protocol(table.protocol)
    yield from _problems_of_metadata(table, table.metadata, changed=changed)
    yield from _problems_of_files(table, bodies)
    yield from _problems_of_changes(table, bodies)
    yield from _problems_of_row_ids(table, bodies)
    yield from _problems_of_times(table, bodies)
    if any(name == "domainMetadata" for name, _ in bodies) and "domainMetadata" not in table.features:
        yield "domainMetadata without the feature"


def _problems_of_protocol(protocol: Action) -> Iterator[str]:
    reader, writer = protocol["minReaderVersion"], protocol["minWriterVersion"]
    readers, writers = protocol.get("readerFeatures"), protocol.get("writerFeatures")
    if (readers is not None) != (reader == 3) or (writers is not None) != (writer == 7):
        yield f"versions {reader} and {writer} do not go with the lists {readers} and {writers}"
    if reader == 3 and writer != 7:
        yield f"reader version 3 with writer version {writer}"
    if not set(readers or ()) <= set(writers or ()):
        yield f"reader features {readers} are not all among the writer features {writers}"
    if reader == 3:
        unlisted = set(writers or ()) & _FOR_READERS - set(readers or ())
        if unlisted:
            yield f"features for readers are listed for writers alone: {sorted(unlisted)}"
    elif set(writers or ()) & _FOR_READERS - {"columnMapping"}:
        yield f"features for readers with reader version {reader}"
    if set(writers or ()) & _NEEDS_DOMAINS and "domainMetadata" not in (writers or ()):
        yield "rowTracking or clustering without domainMetadata"


def _problems_of_metadata(table: _Table, metadata: Action, *, changed: bool) -> Iterator[str]:
    """`changed`: by this commit; another writer may have left a table that lacks features."""
    schema = json.loads(metadata["schemaString"])
    columns = [column["name"] for column in schema["fields"]]
    if len({name.lower() for name in columns}) < len(columns):
        yield f"columns differ only in case: {columns}"
    if not set(metadata["partitionColumns"]) <= set(columns):
        yield f"partition columns {metadata['partitionColumns']} are not all columns"
    if metadata["format"].get("provider") != "parquet":
        yield f"format {metadata['format']}"
    if not all(isinstance(value, str) for value in metadata["configuration"].values()):
        yield "a property is no text"
    needed = {name for name, is_needed in _NEEDED.items() if is_needed(table, schema)}
    if changed and not needed <= table.features:
        yield f"the metadata needs {sorted(needed - table.features)}, which the protocol lacks"
    if table.configuration.get("delta.columnMapping.mode", "none") != "none":
        yield from _problems_of_mapping(table, schema)


def _fields(data_type: Any) -> Iterator[Action]:
    if isinstance(data_type, dict):
        for column in data_type.get("fields", ()):
            yield column
            yield from _fields(column["type"])
        for inner in ("elementType", "keyType", "valueType"):
            yield from _fields(data_type.get(inner))


def _types(schema: Action) -> set[str]:
    return set(re.findall(r'"(?:type|elementType|keyType|valueType)"\s*:\s*"([^"]+)"', json.dumps(schema)))


def _has_key(prefix: str) -> Callable[[_Table, Action], bool]:
    return lambda _, schema: any(key.startswith(prefix) for f in _fields(schema) for key in f["metadata"])


_NEEDED: dict[str, Callable[[_Table, Action], bool]] = {
    "appendOnly": lambda table, _: table.is_on("delta.appendOnly"),
    "checkConstraints": lambda table, _: any(
        name.startswith("delta.constraints.") for name in table.configuration
    ),
    "invariants": lambda _, schema: any(
        not f["nullable"] or "delta.invariants" in f["metadata"] for f in _fields(schema)
    ),
    "generatedColumns": _has_key("delta.generationExpression"),
    "identityColumns": _has_key("delta.identity."),
    "allowColumnDefaults": _has_key("CURRENT_DEFAULT"),
    "typeWidening": _has_key("delta.typeChanges"),
    "timestampNtz": lambda _, schema: "timestamp_ntz" in _types(schema),
    "variantType": lambda _, schema: "variant" in _types(schema),
    "changeDataFeed": lambda table, _: table.is_on("delta.enableChangeDataFeed"),
    "deletionVectors": lambda table, _: table.is_on("delta.enableDeletionVectors"),
    "inCommitTimestamp": lambda table, _: table.is_on("delta.enableInCommitTimestamps"),
    "rowTracking": lambda table, _: table.is_on("delta.enableRowTracking"),
    "v2Checkpoint": lambda table, _: table.configuration.get("delta.checkpointPolicy") == "v2",
    "columnMapping": lambda table, _: table.configuration.get("delta.columnMapping.mode", "none") != "none",
}
"""By its name, whether a table needs a feature for what its metadata says."""


def _problems_of_mapping(table: _Table, schema: Action) -> Iterator[str]:
    metadata = [column["metadata"] for column in _fields(schema)]
    ids = [found.get("delta.columnMapping.id") for found in metadata]
    names = [found.get("delta.columnMapping.physicalName") for found in metadata]
    if None in ids or None in names:
        yield "a column has no id or no physical name"
        return
    if len(set(ids)) < len(ids):
        yield f"ids of columns are not unique: {ids}"
    top = [column["metadata"]["delta.columnMapping.physicalName"] for column in schema["fields"]]
    if len(set(top)) < len(top):
        yield f"physical names are not unique: {top}"
    highest = int(table.configuration.get("delta.columnMapping.maxColumnId", "-1"))
    if ids and max(ids) > highest:
        yield f"maxColumnId is {highest}, and a column has the id {max(ids)}"


def _partition_names(table: _Table) -> set[str]:
    assert table.metadata is not None
    fields = {column["name"]: column for column in json.loads(table.metadata["schemaString"])["fields"]}
    columns = table.metadata["partitionColumns"]
    if table.configuration.get("delta.columnMapping.mode", "none") == "none":
        return set(columns)
    return {fields[name]["metadata"]["delta.columnMapping.physicalName"] for name in columns}


def _problems_of_files(table: _Table, bodies: list[tuple[str, Action]]) -> Iterator[str]:
    partition_names = _partition_names(table)
    for name, body in bodies:
        if name == "add":
            if body["partitionValues"].keys() != partition_names:
                yield f"add has values of {sorted(body['partitionValues'])}, not of {sorted(partition_names)}"
            statistics = json.loads(body.get("stats") or "{}")
            if vector := body.get("deletionVector"):
                yield from _problems_of_vector(table, vector)
                if "numRecords" not in statistics:
                    yield "add with a deletion vector lacks numRecords"
        if name == "remove" and body.get("extendedFileMetadata"):
            missing = {"partitionValues", "size"} - body.keys()
            if missing:
                yield f"remove with extendedFileMetadata lacks {sorted(missing)}"


_CHANGES = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}


def _problems_of_changes(table: _Table, bodies: list[tuple[str, Action]]) -> Iterator[str]:
    """Those of the change files, and of their lack."""
    changes = [body for name, body in bodies if name == "cdc"]
    info = next(body for name, body in bodies if name == "commitInfo")
    if not changes:
        metrics = info.get("operationMetrics") or {}
        needed = ("numUpdatedRows", "numTargetRowsUpdated", "numCopiedRows", "numTargetRowsCopied")
        counted = {name: metrics[name] for name in needed if metrics.get(name, "0") != "0"}
        if counted and table.is_on("delta.enableChangeDataFeed"):
            yield f"there are no change files, though the commit counts {counted}"
        return
    if not table.is_on("delta.enableChangeDataFeed"):
        yield "there are change files without a change data feed"
    if len({body["path"] for body in changes}) < len(changes):
        yield "a change file is named twice"
    partition_names = _partition_names(table)
    added = {body["path"] for name, body in bodies if name == "add"}
    rows = Counter[str]()
    for body in changes:
        if body["dataChange"]:
            yield "cdc with dataChange"
        if body["partitionValues"].keys() != partition_names:
            yield f"cdc has values of {sorted(body['partitionValues'])}, not of {sorted(partition_names)}"
        if not body["path"].startswith("_change_data/") and body["path"] not in added:
            yield f"cdc names {body['path']}, which is no change file"
        file = table.folder / unquote(body["path"])
        if not file.is_file():
            return  # vacuumed since
        if file.stat().st_size != body["size"]:
            yield f"{body['path']} has {file.stat().st_size} bytes, and the log says {body['size']}"
        rows.update(pq.ParquetFile(file).read(["_change_type"])["_change_type"].to_pylist())
    if not rows.keys() <= _CHANGES.keys():
        yield f"kinds of changes: {sorted(map(str, rows))}"
    if rows["update_preimage"] != rows["update_postimage"]:
        yield f"rows before and after updates do not pair up: {dict(rows)}"
    live = {"add": 0, "remove": 0}
    for name, body in bodies:
        if name in live and body["dataChange"]:
            records = json.loads(body.get("stats") or "{}").get("numRecords")
            if records is None:
                return
            live[name] += records - ((body.get("deletionVector") or {}).get("cardinality") or 0)
    grown = sum(_CHANGES.get(kind, 0) * number for kind, number in rows.items())
    if grown != live["add"] - live["remove"]:
        yield f"the table grows by {live['add'] - live['remove']} rows, and by {grown} in {dict(rows)}"


def _problems_of_row_ids(table: _Table, bodies: list[tuple[str, Action]]) -> Iterator[str]:
    """Those of a version whose new files get row ids."""
    if "rowTracking" not in table.features or table.is_on("delta.rowTrackingSuspended"):
        return
    for name, body in bodies:
        for id_ in ("baseRowId", "defaultRowCommitVersion") if name == "add" else ():
            if body.get(id_) is None:
                yield f"add lacks {id_}"
    end = 0
    for add in sorted(
        (add for add in table.files.values() if add.get("baseRowId") is not None),
        key=lambda add: add["baseRowId"],
    ):
        records = json.loads(add.get("stats") or "{}").get("numRecords")
        if add["baseRowId"] < end:
            yield f"{add['path']} has row ids of another file, from {add['baseRowId']} on"
        end = add["baseRowId"] + (records or 0)
    if end - 1 > table.highest_row_id:
        yield f"the highest row id is {end - 1}, and the domain says {table.highest_row_id}"
    if table.is_on("delta.enableRowTracking"):
        without = sorted(add["path"] for add in table.files.values() if add.get("baseRowId") is None)
        if without:
            yield f"files without row ids though all rows have some: {without}"
        names = {f"delta.rowTracking.materializedRow{what}ColumnName" for what in ("Id", "CommitVersion")}
        if not names <= table.configuration.keys():
            yield "the metadata does not name the columns that keep row ids"


def _problems_of_vector(table: _Table, vector: Action) -> Iterator[str]:
    if "deletionVectors" not in table.features:
        yield "a deletion vector without the feature"
    if vector["storageType"] == "u":
        yield from _problems_of_vector_file(table.folder, vector)


_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def _problems_of_vector_file(folder: Path, vector: Action) -> Iterator[str]:
    text = vector["pathOrInlineDv"]
    prefix, encoded = text[:-20], text[-20:]
    number = b"".join(
        sum(
            _Z85.index(sign) * 85**power
            for sign, power in zip(encoded[at : at + 5], range(4, -1, -1), strict=True)
        ).to_bytes(4, "big")
        for at in range(0, 20, 5)
    ).hex()
    uuid = "-".join((number[:8], number[8:12], number[12:16], number[16:20], number[20:]))
    file = folder / prefix / f"deletion_vector_{uuid}.bin"
    if not file.is_file():
        return  # vacuumed since
    data, offset, size = file.read_bytes(), vector["offset"], vector["sizeInBytes"]
    body = data[offset + 4 : offset + 4 + size]
    if data[0] != 1 or int.from_bytes(data[offset : offset + 4], "big") != size or len(body) != size:
        yield f"{file.name} has no vector of {size} bytes at {offset}"
    elif int.from_bytes(data[offset + 4 + size : offset + 8 + size], "big") != zlib.crc32(body):
        yield f"the checksum of the vector at {offset} in {file.name} is wrong"


def _problems_of_times(table: _Table, bodies: list[tuple[str, Action]]) -> Iterator[str]:
    info = next(body for name, body in bodies if name == "commitInfo")
    timestamp = info.get("inCommitTimestamp")
    if table.is_on("delta.enableInCommitTimestamps") and "inCommitTimestamp" in table.features:
        if bodies[0][0] != "commitInfo" or timestamp is None:
            yield "commitInfo with an in-commit timestamp is not the first action"
        elif table.timestamp is not None and timestamp <= table.timestamp:
            yield f"the in-commit timestamp {timestamp} is not after {table.timestamp}"
    table.timestamp = timestamp


def _problems_of_checkpoint(table: _Table, checkpoint: Path) -> Iterator[str]:
    rows = (
        pq.ParquetFile(checkpoint).read(["add.path", "metaData.id", "protocol.minReaderVersion"]).to_pylist()
    )
    found = {
        name: [row[name] for row in rows if row[name] is not None] for name in ("metaData", "protocol", "add")
    }
    for name, key in (("metaData", "id"), ("protocol", "minReaderVersion")):
        if sum(body[key] is not None for body in found[name]) != 1:
            yield f"it has {len(found[name])} {name} actions"
    paths = sorted(unquote(add["path"]) for add in found["add"] if add["path"] is not None)
    if paths != sorted(path for path, _ in table.files):
        yield f"its files are not those of the commits: {len(paths)} and {len(table.files)}"
