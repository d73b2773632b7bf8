"""Hostile logs and checkpoints of streams at every door: nothing outside of the table changes, and whatever
cannot be done is an error of deltaflow's."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from deltaflow.batch.commands.deep_clone import copy_files, plan_copies
from deltaflow.batch.commands.parquet_files import files_of_directory
from deltaflow.batch.commands.vacuum_deletion import Deletion, delete_planned
from deltaflow.cli import main
from deltaflow.errors import DeltaError
from deltaflow.log import DeltaLog, add_files
from deltaflow.log.files.change_files import change_files
from deltaflow.log.files.deletion_vectors import read_deletion_vectors, vector_text
from deltaflow.log.maintenance.vacuum_candidates import in_directory, in_log
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol, remove
from tests.security.conftest import SECRET

pytestmark = pytest.mark.breaks_protocol

DEEP = "[" * 100_000 + "]" * 100_000
BEYOND = 10**40
FEATURES = ["deletionVectors", "v2Checkpoint"]
PROTOCOL = protocol(3, 7, readerFeatures=FEATURES, writerFeatures=[*FEATURES, "clustering", "domainMetadata"])


@pytest.fixture
def table(tmp_path: Path) -> HandWrittenTable:
    return HandWrittenTable(tmp_path / "table")


def vector(text: str, storage: str = "u", **fields: Any) -> dict[str, Any]:
    usual = {"storageType": storage, "pathOrInlineDv": text, "offset": 1, "sizeInBytes": 34, "cardinality": 1}
    return {"deletionVector": usual | fields}


def cloned(log: DeltaLog) -> None:
    snapshot = log.snapshot()
    adds = list(add_files(snapshot.with_stats(snapshot.files)))
    target = f"{log.path}-clone"
    os.makedirs(target, exist_ok=True)
    copy_files(
        plan_copies(snapshot.path, adds, lambda file: file.path, None, 0).copies, log.path, target, "it"
    )


def vacuumed(log: DeltaLog, find: Any) -> None:
    delete_planned(log, log.plan_vacuum(0, find), Deletion())


def read(log: DeltaLog) -> None:
    snapshot = log.snapshot()
    assert snapshot.clustering_columns is not None
    snapshot.with_stats(snapshot.files)
    snapshot.statistics.load([(name,) for name in snapshot.schema.names])
    read_deletion_vectors(snapshot.files, log.path, snapshot.version)


def cleaned_up(log: DeltaLog) -> None:
    log.checkpoint()
    log.truncate_history(0)


DOORS: dict[str, Callable[[DeltaLog], object]] = {
    "read": read,
    "history": lambda log: log.history(),
    "changes": lambda log: [change_files(commit, 1, log.path) for commit in log.commits(0)],
    "missing files": lambda log: log.missing_files(log.snapshot()),
    "deep clone": cloned,
    "manifests": lambda log: log.write_manifests(),
    "checksum": lambda log: log.checksum_differences(log.snapshot()),
    "vacuum lite": lambda log: vacuumed(log, in_log),
    "vacuum": lambda log: vacuumed(log, in_directory),
    "clean-up": cleaned_up,
}
COMMANDS = [["doctor"], ["log", "history"], ["log", "state"], ["log", "files"], ["log", "size"], ["vacuum"]]


def all_doors(table: HandWrittenTable, commands: list[list[str]] | None = None) -> list[str]:
    """The errors of all doors; any other exception fails the test."""
    errors: list[str] = []
    for door in DOORS.values():
        try:
            door(table.log())
        except DeltaError as error:
            errors.append(str(error))
    assert all(SECRET not in error for error in errors)
    for command in COMMANDS if commands is None else commands:
        result = CliRunner().invoke(main, [*_with_path(command, table.path), "--json"])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        assert SECRET not in result.output
    return errors


def _with_path(command: list[str], path: str) -> list[str]:
    return [command[0], path, *command[1:], *(["--dry-run"] if command == ["vacuum"] else [])]


def an_old_table(table: HandWrittenTable, *actions: dict[str, Any], **metadata: Any) -> None:
    """Two versions, of which the first has these actions, and the second a checkpoint later."""
    table.commit(0, PROTOCOL, meta_data(**metadata), *actions)
    table.commit(1, {"commitInfo": {"operation": "W"}})
    for file in table.log_directory.iterdir():
        os.utime(file, (1, 1))


PATHS = [
    "../outside/secret.parquet",
    "%2E%2E/outside/secret.parquet",
    "x/../../outside/secret.parquet",
    "x/%2e%2e/%2e%2e/outside/secret.parquet",
    "..%2Foutside%2Fsecret.parquet",
    "{outside}/secret.parquet",
    "%2F{outside}/secret.parquet",
    "file:{outside}/secret.parquet",
    "file://{outside}/secret.parquet",
    "file://localhost{outside}/secret.parquet",
    "file:{table}/../outside/secret.parquet",
    "FILE:{outside}/secret.parquet",
    "link/secret.parquet",
    "{table}/link/secret.parquet",
    "_delta_log/00000000000000000000.json",
    "x/../_delta_log/00000000000000000000.json",
    "a\nfile:{outside}/secret.parquet",
]


@pytest.mark.parametrize("path", PATHS)
def test_paths(table: HandWrittenTable, outside: Path, path: str) -> None:
    Path(table.path, "link").symlink_to(outside)
    path = path.format(outside=outside, table=table.path)
    gone = {"partitionValues": {}, "size": 1}
    actions = [
        remove(path, **gone),
        {"cdc": {"path": path, "size": 1, "partitionValues": {}, "dataChange": False}},
    ]
    an_old_table(table, *actions)
    all_doors(table, [["vacuum"]])
    assert (table.log_directory / "00000000000000000001.json").exists()


@pytest.mark.parametrize(
    "prefix", ["../outside", "../../outside", "x/../../outside", "{outside}", "link", "_delta_log"]
)
def test_deletion_vectors(table: HandWrittenTable, outside: Path, prefix: str) -> None:
    Path(table.path, "link").symlink_to(outside)
    pq.write_table(pa.table({"id": [1]}), f"{table.path}/a")
    size = Path(table.path, "a").stat().st_size
    text = vector_text(UUID(int=7), f"{prefix.format(outside=outside)}/")
    an_old_table(table, add("a", size=size, **vector(text)), remove("b", **vector(text)))
    all_doors(table, [])


@pytest.mark.parametrize("storage", ["u", "p", "i", "x"])
@pytest.mark.parametrize("text", ["", "short", "deletion_vector_" + "-" * 36 + ".bin", "\ud800" * 20])
def test_names_of_deletion_vectors(table: HandWrittenTable, outside: Path, storage: str, text: str) -> None:
    an_old_table(table, add("a", **vector(text, storage)))
    assert all_doors(table, [])


@pytest.mark.parametrize(
    "name", ["_symlink_format_manifest", "_symlink_format_manifest/p=1", "_change_data", "p=1"]
)
def test_links_to_directories(table: HandWrittenTable, outside: Path, name: str) -> None:
    link = Path(table.path, name)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside)
    of_one = {"partitionValues": {"part": "1"}, "size": 1}
    schema = {"partition_columns": ["part"]}
    an_old_table(table, add("p=1/new.parquet", **of_one), remove("p=1/secret.parquet", **of_one), **schema)
    all_doors(table)


def test_links_to_sidecars(table: HandWrittenTable, outside: Path) -> None:
    table.commit(0, PROTOCOL, meta_data(configuration={"delta.checkpointPolicy": "classic"}))
    for version in (1, 2):
        table.commit(version, add(f"f{version}"))
        for file in table.log_directory.iterdir():
            os.utime(file, (version, version), follow_symlinks=False)
        table.log().checkpoint()
    (table.log_directory / "_sidecars").symlink_to(outside)
    table.log().truncate_history(0)
    assert table.log().commit_versions() == [2]


def test_links_to_files(table: HandWrittenTable, outside: Path) -> None:
    """A link may go, and what it leads to stays."""
    an_old_table(table, remove("secret.parquet", size=1))
    Path(table.path, "secret.parquet").symlink_to(outside / "secret.parquet")
    for name in ("00000000000000000001.crc", "_last_checkpoint", "_last_vacuum_info"):
        (table.log_directory / name).symlink_to(outside / "secret.parquet")
    all_doors(table)


@pytest.mark.parametrize("name", ["00000000000000000001.json", "00000000000000000000.checkpoint.parquet"])
def test_links_in_the_log(table: HandWrittenTable, outside: Path, name: str) -> None:
    """What is no log is not shown."""
    an_old_table(table)
    (table.log_directory / name).unlink(missing_ok=True)
    (table.log_directory / name).symlink_to(outside / "secret.parquet")
    all_doors(table)


JSON = [
    "",
    "null",
    "[]",
    "{}",
    '"x"',
    f'{{"version":0,"x":{DEEP}}}',
    f'{{"version":{BEYOND}}}',
    '{"version":-1}',
]
JSON += ['{"version":1e999}', '{"version":9223372036854775807}', '{"version":"1"}', "\xff", "{", f'"{SECRET}']


@pytest.mark.parametrize("content", range(len(JSON)))
def test_files_beside_the_commits(table: HandWrittenTable, outside: Path, content: int) -> None:
    """They are hints: the table can be read whatever is in them."""
    an_old_table(table, add("a"))
    for name in ("_last_checkpoint", "_last_vacuum_info", "00000000000000000001.crc"):
        (table.log_directory / name).write_bytes(JSON[content].encode("latin-1"))
    assert table.log().snapshot().version == 1
    all_doors(table, [["doctor"], ["log", "state"]])


NUMBERS = ["delta.checkpointInterval", "delta.targetFileSize", "delta.dataSkippingNumIndexedCols"]
NUMBERS += ["delta.requireCheckpointProtectionBeforeVersion", "delta.columnMapping.maxColumnId"]
ACTIONS: list[str] = [
    f'{{"future":{DEEP}}}',
    f'{{"add":{{"path":"a","size":1,"modificationTime":1,"dataChange":true,"partitionValues":{{}},"x":{DEEP}}}}}',
    *(
        json.dumps(action)
        for action in [
            add("a", size=BEYOND),
            add("a", size=-1),
            add("a", modificationTime=-(2**63)),
            add("a", modificationTime=2**63 - 1),
            add("a", stats=DEEP),
            add("a", stats='{"numRecords":' + DEEP + "}"),
            add("a", stats=f'{{"numRecords":{BEYOND}}}'),
            add("a", stats='{"numRecords":-9}'),
            add("a", baseRowId=-(2**63), defaultRowCommitVersion=2**63 - 1),
            add("a", **vector("x" * 20, sizeInBytes=2**31 - 1)),
            add("a", **vector("x" * 20, cardinality=-(2**63))),
            remove("a", deletionTimestamp=2**63 - 1),
            remove("a", deletionTimestamp=-(2**63)),
            {"cdc": {"path": "a", "size": -1, "partitionValues": {}, "dataChange": False}},
            {"commitInfo": {"inCommitTimestamp": BEYOND, "timestamp": -(2**63)}},
            {"commitInfo": {"operationParameters": json.loads("[" * 500 + "]" * 500)}},
            {"txn": {"appId": "", "version": -(2**63), "lastUpdated": 2**63 - 1}},
            {"domainMetadata": {"domain": "delta.clustering", "configuration": "x", "removed": False}},
            {"domainMetadata": {"domain": "delta.clustering", "configuration": DEEP, "removed": False}},
            {"domainMetadata": {"domain": "delta.rowTracking", "configuration": DEEP, "removed": False}},
            protocol(2**31, 2**31),
            protocol(-1, -1),
            meta_data(configuration={"delta.checkpointInterval": "0"}),
            meta_data(configuration={"delta.checkpointInterval": str(BEYOND)}),
            meta_data(configuration={"delta.logRetentionDuration": f"interval {BEYOND} days"}),
            meta_data(configuration={"delta.deletedFileRetentionDuration": "interval -9 weeks"}),
            meta_data(configuration={"delta.dataSkippingNumIndexedCols": str(BEYOND)}),
            meta_data(configuration={"delta.columnMapping.mode": "name"}),
            *(meta_data(configuration={name: "9" * 5_000}) for name in NUMBERS),
            meta_data(partition_columns=["no such column"]),
            meta_data(partition_columns=["part"] * 1000),
        ]
    ),
]


@pytest.mark.parametrize("action", range(len(ACTIONS)))
@pytest.mark.sampled(2)
def test_actions(table: HandWrittenTable, outside: Path, action: int) -> None:
    an_old_table(table)
    table.write(2, f"{ACTIONS[action]}\n".encode())
    os.utime(table.log_directory / "00000000000000000002.json", (1, 1))
    all_doors(table, [["doctor"], ["log", "state"], ["log", "files"]])


OFFSET = {
    "sourceVersion": 1,
    "reservoirId": "table-1",
    "reservoirVersion": 1,
    "index": -1,
    "isStartingVersion": False,
}
STREAMS: dict[str, dict[str, str]] = {
    "deep offset": {"offsets/0": f"v1\n{{}}\n{DEEP}"},
    "deep field": {"offsets/0": 'v1\n{}\n{"reservoirId":"table-1","x":' + DEEP + "}"},
    "beyond": {"offsets/0": "v1\n{}\n" + json.dumps({**OFFSET, "reservoirVersion": BEYOND})},
    "negative": {"offsets/0": "v1\n{}\n" + json.dumps({**OFFSET, "reservoirVersion": -5, "index": -(2**63)})},
    "later": {"offsets/0": "v1\n{}\n" + json.dumps({**OFFSET, "reservoirVersion": 2**63 - 1})},
    "another table": {"offsets/0": "v1\n{}\n" + json.dumps({**OFFSET, "reservoirId": "another"})},
    "source version": {"offsets/0": "v1\n{}\n" + json.dumps({**OFFSET, "sourceVersion": BEYOND})},
    "format": {"offsets/0": "v" + "9" * 5_000},
    "no text": {"offsets/0": "v1\n\ud800"},
    "empty": {"offsets/0": ""},
    "batches": {f"offsets/{'9' * 200}": "v1\n{}\n-", f"commits/{BEYOND}": "v1\n{}"},
    "metadata": {"metadata": DEEP},
    "another metadata": {"metadata": '{"id":17}'},
    "no metadata": {"metadata": ""},
    "record": {"deltaflow/sources/0/source.json": DEEP},
    "commits": {"commits/0": DEEP, "commits/1": "v1"},
    "many lines": {"offsets/0": "v1\n{}\n" + "-\n" * 100},
}
CHANGES = [
    ["lag", "{c}"],
    ["restart-plan", "{c}"],
    ["offsets", "show", "{c}"],
    ["offsets", "rewind", "{c}", "--version", "0", "--table", "{t}", "--yes"],
    ["offsets", "adopt", "{c}", "--table", "{t}", "--yes"],
    ["offsets", "fork", "{c}", "{c}-fork", "--yes"],
    ["offsets", "rebuild", "{c}", "--sink", "{t}", "--yes"],
]


@pytest.mark.parametrize("hostile", STREAMS)
@pytest.mark.parametrize("command", CHANGES, ids=" ".join)
def test_checkpoints_of_streams(
    table: HandWrittenTable, outside: Path, tmp_path: Path, hostile: str, command: list[str]
) -> None:
    an_old_table(table, add("a"))
    checkpoint = tmp_path / "checkpoint"
    usual = {"metadata": '{"id":"q"}', "offsets/0": "v1\n{}\n" + json.dumps(OFFSET), "commits/0": "v1\n{}"}
    for place, text in (usual | STREAMS[hostile]).items():
        (checkpoint / place).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / place).write_bytes(text.encode("utf-8", "surrogatepass"))
    arguments = [part.format(c=checkpoint, t=table.path) for part in command]
    result = CliRunner().invoke(main, [*arguments, "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info


SINK = {"path": "file:{table}/../outside/secret.parquet", "size": 1, "modificationTime": 1, "action": "add"}
SINKS = [
    "",
    "v1",
    f"v1\n{DEEP}",
    "v1\n{}",
    "v1\n[]",
    "v1\n\xff",
    "v1\n" + json.dumps(SINK),
    "v1\n" + json.dumps({**SINK, "path": "file:{table}/%2E%2E/outside/secret.parquet"}),
    "v1\n" + json.dumps({**SINK, "path": "file:{table}/a", "size": BEYOND}),
    "v1\n" + json.dumps({**SINK, "path": "%FF"}),
]


@pytest.mark.parametrize("sink", range(len(SINKS)))
def test_lists_of_the_file_sink(tmp_path: Path, outside: Path, sink: int) -> None:
    """They tell a conversion which files are in a directory of Parquet."""
    table = tmp_path / "table"
    (table / "_spark_metadata").mkdir(parents=True)
    text = SINKS[sink].replace("{table}", str(table))
    (table / "_spark_metadata/0").write_bytes(text.encode("latin-1"))
    try:
        found = files_of_directory(str(table))
    except DeltaError:
        return
    assert found.files.num_rows == 0
