"""A table is broken in each way that the doctor knows, and the doctor finds that and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import (
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from deltaflow.errors import DeltaTableNotFoundError
from deltaflow.log import AddFile, DeltaLog, Metadata, Operation, schema_to_string
from deltaflow.log.doctor import examination
from deltaflow.log.doctor.examination import examine
from deltaflow.log.doctor.finding import Finding, Severity
from deltaflow.log.doctor.log_checks import checksum_versions
from deltaflow.log.files.footers import collect_statistics
from deltaflow.log.protocol.indexed_columns import indexed_leaves
from deltaflow.log.replay.log_files import LogFiles
from tests.log.hand_written import HandWrittenTable, add
from tests.mapped_tables import MappedTable

SCHEMA = StructType(
    [
        StructField("id", LongType()),
        StructField("name", StringType()),
        StructField("price", DecimalType(10, 2)),
        StructField("at", TimestampType()),
        StructField("day", DateType()),
        StructField("inner", StructType([StructField("x", DoubleType())])),
    ]
)
WRITE = Operation("WRITE", {"mode": "Append"})
OLD_S = 1_700_000_000


def parquet_rows(first: int, number: int) -> pa.Table:
    ids = pa.array(range(first, first + number), pa.int64())
    return pa.table(
        {
            "id": ids,
            "name": [f"a name that is longer than thirty-two bytes, {i}" for i in ids.to_pylist()],
            "price": pa.array([f"{i}.25" for i in ids.to_pylist()]).cast(pa.decimal128(10, 2)),
            "at": pa.array([1_000_001 + i for i in ids.to_pylist()], pa.timestamp("us", "UTC")),
            "day": pa.array(ids.to_pylist(), pa.int32()).cast(pa.date32()),
            "inner": [{"x": i / 3 if i % 2 else None} for i in ids.to_pylist()],
        }
    )


class Broken:
    """A sound table of `commits` commits with a file each, for a test to break."""

    def __init__(self, path: Path, commits: int = 5) -> None:
        self.path = path
        self.log = path / "_delta_log"
        path.mkdir(parents=True)
        for number in range(commits):
            self.append(number)

    def append(self, number: int, **stats: Any) -> str:
        """Commits a file of ten rows; `stats` replaces parts of its statistics."""
        name = f"part-{number:05}-{uuid.uuid4()}.parquet"
        file = self.path / name
        pq.write_table(parquet_rows(10 * number, 10), file)
        metadata = Metadata(
            id="table-1", schema_string=schema_to_string(SCHEMA), partition_columns=[], created_time=1
        )
        [text] = collect_statistics(
            [(str(file), file.stat().st_size)], indexed_leaves(metadata, str(self.path))
        )
        if stats:
            said = json.loads(text)
            for part, values in stats.items():
                said[part] = {**said[part], **values} if isinstance(values, dict) else values
            text = json.dumps(said)
        transaction = self.delta_log().start_transaction()
        if number == 0 and transaction.snapshot is None:
            transaction.update_metadata(metadata)
        add = AddFile(
            path=name,
            partition_values={},
            size=file.stat().st_size,
            modification_time=1,
            data_change=True,
            stats=text,
        )
        transaction.commit([add], WRITE)
        return name

    def delta_log(self) -> DeltaLog:
        return DeltaLog.for_table(str(self.path))

    def commit_file(self, version: int) -> Path:
        return self.log / f"{version:020}.json"

    def checksum(self, version: int) -> Path:
        return self.log / f"{version:020}.crc"

    def checkpoint(self) -> Path:
        self.delta_log().checkpoint()
        [file] = self.log.glob("*.checkpoint.parquet")
        return file

    def added(self, version: int) -> Path:
        lines = map(json.loads, self.commit_file(version).read_text().splitlines())
        [name] = [line["add"]["path"] for line in lines if "add" in line]
        return self.path / name

    def findings(self) -> list[Finding]:
        return list(examine(str(self.path)))

    def checks(self) -> list[tuple[str, int | None]]:
        return sorted(((found.check, found.version) for found in self.findings()), key=str)


@pytest.fixture
def table(tmp_path: Path) -> Broken:
    return Broken(tmp_path / "a table")


def test_nothing_is_found_in_a_sound_table(table: Broken) -> None:
    table.checkpoint()
    table.append(5)
    before = {file: file.stat().st_mtime_ns for file in table.path.rglob("*")}
    assert table.findings() == []
    assert {file: file.stat().st_mtime_ns for file in table.path.rglob("*")} == before


def test_nothing_is_found_in_a_mapped_table_but_what_is_wrong(tmp_path: Path) -> None:
    table = MappedTable(tmp_path / "t", "name")
    assert [finding.check for finding in examine(table.path)] == []
    added = table.file(range(20, 25), "u")["add"]
    stats = json.loads(added["stats"])
    stats["maxValues"]["c-3"]["c-4"] = 239
    table.commit(2, {"add": {**added, "stats": json.dumps(stats)}})
    finding = next(examine(table.path))
    assert (finding.check, finding.files) == ("statistics-bounds", ["part-20.parquet"])
    assert "s p.x.y" in finding.what


def test_where_there_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(DeltaTableNotFoundError):
        list(examine(str(tmp_path)))


def test_a_gap_that_a_checkpoint_bridges(table: Broken) -> None:
    table.checkpoint()
    table.append(5)
    table.commit_file(2).unlink()
    [found] = table.findings()
    assert (found.check, found.severity, found.version) == ("log-gap", Severity.WARNING, 2)


def test_a_gap_that_nothing_bridges(table: Broken) -> None:
    for version in (2, 3):
        table.commit_file(version).unlink()
    gap, unreadable = table.findings()
    assert (gap.check, gap.severity, gap.version) == ("log-gap", Severity.ERROR, 2)
    assert "Commits 2 to 3" in gap.what
    assert "versionAsOf" in gap.repair
    assert (unreadable.check, unreadable.version) == ("table-unreadable", 4)


def test_a_log_without_its_beginning(table: Broken) -> None:
    table.commit_file(0).unlink()
    assert table.checks() == [("log-gap", 0), ("table-unreadable", 4)]


def test_a_commit_that_cannot_be_read(table: Broken) -> None:
    table.commit_file(3).write_text("{cut of")
    assert table.checks() == [("commit-unreadable", 3), ("table-unreadable", 4)]


@pytest.mark.breaks_protocol
@pytest.mark.parametrize("wrong", [{"schemaString": '{"type":"struct"'}, {"partitionColumns": ["other"]}])
def test_metadata_that_cannot_be_read(table: Broken, wrong: dict[str, Any]) -> None:
    lines = list(map(json.loads, table.commit_file(0).read_text().splitlines()))
    for line in lines:
        line.get("metaData", {}).update(wrong)
    table.commit_file(0).write_text("\n".join(map(json.dumps, lines)))
    found = table.findings()[-1]
    assert (found.check, found.severity, found.version) == ("table-unreadable", Severity.ERROR, 4)
    assert "from a copy" in found.what


def test_a_version_that_cannot_be_read_and_came_during_the_examination(table: Broken) -> None:
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["x"],
        "writerFeatures": ["x"],
    }

    def progress(step: str, *_: object) -> None:
        if step == "the newest version":
            table.commit_file(5).write_text(json.dumps({"protocol": protocol}))

    *_, found = examine(str(table.path), progress)
    assert (found.check, found.version) == ("table-unreadable", 5)


@pytest.mark.parametrize("step", ["commits", "checkpoints", "log compactions"])
def test_what_log_clean_up_deletes_during_the_examination_is_not_damaged(table: Broken, step: str) -> None:
    table.checkpoint()
    lines = [table.commit_file(version).read_bytes() for version in (2, 3)]
    (table.log / f"{2:020}.{3:020}.compacted.json").write_bytes(b"".join(lines))
    table.append(5)
    table.delta_log().checkpoint()

    def progress(now: str, *_: object) -> None:
        if now == step:
            for version in range(5):
                for file in table.log.glob(f"{version:020}.*"):
                    file.unlink()

    assert list(examine(str(table.path), progress)) == []


def test_a_checkpoint_that_came_during_the_examination(
    table: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.checkpoint()

    def checksums(log: LogFiles) -> set[int]:
        table.append(5)
        table.delta_log().checkpoint()
        return checksum_versions(log)

    monkeypatch.setattr(examination, "checksum_versions", checksums)
    assert table.checks() == []


def test_a_commit_without_actions(table: Broken) -> None:
    orphan = table.added(3)
    os.utime(orphan, (OLD_S, OLD_S))
    table.commit_file(3).write_bytes(b"")
    found, _, orphaned = table.findings()
    assert (found.check, found.severity, found.version) == ("commit-empty", Severity.ERROR, 3)
    assert (orphaned.check, orphaned.files) == ("file-orphaned", [orphan.name])


def test_newest_commits_that_left_only_their_checksums(table: Broken) -> None:
    for version in (3, 4):
        table.commit_file(version).unlink()
    found = table.findings()[0]
    assert (found.check, found.severity, found.version) == ("log-gap", Severity.ERROR, 3)
    assert "Commits 3 to 4 are missing" in found.what
    assert "before anybody writes" in found.repair


@pytest.mark.breaks_protocol
def test_a_checkpoint_that_cannot_be_read(table: Broken) -> None:
    file = table.checkpoint()
    file.write_bytes(file.read_bytes()[:-100])
    [found] = table.findings()
    assert (found.check, found.version, found.files) == ("checkpoint-unreadable", 4, [file.name])


def test_a_checkpoint_that_lacks_parts(table: Broken) -> None:
    table.checkpoint().rename(table.log / f"{4:020}.checkpoint.{1:010}.{2:010}.parquet")
    assert table.checks() == [("checkpoint-hint", None), ("checkpoint-incomplete", 4)]


@pytest.mark.breaks_protocol
@pytest.mark.parametrize("check", ["checkpoint-unreadable", "checkpoint-incomplete"])
def test_a_broken_checkpoint_without_which_a_version_is_lost(table: Broken, check: str) -> None:
    file = table.checkpoint()
    for version in range(3):
        table.commit_file(version).unlink()
    if check == "checkpoint-unreadable":
        file.write_bytes(file.read_bytes()[:-100])
    else:
        file.rename(table.log / f"{4:020}.checkpoint.{1:010}.{2:010}.parquet")
    [found] = (found for found in table.findings() if found.check == check)
    assert (found.severity, found.version) == (Severity.ERROR, 4)
    assert "from a copy" in found.repair
    assert "Do not delete" in found.repair
    [unreadable] = (found for found in table.findings() if found.check == "table-unreadable")
    assert check == "checkpoint-incomplete" or file.name in unreadable.what


@pytest.mark.breaks_protocol
def test_a_broken_checkpoint_that_only_older_versions_need(table: Broken) -> None:
    older = table.checkpoint()
    table.append(5)
    table.delta_log().checkpoint()
    for version in range(3):
        table.commit_file(version).unlink()
    older.write_bytes(older.read_bytes()[:-100])
    [found] = (found for found in table.findings() if found.check == "checkpoint-unreadable")
    assert (found.severity, found.version) == (Severity.WARNING, 4)
    assert "Do not delete" in found.repair


@pytest.mark.breaks_protocol
@pytest.mark.parametrize("what", ["file", "metadata", "transaction"])
def test_a_checkpoint_that_says_something_else(table: Broken, what: str) -> None:
    file = table.checkpoint()
    rows = pq.read_table(file)
    if what == "file":
        is_add = [row is not None for row in rows["add"].to_pylist()]
        keep = [not add or number != is_add.index(True) for number, add in enumerate(is_add)]
        rows = rows.filter(pa.array(keep))
    elif what == "metadata":
        values = rows["metaData"].to_pylist()
        changed = [row and {**row, "configuration": [("delta.appendOnly", "true")]} for row in values]
        rows = rows.set_column(
            rows.column_names.index("metaData"),
            rows.schema.field("metaData"),
            pa.array(changed, rows.schema.field("metaData").type),
        )
    else:
        transaction = pa.array(
            [{"appId": "app", "version": 3, "lastUpdated": None}] + [None] * (rows.num_rows - 1),
            rows.schema.field("txn").type,
        )
        extra = {
            name: transaction.slice(0, 1) if name == "txn" else pa.nulls(1, rows.schema.field(name).type)
            for name in rows.column_names
        }
        rows = pa.concat_tables([rows, pa.table(extra, schema=rows.schema)])
    pq.write_table(rows, file)
    found = next(found for found in table.findings() if found.check == "checkpoint-differs")
    assert (found.severity, found.version) == (Severity.ERROR, 4)
    assert {"file": "1 files are not in it", "metadata": "metadata", "transaction": "1 applications"}[
        what
    ] in found.what


@pytest.mark.breaks_protocol
def test_compactions(table: Broken) -> None:
    lines = [line for v in (1, 2, 3) for line in table.commit_file(v).read_text().splitlines()]
    adds = [line for line in lines if '"add"' in line]
    compaction = table.log / f"{1:020}.{3:020}.compacted.json"
    compaction.write_text("\n".join(adds))
    assert table.findings() == []
    # The checkpoint has all files, and is not what is wrong.
    table.checkpoint()
    compaction.write_text("\n".join(adds[:2]))
    [found] = table.findings()
    assert (found.check, found.severity, found.version) == ("compaction-differs", Severity.ERROR, 3)
    assert ("1 files are not in it" in found.what, found.files) == (True, [compaction.name])
    compaction.write_text("{")
    assert table.checks() == [("compaction-unreadable", 3)]


def test_a_hint_that_leads_nowhere(table: Broken) -> None:
    table.checkpoint()
    hint = table.log / "_last_checkpoint"
    hint.write_text(json.dumps({"version": 3, "size": 1}))
    assert table.checks() == [("checkpoint-hint", None)]
    hint.write_text("{")
    assert table.checks() == [("checkpoint-hint", None)]


def test_checksums(table: Broken) -> None:
    table.checksum(1).write_text("{")
    said = json.loads(table.checksum(4).read_text())
    table.checksum(4).write_text(json.dumps(said | {"numFiles": 7}))
    assert table.checks() == [("checksum-differs", 4), ("checksum-unreadable", 1)]


def test_a_version_that_another_writer_has_replaced(table: Broken) -> None:
    lines = table.commit_file(2).read_text().replace('"txnId":"', '"txnId":"other-').splitlines()
    table.commit_file(2).write_text("\n".join(lines))
    [found] = table.findings()
    assert (found.check, found.severity, found.version) == ("version-overwritten", Severity.ERROR, 2)
    assert "WRITE of deltaflow" in found.what


def test_properties_that_have_no_value(table: Broken) -> None:
    wrong = {"delta.deletedFileRetentionDuration": "a week", "delta.checkpointInterval": "0"}
    file = table.commit_file(0)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["configuration"] |= wrong | {"delta.appendOnly": "false", "delta.other": "?"}
    file.write_text("\n".join(map(json.dumps, lines)))
    for checksum in table.log.glob("*.crc"):
        checksum.unlink()
    interval, retention = table.findings()
    for found, name in ((interval, "checkpointInterval"), (retention, "deletedFileRetentionDuration")):
        assert (found.check, found.severity, found.version) == ("property-wrong", Severity.ERROR, 4)
        assert f"delta.{name} is " in found.what
        assert f"UNSET TBLPROPERTIES ('delta.{name}')" in found.repair


def test_files_that_are_missing_or_cut_off(table: Broken) -> None:
    table.added(1).unlink()
    with table.added(2).open("ab") as file:
        file.write(b"more")
    missing, resized = table.findings()
    assert (missing.check, missing.severity) == ("file-missing", Severity.ERROR)
    assert (missing.files, missing.count) == ([table.added(1).name], 1)
    assert (resized.check, resized.files) == ("file-size", [table.added(2).name])


def test_a_missing_file_beside_one_whose_name_differs_in_case_alone(tmp_path: Path) -> None:
    table = HandWrittenTable(tmp_path / "t")
    for folder in ("part=A", "part=a"):
        (tmp_path / "t" / folder).mkdir(exist_ok=True)
        (tmp_path / "t" / folder / "f.parquet").write_bytes(bytes(10))
    lost, other = "part=A/f.parquet", "part=a/f.parquet"
    table.first_commit(
        add(lost, partitionValues={"part": "A"}),
        add(other, partitionValues={"part": "a"}),
        partition_columns=["part"],
    )
    if (tmp_path / "t" / "part=A").samefile(tmp_path / "t" / "part=a"):
        pytest.skip("the file system has one name for both")
    (tmp_path / "t" / lost).unlink()
    log = table.log()
    assert log.missing_files(log.snapshot()).files["path"].to_pylist() == [lost]
    [missing] = [found for found in examine(table.path) if found.check == "file-missing"]
    assert (missing.files, missing.count) == ([lost], 1)


def test_a_file_whose_footer_is_broken(table: Broken) -> None:
    file = table.added(3)
    file.write_bytes(b"x" * file.stat().st_size)
    [found] = table.findings()
    assert (found.check, found.files, found.count) == ("footer-unreadable", [file.name], 1)


@pytest.mark.parametrize(
    ("stats", "check", "column"),
    [
        ({"numRecords": 11}, "rows", ""),
        ({"nullCount": {"id": 1}}, "nulls", "id"),
        ({"nullCount": {"inner": {"x": 0}}}, "nulls", "inner.x"),
        ({"minValues": {"id": 91}}, "bounds", "id"),
        ({"maxValues": {"id": 98}}, "bounds", "id"),
        ({"minValues": {"price": 90.26}}, "bounds", "price"),
        ({"maxValues": {"day": "1970-04-09"}}, "bounds", "day"),
        ({"maxValues": {"at": "1970-01-01T00:00:00.500Z"}}, "bounds", "at"),
        ({"maxValues": {"name": "a name"}}, "bounds", None),
        ({"minValues": {"inner": {"x": 30.4}}}, "bounds", "inner.x"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else None,
)
def test_statistics_that_lie(table: Broken, stats: dict[str, Any], check: str, column: str | None) -> None:
    name = table.append(9, **stats)
    if column is None:
        # The footer might have cut so long a text, so it proves nothing.
        assert table.findings() == []
        return
    [found] = table.findings()
    assert (found.check, found.severity, found.files) == (f"statistics-{check}", Severity.ERROR, [name])
    assert not column or f"column {column} " in found.what


@pytest.mark.parametrize(
    "stats",
    [
        {"minValues": {"id": 0, "name": ""}, "maxValues": {"id": 1_000, "at": "1971-01-01T00:00:00.000Z"}},
        {"minValues": {"at": "1970-01-01T00:00:01.000091Z"}},
        {"maxValues": {"at": "1970-01-01T00:00:01.000Z"}},
        {"minValues": {"price": 90.25000000000001}},
        {"nullCount": {}, "minValues": {}, "maxValues": {}},
    ],
    ids=json.dumps,
)
def test_statistics_that_are_wide_or_cut_are_true(table: Broken, stats: dict[str, Any]) -> None:
    table.append(9, **stats)
    assert table.findings() == []


def test_short_texts_are_compared(tmp_path: Path) -> None:
    table = Broken(tmp_path / "t", commits=1)
    file = table.path / "short.parquet"
    pq.write_table(pa.table({"id": [1, 2], "name": ["b", "m"]}), file)
    stats = {"numRecords": 2, "minValues": {"name": "b"}, "maxValues": {"name": "l"}}
    add = AddFile(
        path=file.name,
        partition_values={},
        size=file.stat().st_size,
        modification_time=1,
        data_change=True,
        stats=json.dumps(stats),
    )
    table.delta_log().start_transaction().commit([add], WRITE)
    [found] = table.findings()
    assert (found.check, found.files) == ("statistics-bounds", [file.name])


def test_files_that_no_version_needs(table: Broken) -> None:
    orphan = table.path / "orphan.parquet"
    shutil.copy(table.added(1), orphan)
    os.utime(orphan, (OLD_S, OLD_S))
    [found] = table.findings()
    assert (found.check, found.severity, found.files) == ("file-orphaned", Severity.ADVICE, [orphan.name])
    assert found.size_bytes == orphan.stat().st_size


def test_many_small_files(table: Broken) -> None:
    add = json.loads(next(line for line in table.commit_file(1).read_text().splitlines() if '"add"' in line))[
        "add"
    ]
    adds = []
    for number in range(50):
        name = f"small-{number}.parquet"
        os.link(table.added(1), table.path / name)
        adds.append(
            AddFile(
                path=name,
                partition_values={},
                size=add["size"],
                modification_time=1,
                data_change=True,
                stats=add["stats"],
            )
        )
    table.delta_log().start_transaction().commit(adds, WRITE)
    [found] = table.findings()
    assert (found.check, found.severity, found.count) == ("small-files", Severity.ADVICE, 55)


@pytest.fixture
def in_memory() -> Iterator[Callable[[Path], str]]:
    files = fsspec.filesystem("memory")

    def put(path: Path) -> str:
        files.put(str(path), "/doctor/", recursive=True)
        return f"memory://doctor/{path.name}"

    yield put
    files.rm("/doctor", recursive=True)


def test_a_table_in_another_store(table: Broken, in_memory: Callable[[Path], str]) -> None:
    table.checkpoint()
    table.append(5, numRecords=3)
    table.added(2).unlink()
    path = in_memory(table.path)
    found = list(examine(path))
    assert [each.check for each in found] == ["file-missing", "statistics-rows"]


def test_findings_are_json(table: Broken) -> None:
    table.added(1).unlink()
    [found] = json.loads(msgspec.json.encode(table.findings()))
    assert found["severity"] == "error"
    assert found["check"] == "file-missing"
    assert found["repair"]


def test_it_says_how_far_it_is(table: Broken) -> None:
    table.checkpoint()
    seen: list[tuple[str, int, int | None]] = []
    assert list(examine(str(table.path), lambda *step: seen.append(step))) == []
    assert ("commits", 0, 5) in seen
    assert ("checkpoints", 0, 1) in seen
    assert ("footers of files", 0, 5) in seen
