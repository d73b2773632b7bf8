"""Tables that list a feature for readers, and what reads and writes them before and after its first use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from deltaflow.cli import main
from deltaflow.tables import DeltaTable
from tests.tables import actions, edit_commit, ids, load, versions, write_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FEATURES = ["typeWidening", "variantType", "variantShredding-preview"]


def listing(spark: SparkSession, folder: Path, *features: str) -> str:
    """A table with the rows 0 to 4 and 5 to 9 in two versions; the first one lists the features."""
    path = folder / "written"
    for first in (0, 5):
        frame = spark.range(first, first + 5).selectExpr("id", "id % 2 AS p").coalesce(1)
        frame.write.format("delta").mode("append").save(str(path))
    lists = {"minReaderVersion": 3, "minWriterVersion": 7}
    lists |= {"readerFeatures": list(features), "writerFeatures": ["appendOnly", "invariants", *features]}
    edit_commit(path, lambda action: action.get("protocol", {}).update(lists))
    for checksum in Path(path, "_delta_log").glob("*.crc"):
        checksum.unlink()
    # Under a name that is in no cache.
    return str(path.rename(folder / "listing"))


def use(path: str) -> None:
    """Commits a change of a type that nobody can read, together with new rows."""
    [file, *_] = actions(path, "add", 0)
    [metadata] = actions(path, "metaData", 0)
    schema = json.loads(metadata["schemaString"])
    schema["fields"][0]["metadata"]["delta.typeChanges"] = [{"fromType": "string", "toType": "long"}]
    Path(path, file["path"] + "2").write_bytes(Path(path, file["path"]).read_bytes())
    write_commit(
        path,
        versions(path)[-1] + 1,
        {"commitInfo": {"timestamp": 0, "operation": "TEST"}},
        {"metaData": {**metadata, "schemaString": json.dumps(schema)}},
        {"add": {**file, "path": file["path"] + "2"}},
    )


def command(*arguments: str) -> list[str]:
    done = CliRunner().invoke(main, [*arguments])
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def reading_doors(spark: SparkSession, path: str, folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """All that reads the newest version of the table."""
    name = f"delta.`{path}`"

    def stream() -> int:
        source = spark.readStream.format("delta").load(path).writeStream.format("memory")
        query = source.queryName("read").trigger(availableNow=True).start()
        query.awaitTermination()
        return spark.table("read").count()

    def clone() -> int:
        DeltaTable.forPath(spark, path).clone(str(folder / "clone"), isShallow=True)
        return load(spark, folder / "clone").count()

    yield "batch", lambda: load(spark, path).where("id >= 0").count()
    yield "count by statistics", lambda: load(spark, path).count()
    yield "largest value by statistics", lambda: load(spark, path).selectExpr("max(id)").first()[0] + 1
    yield "by name", lambda: spark.sql(f"SELECT * FROM {name}").count()
    yield "time travel", lambda: spark.sql(f"SELECT * FROM {name} VERSION AS OF {versions(path)[-1]}").count()
    yield "stream", stream
    yield "clone", clone
    yield "of DeltaTable", lambda: DeltaTable.forPath(spark, path).toDF().where("id < 10").count()
    yield "manifests", lambda: DeltaTable.forPath(spark, path).generate("symlink_format_manifest") or 10


def writing_doors(spark: SparkSession, path: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """All that writes rows, of which those that are there have to be read."""
    name = f"delta.`{path}`"
    yield "delete", lambda: spark.sql(f"DELETE FROM {name} WHERE id = 3")
    yield "update", lambda: spark.sql(f"UPDATE {name} SET p = 7 WHERE id = 4")
    source = "(SELECT 5L AS id) AS s"
    merge = f"MERGE INTO {name} AS t USING {source} ON t.id = s.id WHEN MATCHED THEN UPDATE SET p = 8"
    yield "merge", lambda: spark.sql(merge)
    yield "optimize", lambda: spark.sql(f"OPTIMIZE {name}")
    yield "restore", lambda: spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF 0")


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.sampled(3)
def test_every_door(spark: SparkSession, tmp_path: Path, feature: str) -> None:
    path = listing(spark, tmp_path, feature)
    for door, read in reading_doors(spark, path, tmp_path):
        assert read() == 10, door
    assert len(command("log", path, "files", "--json")) == 2
    assert command("doctor", path) == ["Nothing was found."]
    frame = spark.range(10, 11).selectExpr("id", "id % 2 AS p")
    frame.write.format("delta").mode("append").save(path)
    for _, write in list(writing_doors(spark, path))[:-1]:
        write()
    assert ids(load(spark, path)) == [0, 1, 2, *range(4, 11)]
    assert {row.p for row in load(spark, path).where("id IN (4, 5)").collect()} == {7, 8}
    spark.sql(f"VACUUM delta.`{path}`")
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 1")
    frame.write.format("delta").mode("overwrite").save(path)
    assert ids(load(spark, path)) == [10]
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 1")

    if feature != "typeWidening":
        return
    loaded = load(spark, path)
    use(path)
    before = versions(path)
    doors = [*reading_doors(spark, path, tmp_path / "again"), *writing_doors(spark, path)]
    doors.append(("loaded before", loaded.collect))
    for _, call in doors:
        with pytest.raises(Exception, match="DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA"):
            call()
    assert versions(path) == before
    assert ids(load(spark, path, versionAsOf=1)) == list(range(10))


def test_types_do_not_grow_where_each_change_has_to_be_recorded(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.sql("SELECT 1S AS n").write.format("delta").option("delta.feature.typeWidening", "supported").save(
        path
    )
    writer = spark.sql("SELECT 2 AS n").write.format("delta").mode("append")
    writer.option("mergeSchema", "true").save(path)
    assert load(spark, path).schema.simpleString() == "struct<n:smallint>"
    assert sorted(row.n for row in load(spark, path).collect()) == [1, 2]
