"""DELETE, UPDATE and MERGE on tables with delta.enableDeletionVectors: they mark rows as deleted, and leave
the same rows as in a table without deletion vectors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyspark.sql import functions as F

from deltaflow import DeltaTable
from deltaflow.cli import main
from deltaflow.errors import (
    DeltaConcurrentModificationException,
    DeltaError,
    DeltaIllegalStateException,
    DeltaUnsupportedOperationException,
)
from deltaflow.log import DeltaLog
from deltaflow.log.files.deletion_vectors import vector_uris
from tests.deletion_vectors import mark_deleted, paths
from tests.tables import (
    actions,
    commit_file,
    commit_info,
    data_files,
    edit_commit,
    ids,
    latest_version,
    load,
    operations,
    rows,
    rows_by_deltalake,
    write,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ON = "delta.enableDeletionVectors"
COLUMNS = (
    "id BIGINT, v BIGINT, st STRUCT<x: BIGINT, y: STRING>, c CHAR(4), p STRING DEFAULT 'none', "
    "g BIGINT GENERATED ALWAYS AS (v * 10)"
)
FEATURES = {"delta.feature.allowColumnDefaults": "supported", "delta.constraints.small": "v < 1000"}
MAPPED = {"delta.columnMapping.mode": "name", "delta.randomizeFilePrefixes": "true"}
SOURCE = "(SELECT explode(array(5L, 6L, 7L, 8L, 30L, 200L, 201L)) AS k, 'new' AS s) AS s ON target.id = s.k"
HISTORY = {
    "delete by place": "DELETE FROM {0} WHERE _metadata.row_index = 1 AND _metadata.file_size > 0",
    "update by place": "UPDATE {0} SET v = 7 WHERE _metadata.row_index >= 0 AND id = 27",
    "merge by place": "MERGE INTO {0} AS target USING (SELECT 29L AS k) AS s "
    "ON target.id = s.k AND target._metadata.row_index > 1 "
    "WHEN MATCHED THEN UPDATE SET st = struct(k AS x, target._metadata.file_block_start AS y)",
    "delete": "DELETE FROM {0} WHERE id % 10 = 3",
    "delete what is deleted and more": "DELETE FROM {0} WHERE id % 10 = 3 OR c = 'c1'",
    "delete nothing": "DELETE FROM {0} WHERE id = 13",
    "update": "UPDATE {0} SET v = v + 100, st.y = 'new' WHERE id % 10 = 4",
    "update what was updated, and partitions": "UPDATE {0} SET p = 'moved', c = DEFAULT "
    "WHERE v BETWEEN 100 AND 130",
    "merge": f"MERGE INTO {{0}} AS target USING {SOURCE} WHEN MATCHED AND k = 5 THEN DELETE "
    "WHEN MATCHED AND k = 6 THEN UPDATE SET c = s, v = k "
    "WHEN MATCHED THEN UPDATE SET v = -v "
    "WHEN NOT MATCHED AND k = 200 THEN INSERT (id, v, c) VALUES (k, 1, s) "
    "WHEN NOT MATCHED BY SOURCE AND id > 45 THEN UPDATE SET v = 0 "
    "WHEN NOT MATCHED BY SOURCE AND id > 40 THEN DELETE",
    "merge that deletes a row twice": "MERGE INTO {0} AS target "
    "USING (SELECT explode(array(31L, 31L)) AS k) AS s ON target.id = s.k WHEN MATCHED THEN DELETE",
    "delete all of a file": "DELETE FROM {0} WHERE id < 20",
    "delete a partition": "DELETE FROM {0} WHERE p = 'moved'",
    "delete the rest": "DELETE FROM {0} WHERE v IS NULL OR v IS NOT NULL",
}
COUNTS = {
    "numDeletedRows",
    "numUpdatedRows",
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsDeleted",
    "numTargetRowsMatchedUpdated",
    "numTargetRowsNotMatchedBySourceUpdated",
    "numTargetRowsNotMatchedBySourceDeleted",
}


def make(spark: SparkSession, path: Path, properties: dict[str, str], *, partitioned: bool) -> str:
    """A table of three files or, if it is partitioned, six: ids from 0 to 59, 20 in each commit."""
    given = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    by = "PARTITIONED BY (p)" if partitioned else ""
    spark.sql(f"CREATE TABLE delta.`{path}` ({COLUMNS}) USING delta {by} TBLPROPERTIES ({given})")
    for first in (0, 20, 40):
        frame = spark.range(first, first + 20).selectExpr(
            "id",
            "id AS v",
            "struct(id AS x, cast(id AS STRING) AS y) AS st",
            "concat('c', id % 7) AS c",
            "if(id % 2 = 0, 'even', null) AS p",
        )
        write(frame, path)
    return str(path)


def marks(table: str, version: int | None = None) -> dict[str, int]:
    """How many rows of each file a commit says are deleted, for files that it adds with a vector."""
    adds = actions(table, "add", version)
    return {a["path"]: a["deletionVector"]["cardinality"] for a in adds if "deletionVector" in a}


SHORT = ("update", "merge", "delete all of a file")


@pytest.mark.parametrize("is_mapped", [True, False])
@pytest.mark.sampled(2)
def test_the_rows_are_those_of_a_table_without_vectors(
    spark: SparkSession, tmp_path: Path, settings: Any, *, is_mapped: bool
) -> None:
    """The table with column mapping is partitioned, too, and its log tells nothing of the rows."""
    properties = FEATURES | (MAPPED if is_mapped else {})
    same = make(spark, tmp_path / "same", properties, partitioned=is_mapped)
    table = make(spark, tmp_path / "table", properties | {ON: "true"}, partitioned=is_mapped)
    if is_mapped:
        for version in range(1, 4):
            edit_commit(table, lambda action: action.get("add", {}).pop("stats", None), version)
    for name, statement in HISTORY.items():
        if not is_mapped and name not in SHORT:
            continue
        before = (latest_version(table), set(paths(table)), latest_version(same))
        spark.sql(statement.format(f"delta.`{same}`")).collect()
        spark.sql(statement.format(f"delta.`{table}`")).collect()
        assert rows(load(spark, table)) == rows(load(spark, same)), name
        changes = latest_version(table) > before[0]
        assert changes is (latest_version(same) > before[2]) is ("nothing" not in name)
        if not changes:
            continue
        found, expected = (commit_info(path)["operationMetrics"] for path in (table, same))
        assert {key: found[key] for key in COUNTS & found.keys()} == {
            key: expected[key] for key in COUNTS & expected.keys()
        }, name
        if "partition" not in name or not is_mapped:
            assert found.get("numCopiedRows", found.get("numTargetRowsCopied")) == "0", name
        check_commit(table, before[1])
        if name == "merge":
            with settings({"spark.sql.readSideCharPadding": "false"}):
                assert rows_by_deltalake(table) == rows(load(spark, table))
            DeltaLog.for_table(table).checkpoint()
    assert load(spark, table).count() == len(rows(load(spark, same)))
    assert bool(paths(table)) is not is_mapped


def check_commit(table: str, files_before: set[str]) -> None:
    """What the commit of an operation that marks rows says of files and vectors."""
    adds, removes = actions(table, "add"), {remove["path"]: remove for remove in actions(table, "remove")}
    metrics = commit_info(table)["operationMetrics"]
    of = "numTarget" if commit_info(table)["operation"] == "MERGE" else "num"
    marked = [add for add in adds if "deletionVector" in add]
    assert metrics[f"{of}DeletionVectorsAdded"] == str(len(marked))
    had = {path for path, remove in removes.items() if "deletionVector" in remove}
    assert metrics[f"{of}DeletionVectorsRemoved"] == str(len(had))
    assert metrics[f"{of}DeletionVectorsUpdated"] == str(len(had & {add["path"] for add in marked}))
    gone = removes.keys() - {add["path"] for add in marked}
    assert metrics[f"{of}FilesRemoved" if of == "numTarget" else "numRemovedFiles"] == str(len(gone))
    for add in marked:
        stats, remove = json.loads(add["stats"]), removes[add["path"]]
        assert add["path"] in files_before
        assert stats["tightBounds"] is False
        assert 0 < add["deletionVector"]["cardinality"] < stats["numRecords"]
        assert json.loads(remove["stats"]) == {"numRecords": stats["numRecords"]}
        assert remove.get("deletionVector") != add["deletionVector"]
    # All new vectors of a commit are in one file.
    assert len({add["deletionVector"]["pathOrInlineDv"] for add in marked}) <= 1
    new = [add for add in adds if "deletionVector" not in add]
    assert {add["path"] for add in new}.isdisjoint(files_before)


def delete(table: DeltaTable) -> None:
    table.delete(F.col("id") % 5 == 0)


def update(table: DeltaTable) -> None:
    table.update("id % 5 = 0", {"v": "v + 1"})


def merge(table: DeltaTable) -> None:
    source = table.toDF().where("id % 5 = 0").selectExpr("id", "v + 1 AS v").alias("s")
    table.alias("t").merge(source, "t.id = s.id").whenMatchedUpdate(set={"v": "s.v"}).execute()


OPERATIONS: dict[str, Callable[[DeltaTable], None]] = {"delete": delete, "update": update, "merge": merge}


def numbers(spark: SparkSession, table: Path, **options: str) -> str:
    """Two files of 20 rows each, with deletion vectors allowed."""
    for first in (0, 20):
        frame = spark.range(first, first + 20).selectExpr("id", "id AS v")
        write(frame, table, **{ON: "true", **options})
    return str(table)


def test_vectors_of_others_are_merged_with_new_ones(spark: SparkSession, tmp_path: Path) -> None:
    table = numbers(spark, tmp_path / "table")
    [first], [second] = ([add["path"] for add in actions(table, "add", version)] for version in (0, 1))
    mark_deleted(table, {first: range(10)}, is_inline=True)
    mark_deleted(table, {second: [0, 1]})
    files = data_files(table)
    DeltaTable.forPath(spark, table).delete("id % 5 = 0")
    live = [i for i in range(10, 40) if i % 5 and i not in (20, 21)]
    assert marks(table) == {first: 12, second: 5}
    assert data_files(table) == files
    assert rows(load(spark, table)) == rows_by_deltalake(table)
    assert ids(load(spark, table)) == live
    assert load(spark, table).count() == len(live)
    assert load(spark, table).agg(F.min("id"), F.max("id")).first() == (11, 39)
    # A clone marks rows of the files of its origin in vectors of its own.
    clone = str(tmp_path / "clone")
    DeltaTable.forPath(spark, table).clone(clone, isShallow=True)
    DeltaTable.forPath(spark, clone).update("id = 11", {"v": "-1"})
    assert {a["deletionVector"]["storageType"] for a in actions(clone, "add") if "deletionVector" in a} == {
        "u"
    }
    assert load(spark, clone).count() == len(live)
    assert load(spark, clone).where("v = -1").count() == 1


@pytest.mark.long
def test_the_doors_to_the_property(spark: SparkSession, tmp_path: Path, settings: Any) -> None:
    tables = [str(tmp_path / name) for name in ("created", "altered", "written", "default", "old")]
    created, altered, written, default, old = tables
    frame = spark.range(40).selectExpr("id", "id AS v").coalesce(1)
    spark.sql(f"CREATE TABLE delta.`{created}` (id LONG, v LONG) USING delta TBLPROPERTIES ('{ON}' = 'true')")
    write(frame, created)
    write(frame, altered)
    spark.sql(f"ALTER TABLE delta.`{altered}` SET TBLPROPERTIES ('{ON}' = true)")
    write(frame, written, **{ON: "true"})
    with settings({"spark.databricks.delta.properties.defaults.enableDeletionVectors": "true"}):
        write(frame, default)
    write(frame, old)
    for table in tables:
        update(DeltaTable.forPath(spark, table))
        assert bool(marks(table)) is (table != old)
        if table != old:
            protocol = DeltaLog.for_table(table).snapshot().protocol
            assert protocol.reader_features == ["deletionVectors"]
            assert set(protocol.writer_features or ()) == {"appendOnly", "deletionVectors", "invariants"}
    # Vectors that are there stay when no new ones are allowed.
    spark.sql(f"ALTER TABLE delta.`{altered}` SET TBLPROPERTIES ('{ON}' = false)")
    delete(DeltaTable.forPath(spark, altered))
    assert not marks(altered)
    assert load(spark, altered).count() == 32


def test_a_wrong_number_in_the_log_stops_every_operation(spark: SparkSession, tmp_path: Path) -> None:
    for said in (4, 50):
        table = numbers(spark, tmp_path / str(said))
        log = commit_file(table, 1)
        log.write_text(log.read_text().replace('\\"numRecords\\":20', f'\\"numRecords\\":{said}'))
        log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
        version, files = latest_version(table), set(Path(table).rglob("*.*"))
        for operation in OPERATIONS.values():
            with pytest.raises(DeltaError, match="NUM_RECORDS_MISMATCH"):
                operation(DeltaTable.forPath(spark, table))
        assert latest_version(table) == version
        assert set(Path(table).rglob("*.*")) == files


def test_a_condition_that_changes_writes_the_rows_that_were_marked(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Functions that claim to be deterministic, and are not, are found by nobody beforehand."""
    table = numbers(spark, tmp_path / "table")
    calls = tmp_path / "calls"

    def holds(value):
        """Of odd values, and of even ones from the second time on."""
        with calls.open("ab") as file:
            file.write(b".")
        return value % 2 == (1 if calls.stat().st_size <= 40 else 0)

    condition = F.udf(holds, "boolean")(F.col("id"))
    DeltaTable.forPath(spark, table).update(condition, {"v": F.lit(-1)})
    assert calls.stat().st_size == 40
    found = {row.id: row.v for row in load(spark, table).collect()}
    assert found == {i: -1 if i % 2 else i for i in range(40)}


