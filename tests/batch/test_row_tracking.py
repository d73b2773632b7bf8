"""Tables with row tracking: rows have ids, which stay when rows are copied or changed."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException

from deltaflow.log import DeltaLog
from deltaflow.tables import DeltaTable
from tests import goldens
from tests.plans import file_scans
from tests.tables import (
    actions,
    commit_info,
    every_action,
    latest_version,
    load,
    operations,
    rows,
    rows_by_deltalake,
    write,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

ENABLED = {"delta.enableRowTracking": "true"}
COLUMNS = ["id", "id div 10 AS p", "CAST(id AS INT) AS v"]
GOLDENS = goldens.GOLDENS / goldens.FEATURES
PRESERVED = "delta.rowTracking.preserved"


def ids_of(frame: DataFrame) -> dict[int, tuple[int, int]]:
    """For each value of the column `id`, the row's id and commit version."""
    found = frame.select("id", "_metadata.row_id", "_metadata.row_commit_version").collect()
    of_rows = {row.id: (row.row_id, row.row_commit_version) for row in found}
    assert len(of_rows) == len(found)
    assert len({row_id for row_id, _ in of_rows.values()}) == len(found), "a row id is there twice"
    return of_rows


def created(spark: SparkSession, path: str, *clauses: str, **properties: str) -> None:
    """A table with row tracking, whose rows 0 to 29 are in three files."""
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in {**ENABLED, **properties}.items())
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, p BIGINT, v INT) USING delta {' '.join(clauses)} "
        f"TBLPROPERTIES ({listed})"
    )
    for first in (0, 10, 20):
        write(spark.range(first, first + 10).selectExpr(*COLUMNS), path)


def golden_row_ids() -> list[Any]:
    manifest = GOLDENS / "manifest.json"
    found = json.loads(manifest.read_text()) if manifest.is_file() else []
    return [pytest.param(entry, id=entry["name"]) for entry in found if entry.get("row_ids")]


@goldens.needed
@pytest.mark.parametrize("entry", golden_row_ids())
def test_row_ids_of_another_writers_tables(spark: SparkSession, entry: dict[str, Any]) -> None:
    files = {int(version): file for version, file in entry["row_ids_versions"].items()}
    files[entry["version"]] = entry["row_ids"]
    for version, file in files.items():
        expected = pq.read_table(GOLDENS / file).to_pylist()
        keys = [name for name in expected[0] if name not in ("row_id", "row_commit_version")]
        frame = load(spark, GOLDENS / entry["path"], versionAsOf=version)
        found = frame.select(*keys, "_metadata.row_id", "_metadata.row_commit_version")
        assert sorted(map(repr, (row.asDict() for row in found.collect()))) == sorted(map(repr, expected))


@goldens.needed
@pytest.mark.parametrize("entry", golden_row_ids())
@pytest.mark.sampled(4)
def test_another_writers_table_goes_on(spark: SparkSession, tmp_path: Path, entry: dict[str, Any]) -> None:
    """Rows of another writer keep their ids when they are changed and copied; new ones are above its mark."""
    path = str(tmp_path / "table")
    shutil.copytree(GOLDENS / entry["path"], path)
    snapshot = DeltaLog.for_table(path).snapshot()
    if "catalogManaged" in (snapshot.protocol.reader_features or ()) or not snapshot.num_files:
        pytest.skip("deltaflow does not write it")
    mark, table = highest_row_id(path), f"delta.`{path}`"
    keys = load(spark, path).columns

    def found() -> dict[int, tuple[Any, ...]]:
        rows_ = load(spark, path).select("_metadata.row_id", "_metadata.row_commit_version", *keys).collect()
        assert len({row.row_id for row in rows_}) == len(rows_)
        return {row.row_id: tuple(row) for row in rows_}

    before = found()
    assert max(before) <= mark
    load(spark, path).limit(2).write.format("delta").mode("append").save(path)
    appended = found()
    assert {row_id: appended[row_id] for row_id in before} == before
    assert min(set(appended) - set(before)) > mark
    key = keys[0]
    one = spark.sql(f"SELECT {key} FROM {table} ORDER BY {key} LIMIT 1").collect()[0][0]
    spark.sql(f"UPDATE {table} SET {keys[-1]} = {keys[-1]} WHERE {key} = {one!r}")
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT {one!r} AS k) s ON t.{key} = s.k "
        f"WHEN MATCHED THEN UPDATE SET {keys[-1]} = t.{keys[-1]}"
    )
    changed = found()
    assert {row_id: row[2:] for row_id, row in changed.items()} == {
        row_id: row[2:] for row_id, row in appended.items()
    }
    version = latest_version(path)
    assert {row[1] for row in changed.values() if row[2] == one} == {version}
    spark.sql(f"OPTIMIZE {table}")
    assert found() == changed