def test_nothing_stays_of_an_operation_that_fails(
    spark: SparkSession, tmp_path: Path, at: Callable[[str, Callable[[], object]], None]
) -> None:
    """After the vectors are written: another DELETE of the same file wins; an append wins; and a failure."""
    table = numbers(spark, tmp_path / "table")
    others: list[Callable[[], object]] = [
        lambda: DeltaTable.forPath(spark, table).delete(f"id = {latest_version(table)} + 10"),
        lambda: write(spark.sql(f"SELECT {latest_version(table) + 100}L AS id, 0L AS v"), table),
    ]
    for other in others:
        for operation in OPERATIONS.values():
            before = {file.name for file in Path(table).glob("deletion_vector_*.bin")}
            files = data_files(table)
            at("vectors written", other)
            with pytest.raises(DeltaConcurrentModificationException):
                operation(DeltaTable.forPath(spark, table))
            of_winner = bool(marks(table))
            after = {file.name for file in Path(table).glob("deletion_vector_*.bin")}
            assert len(after - before) == of_winner
            assert len(data_files(table) - files) == (not of_winner)
    at("vectors written", _stop)
    with pytest.raises(RuntimeError, match="stopped"):
        delete(DeltaTable.forPath(spark, table))
    assert {file.name for file in Path(table).glob("deletion_vector_*.bin")} == after