KINDS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "plain": ((), {}),
    "partitioned, mapped by id": (("PARTITIONED BY (p)",), {"delta.columnMapping.mode": "id"}),
    "mapped by name, with vectors": (
        (),
        {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"},
    ),
}
"""Clauses and properties of tables."""
MERGE = (
    "MERGE INTO {0} AS t USING (SELECT explode(sequence(5L, 35L)) AS id) AS s ON t.id = s.id "
    "WHEN MATCHED AND t.id = 27 THEN DELETE "
    "WHEN MATCHED AND t._metadata.row_id > 20 THEN UPDATE SET v = -2 - 0 * t._metadata.row_index "
    "WHEN NOT MATCHED AND s.id < 33 THEN INSERT (id, p, v) VALUES (s.id, 9, 91) "
    "WHEN NOT MATCHED BY SOURCE AND t.id = 2 THEN UPDATE SET v = -3"
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled(3)
def test_rows_keep_their_ids_whatever_rewrites_their_files(
    spark: SparkSession, tmp_path: Path, settings: Any, kind: str
) -> None:
    path = str(tmp_path / "table")
    clauses, properties = KINDS[kind]
    created(spark, path, *clauses, **properties)
    before = ids_of(load(spark, path))
    assert before == {id_: (id_, 1 + id_ // 10) for id_ in range(30)}

    def after(statement: str, changed: set[int], gone: set[int], new: set[int]) -> None:
        nonlocal before
        spark.sql(statement.format(f"delta.`{path}`"))
        now, version = ids_of(load(spark, path)), latest_version(path)
        kept = {
            id_: (row_id, version if id_ in changed else since)
            for id_, (row_id, since) in before.items()
            if id_ not in gone
        }
        assert {id_: value for id_, value in now.items() if id_ not in new} == kept
        assert {now[id_][1] for id_ in new} <= {version}
        used = {row_id for row_id, _ in before.values()}
        assert not used & {now[id_][0] for id_ in new}
        assert set(now) == set(kept) | new
        assert commit_info(path)["tags"] == {PRESERVED: "true"}
        before = now

    after("UPDATE {0} SET v = -1 WHERE id % 7 = 0", {0, 7, 14, 21, 28}, set(), set())
    after("DELETE FROM {0} WHERE id IN (SELECT explode(array(3L, 4L)))", set(), {3, 4}, set())
    after(MERGE, {2, *range(21, 30)}, {27}, {30, 31, 32})
    after("OPTIMIZE {0} ZORDER BY (v)", set(), set(), set())
    after("INSERT INTO {0} REPLACE WHERE id BETWEEN 10 AND 11 SELECT 11L, 1L, 5", set(), {10, 11}, {11})
    after("OPTIMIZE {0}", set(), set(), set())
    after("UPDATE {0} SET v = 8", set(before), set(), set())
    frame = load(spark, path)
    assert frame.columns == ["id", "p", "v"]
    assert frame.where("_metadata.row_id = 17").select("id").collect()[0].id == 17
    assert frame.where("_metadata.row_id >= 0 AND id = 5").count() == 1
    if kind == "plain":
        assert rows(frame) == rows_by_deltalake(path)
    with settings({"spark.sql.parquet.enableVectorizedReader": "false"}):
        assert ids_of(load(spark, path)) == before
    whole = frame.where("id = 5").select("_metadata").collect()[0]["_metadata"]
    assert (whole.row_id, whole.row_commit_version) == before[5]
    assert whole.file_path.endswith(".parquet")
    assert load(spark, path, versionAsOf=3).selectExpr("max(_metadata.row_id)").collect()[0][0] == 29
    statistics = [json.loads(add["stats"]) for add in every_action(path, "add")]
    assert all(len(found.get("minValues", {})) <= 3 for found in statistics)


@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.sampled(2)
def test_rows_keep_their_ids_beside_a_column_named_as_sparks_own(
    spark: SparkSession, tmp_path: Path, vectors: str
) -> None:
    path = str(tmp_path / "table")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id LONG, _metadata STRUCT<x: INT>) USING delta TBLPROPERTIES ("
        f"'delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = '{vectors}')"
    )
    spark.sql(f"INSERT INTO delta.`{path}` SELECT id, named_struct('x', id) FROM range(0, 3, 1, 1)")
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING (SELECT explode(array(1, 5)) AS x) s ON t._metadata.x = s.x "
        "WHEN MATCHED THEN UPDATE SET _metadata.x = 10 WHEN NOT MATCHED THEN INSERT (id) VALUES (s.x)"
    )
    frame = load(spark, path)
    row_id = frame.metadataColumn("_metadata").getField("row_id")
    found = frame.where("id < 5").select("id", "_metadata.x", row_id.alias("row_id"))
    assert sorted(map(tuple, found.collect())) == [(0, 0, 0), (1, 10, 1), (2, 2, 2)]


def test_a_rewrite_by_a_frame_says_that_ids_are_not_kept(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    created(spark, path)
    before = ids_of(load(spark, path))
    write(load(spark, path), path, "overwrite", dataChange=False)
    after = ids_of(load(spark, path))
    assert set(after) == set(before)
    assert min(row_id for row_id, _ in after.values()) > max(row_id for row_id, _ in before.values())
    assert commit_info(path)["tags"] == {PRESERVED: "false"}
    write(spark.range(2).selectExpr(*COLUMNS), path, "overwrite")  # which copies no row
    assert commit_info(path)["tags"] == {PRESERVED: "true"}


def test_row_ids_cost_only_queries_that_ask_them(spark: SparkSession, tmp_path: Path, settings: Any) -> None:
    path = str(tmp_path / "table")
    created(spark, path)
    spark.sql(f"UPDATE delta.`{path}` SET v = -1 WHERE id = 5")
    frame = load(spark, path)

    def read(*columns: str) -> list[str]:
        [scan] = file_scans(frame.select(*columns))
        return list(scan.requiredSchema().fieldNames())

    assert read("id") == ["id"]
    assert read("_metadata.file_path") == []
    assert read("_metadata.base_row_id", "_metadata.default_row_commit_version") == []
    assert [name[:8] for name in read("_metadata.row_commit_version")] == ["_row-com"]
    assert {name[:8] for name in read("_metadata.row_id")} == {"_row-id-", "_tmp_met"}
    default = frame.select("id", "_metadata.base_row_id", "_metadata.default_row_commit_version")
    assert sorted(tuple(row) for row in default.where("id in (4, 15)").collect()) == [(4, 30, 4), (15, 10, 2)]
    # PySpark 4.0 joins no frames by fields of _metadata, not those of Parquet files either.
    joined = spark.sql(
        f"SELECT * FROM delta.`{path}` a JOIN delta.`{path}` b ON a._metadata.row_id = b._metadata.row_id"
    )
    assert joined.where("a.id = b.id").count() == 30
    created(spark, f"{path}-2", **{"delta.enableRowTracking": "false"})
    with pytest.raises(AnalysisException, match="row_id"):
        load(spark, f"{path}-2").select("_metadata.row_id")
    with (
        settings({"spark.sql.optimizer.excludedRules": "io.deltaflow.spark.scan.RowIds"}),
        pytest.raises(Exception, match="deltaflow's rule RowIds"),
    ):
        frame.select("_metadata.row_id").collect()


def test_every_way_into_a_table_gives_ids(spark: SparkSession, tmp_path: Path, settings: Any) -> None:
    path, source = str(tmp_path / "table"), str(tmp_path / "source")
    created(spark, path)
    spark.range(40, 43).write.format("parquet").save(source)
    stream = spark.readStream.schema("id long").parquet(source)
    writer = stream.writeStream.format("delta").option("checkpointLocation", f"{path}-checkpoint")
    writer.trigger(availableNow=True).start(path).awaitTermination()
    assert {row_id for row_id, _ in ids_of(load(spark, path)).values()} == set(range(33))
    with settings({"spark.databricks.delta.properties.defaults.enableRowTracking": "true"}):
        DeltaTable.convertToDelta(spark, f"parquet.`{source}`")
        spark.sql(f"CREATE TABLE delta.`{path}-as` USING delta AS SELECT * FROM delta.`{path}`")
    assert {row_id for row_id, _ in ids_of(load(spark, source)).values()} == {0, 1, 2}
    assert {row_id for row_id, _ in ids_of(load(spark, f"{path}-as")).values()} == set(range(33))
    spark.sql(f"UPDATE delta.`{path}` SET v = 0 WHERE id = 3")
    before, mark = ids_of(load(spark, path)), highest_row_id(path)
    spark.sql(f"CREATE TABLE delta.`{path}-clone` SHALLOW CLONE delta.`{path}`")
    assert set(ids_of(load(spark, f"{path}-clone"))) == set(before)
    write(spark.range(3).selectExpr(*COLUMNS), path, "overwrite")
    assert {row_id for row_id, _ in ids_of(load(spark, path)).values()} == {mark + 1, mark + 2, mark + 3}
    DeltaTable.forPath(spark, path).restoreToVersion(latest_version(path) - 1)
    assert ids_of(load(spark, path)) == before
    assert highest_row_id(path) == mark + 3
    with settings({"spark.databricks.delta.autoCompact.minNumFiles": "2"}):
        write(spark.range(50, 52).selectExpr(*COLUMNS), path, autoCompact=True)
    assert operations(path)[-1] == "OPTIMIZE"
    assert ids_of(load(spark, path)).items() > before.items()
    spark.sql(f"CREATE OR REPLACE TABLE delta.`{path}` USING delta AS SELECT 1L AS id")
    spark.sql(f"INSERT OVERWRITE delta.`{path}` VALUES (5L), (6L)")
    assert all(add["baseRowId"] > mark for add in actions(path, "add"))


def highest_row_id(path: str) -> int:
    domain = DeltaLog.for_table(path).snapshot().domains["delta.rowTracking"]
    number: int = json.loads(domain.configuration)["rowIdHighWaterMark"]
    return number


def test_it_is_enabled_later_and_dropped(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    created(spark, path, **{"delta.enableRowTracking": "false"})
    enable = f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"

    def names() -> set[str]:
        configuration = DeltaLog.for_table(path).snapshot().metadata.configuration
        return {value for name, value in configuration.items() if "materialized" in name}

    assert not names()
    spark.sql(enable)
    assert operations(path)[-3:] == ["UPGRADE PROTOCOL", "ROW TRACKING BACKFILL", "SET TBLPROPERTIES"]
    version = latest_version(path)
    assert commit_info(path)["tags"] == {"rowTrackingEnablementOnly": "true"}
    assert not any(add["dataChange"] for add in actions(path, "add", version - 1))
    before, old_names = ids_of(load(spark, path)), names()
    assert {since for _, since in before.values()} == {version - 1}
    spark.sql(f"UPDATE delta.`{path}` SET v = 0 WHERE id < 15")
    kept = {id_: (row_id, version + 1 if id_ < 15 else since) for id_, (row_id, since) in before.items()}
    assert ids_of(load(spark, path)) == kept
    spark.sql(f"ALTER TABLE delta.`{path}` DROP FEATURE rowTracking")
    assert operations(path)[-3:] == ["SET TBLPROPERTIES", "ROW TRACKING UNBACKFILL", "DROP FEATURE"]
    snapshot = DeltaLog.for_table(path).snapshot()
    assert "rowTracking" not in (snapshot.protocol.writer_features or ())
    assert (snapshot.files["base_row_id"].null_count, snapshot.domains, names()) == (3, {}, set())
    assert not any("rowTracking" in name.lower() for name in snapshot.metadata.configuration)
    write(spark.range(30, 32).selectExpr(*COLUMNS), path)
    spark.sql(enable)
    assert not names() & old_names
    assert len(ids_of(load(spark, path))) == 32
    DeltaTable.forPath(spark, path).restoreToVersion(version + 1)
    assert ids_of(load(spark, path)) == kept
    write(spark.range(40, 42).selectExpr(*COLUMNS), path)
    assert ids_of(load(spark, path)).items() > kept.items()


def test_a_restore_of_ids_brings_no_row_again(spark: SparkSession, tmp_path: Path) -> None:
    """Files that the table has without the ids of the restored version are added again, as no change."""
    path, copy = str(tmp_path / "table"), str(tmp_path / "copy")
    created(spark, path, **{"delta.enableChangeDataFeed": "true"})
    before, version = ids_of(load(spark, path)), latest_version(path)

    def copied() -> int:
        stream = spark.readStream.format("delta").load(path).writeStream.format("delta")
        stream = stream.option("checkpointLocation", f"{copy}-checkpoint").trigger(availableNow=True)
        stream.start(copy).awaitTermination()
        return load(spark, copy).count()

    assert copied() == 30
    spark.sql(f"ALTER TABLE delta.`{path}` DROP FEATURE rowTracking")
    [row] = DeltaTable.forPath(spark, path).restoreToVersion(version).collect()
    assert (row.num_restored_files, row.num_removed_files) == (0, 0)
    assert ids_of(load(spark, path)) == before
    assert not any(add["dataChange"] for add in actions(path, "add"))
    assert copied() == 30
    feed = load(spark, path, readChangeFeed="true", startingVersion=version + 1)
    assert feed.collect() == []
    log = DeltaLog.for_table(path)
    assert log.checksum_differences(log.snapshot()) == {}


CHANGES = {
    "append": "INSERT INTO {0} SELECT {2} * 1000L + id, id, 1 FROM range(3)",
    "update": "UPDATE {0} SET v = v + 1 WHERE id % 3 = {1} % 3",
    "delete": "DELETE FROM {0} WHERE id % 7 = {1}",
    "merge": "MERGE INTO {0} AS t USING (SELECT explode(sequence({1}L, {1} + 4L)) AS id) AS s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET v = 9 WHEN NOT MATCHED THEN INSERT (id, p, v) VALUES (s.id, 1, 1)",
    "optimize": "OPTIMIZE {0}",
    "replace": "INSERT INTO {0} REPLACE WHERE v = 9 SELECT id, p, v FROM {0} WHERE false",
}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.long
def test_the_ids_of_rows_never_change_and_never_repeat(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    path = str(tmp_path / "table")
    created(spark, path, **{"delta.enableDeletionVectors": chance.choice(["false", "true"])})
    owners = {row_id: id_ for id_, (row_id, _) in ids_of(load(spark, path)).items()}
    before = dict.fromkeys(owners.values())
    for step in range(1, 7):
        change, number = chance.choice(list(CHANGES)), chance.randrange(10)
        spark.sql(CHANGES[change].format(f"delta.`{path}`", number, step))
        now = ids_of(load(spark, path))
        for id_, (row_id, _) in now.items():
            assert (row_id in owners) is (id_ in before), (id_, row_id)
            assert owners.setdefault(row_id, id_) == id_
        before = dict.fromkeys(now)