def _stop() -> None:
    raise RuntimeError("stopped")


@pytest.mark.long
def test_a_process_that_dies_before_its_commit_changes_nothing(
    spark: SparkSession, tmp_path: Path, at: Callable[[str, Callable[[], object]], None], settings: Any
) -> None:
    """What is on the disk at a point is what a killed process leaves there."""
    table = numbers(spark, tmp_path / "table")
    DeltaTable.forPath(spark, table).delete("id = 1")
    expected = rows(load(spark, table))
    for point in ("files written", "vectors written", "commit prepared"):
        left = str(tmp_path / point)
        at(point, partial(shutil.copytree, table, left))
        DeltaTable.forPath(spark, table).update(f"id % 7 = {len(point) % 5}", {"v": "-1"})
        assert rows(load(spark, left)) == expected
        assert len(list(Path(left).glob("deletion_vector_*.bin"))) == len(list(Path(table).glob("*.bin"))) - (
            point == "files written"
        )
        assert CliRunner().invoke(main, ["doctor", left]).output.splitlines() == ["Nothing was found."]
        update(DeltaTable.forPath(spark, left))
        assert load(spark, left).count() == len(expected)
        with settings({"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
            DeltaTable.forPath(spark, left).vacuum(0)
        named = set(vector_uris(DeltaLog.for_table(left).snapshot().files["deletion_vector"]))
        assert {file.name for file in Path(left).glob("*.bin")} == named
        expected = rows(load(spark, table))


def test_refusals_are_those_of_tables_without_vectors(spark: SparkSession, tmp_path: Path) -> None:
    table = numbers(spark, tmp_path / "table")
    source = spark.createDataFrame([(1, 2), (1, 3)], "id long, v long").alias("s")
    several = DeltaTable.forPath(spark, table).alias("t").merge(source, "t.id = s.id").whenMatchedUpdateAll()
    with pytest.raises(DeltaUnsupportedOperationException, match="MULTIPLE_SOURCE_ROW"):
        several.execute()
    spark.sql(f"ALTER TABLE delta.`{table}` ADD CONSTRAINT few CHECK (v < 100)")
    with pytest.raises(DeltaError, match="few"):
        DeltaTable.forPath(spark, table).update("id = 7", {"v": "1000"})
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    with pytest.raises(DeltaError, match="APPEND_ONLY"):
        DeltaTable.forPath(spark, table).delete("id = 7")
    assert load(spark, table).count() == 40
    assert not list(Path(table).glob("deletion_vector_*.bin"))


def test_an_idempotent_operation_runs_once(spark: SparkSession, tmp_path: Path, settings: Any) -> None:
    table = numbers(spark, tmp_path / "table")
    names = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")
    for version in ("1", "1", "2"):
        with settings(dict(zip(names, ("app", version), strict=True))):
            DeltaTable.forPath(spark, table).update("id % 5 = 0", {"v": "v + 1"})
    assert load(spark, table).where("v = id + 2").count() == 8
    assert latest_version(table) == 3


def test_a_stream_takes_marks_for_changes(spark: SparkSession, tmp_path: Path) -> None:
    table = numbers(spark, tmp_path / "table")

    def run(**options: str) -> list[int]:
        out = str(tmp_path / f"out {options}")
        stream = spark.readStream.format("delta").options(startingVersion="0", **options).load(table)
        query = stream.writeStream.format("delta").option("checkpointLocation", out + "-checkpoint")
        query.trigger(availableNow=True).start(out).awaitTermination()
        return sorted(row.id for row in load(spark, out).collect())

    delete(DeltaTable.forPath(spark, table))
    with pytest.raises(Exception, match="DELTA_SOURCE_TABLE_IGNORE_CHANGES"):
        run(ignoreDeletes="true")
    assert run(skipChangeCommits="true") == list(range(40))


def test_settings_and_manifests(spark: SparkSession, tmp_path: Path) -> None:
    """Files of a table with manifests are rewritten, as a manifest cannot name deleted rows."""
    options = {"delta.compatibility.symlinkFormatManifest.enabled": "true"}
    table = numbers(spark, tmp_path / "table", **options)
    delete(DeltaTable.forPath(spark, table))
    assert not marks(table)
    assert load(spark, table).count() == 32
    # Where rows are marked already, manifests cannot be switched on.
    marked = numbers(spark, tmp_path / "marked")
    delete(DeltaTable.forPath(spark, marked))
    alter = f"ALTER TABLE delta.`{marked}` SET TBLPROPERTIES ('{next(iter(options))}' = 'true')"
    with pytest.raises(Exception, match=r"have deletion vectors. Rewrite these files first") as refused:
        spark.sql(alter)
    assert "DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED" in str(refused.value)
    assert operations(marked)[-1] == "DELETE"
    spark.sql(f"REORG TABLE delta.`{marked}` APPLY (PURGE)")
    spark.sql(alter)
    assert Path(marked, "_symlink_format_manifest", "manifest").exists()


@pytest.mark.long
def test_many_marks(spark: SparkSession, tmp_path: Path) -> None:
    """In several buckets of 32,768 rows, and in several row groups."""
    table = str(tmp_path / "table")
    frame = spark.range(0, 200_000, 1, 2).selectExpr("id", "id AS v")
    frame.write.format("delta").options(**{ON: "true", "parquet.block.size": "65536"}).save(table)
    DeltaTable.forPath(spark, table).delete("id % 3 = 0 OR id BETWEEN 32760 AND 98310")
    DeltaTable.forPath(spark, table).update("id % 7 = 1", {"v": "-1"})
    live = [i for i in range(200_000) if i % 3 and not 32_760 <= i <= 98_310]
    found = load(spark, table).agg(F.count("*"), F.sum("id"), F.count_if(F.col("v") == -1)).first()
    assert found == (len(live), sum(live), sum(i % 7 == 1 for i in live))


def test_errors_name_the_file(spark: SparkSession, tmp_path: Path) -> None:
    table = numbers(spark, tmp_path / "table")
    log = commit_file(table, 0)
    log.write_text(log.read_text().replace('\\"numRecords\\":20', '\\"numRecords\\":21'))
    log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
    with pytest.raises(
        DeltaIllegalStateException, match=r"the log says 21 rows, and the file has 20"
    ) as raised:
        delete(DeltaTable.forPath(spark, table))
    assert raised.value.file in paths(table)
