"""Hostile logs where Spark reads and writes: errors say what cannot be done; nothing outside changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException, UnknownException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from deltaflow.errors import DeltaError
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol, remove
from tests.security.conftest import SECRET, streamed

pytestmark = [pytest.mark.spark, pytest.mark.breaks_protocol]

PART = "a/../../../outside/p`x"
SCHEMA = T.StructType([T.StructField("id", T.LongType()), T.StructField(PART, T.StringType())])
HERE = "../../outside/p=1"
"""A partition's value; new files of the partition are in the table nevertheless."""
PROTOCOL = protocol(
    3, 7, readerFeatures=["deletionVectors"], writerFeatures=["deletionVectors", "changeDataFeed"]
)


@pytest.fixture
def table(tmp_path: Path) -> HandWrittenTable:
    return HandWrittenTable(tmp_path / "table")


def parquet(file: Path, *ids: int) -> int:
    """Writes a data file with these ids, and returns its size."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), file)
    return file.stat().st_size


def add_of(path: str, size: int, **fields: Any) -> dict[str, Any]:
    return add(path, size=size, partitionValues={PART: HERE}, **fields)


ELSEWHERE = [
    "../outside/0.parquet",
    "{outside}/1.parquet",
    "file:{outside}/2.parquet",
    "%2E%2e/outside/3.parquet",
    "link/4.parquet",
    "5.parquet",
]


@pytest.fixture
def elsewhere(table: HandWrittenTable, tmp_path: Path) -> HandWrittenTable:
    """A table whose files are outside of it, by each kind of path, with the ids 2n and 2n + 1. In version 0
    it had another one."""
    outside = tmp_path / "outside"
    size = 0
    for number in range(len(ELSEWHERE)):
        size = parquet(outside / f"{number}.parquet", 2 * number, 2 * number + 1)
    gone = parquet(outside / "gone.parquet", 100)
    Path(table.path, "link").symlink_to(outside)
    Path(table.path, "5.parquet").symlink_to(outside / "5.parquet")
    adds = [add_of(path.format(outside=outside), size) for path in ELSEWHERE]
    of_gone = {"partitionValues": {PART: HERE}, "size": gone}
    configuration = {"delta.enableChangeDataFeed": "true"}
    table.commit(
        0,
        PROTOCOL,
        meta_data(schema=SCHEMA, partition_columns=[PART], configuration=configuration),
        add_of("../outside/gone.parquet", gone),
    )
    cdc = {"path": "../outside/change.parquet", "dataChange": False, **of_gone}
    pq.write_table(pa.table({"id": [100], "_change_type": ["delete"]}), outside / "change.parquet")
    table.commit(1, {"cdc": cdc}, remove("../outside/gone.parquet", **of_gone), *adds)
    return table


MERGE = "MERGE INTO {t} t USING (SELECT 6L AS id) s ON s.id = t.id WHEN MATCHED THEN UPDATE SET id = 600"
LISTED = ["{p}", "{o}/secret.parquet", "file:{o}/secret.parquet", "file:{t}/../outside/secret.parquet"]
LISTED += ["{t}/link/secret.parquet", "{t}/../outside/secret.parquet"]
INVENTORY = " UNION ALL ".join(
    f"SELECT '{path}' AS path, 1L AS length, false AS isDir, 1L AS modificationTime" for path in LISTED
)
RETAIN_NOTHING = {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}


def test_no_operation_changes_what_is_outside(
    spark: SparkSession, elsewhere: HandWrittenTable, outside: Path, settings: Any
) -> None:
    path, name = elsewhere.path, f"delta.`{elsewhere.path}`"
    clone, target = f"{path}-clone", f"{path}-target"
    before = {str(file) for file in outside.rglob("*")}

    def ids(of: str = path) -> list[int]:
        return sorted(row.id for row in spark.read.format("delta").load(of).collect())

    everything = list(range(2 * len(ELSEWHERE)))
    assert ids() == everything
    assert spark.sql(f"SELECT id FROM table_changes_by_path('{path}', 1)").collect() == [(100,)]
    spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE {name}").collect()
    streamed(spark.readStream.format("delta").load(path), target)
    assert ids(target) == ids(clone) == everything
    with settings(RETAIN_NOTHING):
        for of in (path, clone):
            spark.sql(f"DELETE FROM delta.`{of}` WHERE id = 2")
            spark.sql(f"UPDATE delta.`{of}` SET id = 400 WHERE id = 4")
            spark.sql(MERGE.format(t=f"delta.`{of}`")).collect()
            left = [*(one for one in everything if one not in (2, 4, 6)), 400, 600]
            assert ids(of) == left
            spark.sql(f"OPTIMIZE delta.`{of}`").collect()
            assert ids(of) == left
            inventory = INVENTORY.format(p=path, o=outside, t=of)
            spark.sql(f"VACUUM delta.`{of}` USING INVENTORY ({inventory}) RETAIN 0 HOURS").collect()
            spark.sql(f"VACUUM delta.`{of}` RETAIN 0 HOURS").collect()
            assert ids(of) == left
        spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF 1").collect()
        assert ids() == everything
        spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF 0").collect()
        assert ids() == [100]
    assert {str(file) for file in outside.rglob("*")} == before
    left_around = {file.name for file in Path(path).parent.iterdir()}
    assert left_around == {"table", "table-clone", "table-target", "table-target-checkpoint", "outside"}


UNREADABLE = [
    "link/secret.parquet",
    "nothing://host/x.parquet",
    "_delta_log/00000000000000000000.json",
    "%2A.parquet",
]
STATEMENTS = [
    "SELECT * FROM {t}",
    "DELETE FROM {t} WHERE id > 0",
    "UPDATE {t} SET id = 2 WHERE id > 0",
    MERGE,
    "OPTIMIZE {t}",
    "REORG TABLE {t} APPLY (PURGE)",
]


@pytest.mark.parametrize("path", UNREADABLE)
@pytest.mark.sampled(2)
def test_what_is_no_data_file(spark: SparkSession, table: HandWrittenTable, outside: Path, path: str) -> None:
    Path(table.path, "link").symlink_to(outside)
    size = parquet(Path(table.path, "a.parquet"), 1)
    table.commit(
        0,
        PROTOCOL,
        meta_data(schema=SCHEMA, partition_columns=[PART]),
        add_of("a.parquet", size),
        add_of(path, len(SECRET)),
    )
    chosen = STATEMENTS if path == UNREADABLE[0] else STATEMENTS[:2]
    doors: list[Callable[[], object]] = [
        *(lambda text=text: spark.sql(text.format(t=f"delta.`{table.path}`")).collect() for text in chosen),
        lambda: streamed(spark.readStream.format("delta").load(table.path), f"{table.path}-target"),
    ]
    for door in doors:
        with pytest.raises((PySparkException, DeltaError)) as error:
            door()
        assert not isinstance(error.value, UnknownException), error.value
        assert SECRET not in str(error.value)
    assert table.log().snapshot().version == 0


DEEP = "[" * 100_000
UDT = '{"type":"udt","pyClass":"os.path","sqlType":"long"}'


def of_schema(old: str, new: str) -> str:
    action = meta_data(schema=SCHEMA)
    action["metaData"]["schemaString"] = action["metaData"]["schemaString"].replace(old, new, 1)
    return json.dumps(action)


LATE = {
    "no JSON": ('{"add":', "DELTA_"),
    "a type": (of_schema('"long"', UDT), "DELTA_"),
    "metadata": (of_schema('"metadata":{}', '"metadata":{"comment":5}'), "DELTA_"),
    "a newer protocol": (json.dumps(protocol(3, 7, readerFeatures=["x"], writerFeatures=["x"])), "DELTA_"),
    "values within values": (f'{{"add":{DEEP}', "DELTA_"),
    # The last one, since its batch is planned.
    "no data file": (json.dumps(add("../outside/secret.parquet", size=len(SECRET))), "FAILED_READ_FILE"),
}


def test_a_stream_meets_a_hostile_commit(
    spark: SparkSession, table: HandWrittenTable, outside: Path, tmp_path: Path
) -> None:
    size = parquet(Path(table.path, "a.parquet"), 1)
    table.commit(0, PROTOCOL, meta_data(schema=SCHEMA), add("a.parquet", size=size))
    target = str(tmp_path / "target")
    rows = spark.readStream.format("delta").load(table.path).select("id")
    writer = rows.writeStream.format("delta").option("checkpointLocation", f"{target}-checkpoint")
    for hostile, condition in LATE.values():
        query = writer.start(target)
        try:
            query.processAllAvailable()
            late = table.write(1, f"{hostile}\n".encode())
            with pytest.raises((PySparkException, DeltaError)) as error:
                query.processAllAvailable()
        finally:
            query.stop()
        assert condition in str(error.value)
        assert SECRET not in str(error.value)
        late.unlink()
    assert [row.id for row in spark.read.format("delta").load(target).collect()] == [1]


BROKEN = ["", "{", "[]", '{"numRecords":-5}', '{"numRecords":"x"}', '{"numRecords":1e999}', DEEP]
BROKEN += ['{"numRecords":4,"minValues":{"id":"x"},"maxValues":{"id":[]},"nullCount":{"id":-1}}']


def test_rows_are_marked_in_files_with_broken_statistics(
    spark: SparkSession, table: HandWrittenTable
) -> None:
    adds = []
    for number, stats in enumerate(BROKEN):
        name = f"{number}.parquet"
        adds.append(add(name, size=parquet(Path(table.path, name), *range(4)), stats=stats))
    configuration = {"delta.enableDeletionVectors": "true"}
    schema = T.StructType([T.StructField("id", T.LongType())])
    table.commit(0, PROTOCOL, meta_data(schema=schema, configuration=configuration), *adds)
    spark.sql(f"DELETE FROM delta.`{table.path}` WHERE id = 2")
    rows = spark.read.format("delta").load(table.path)
    assert sorted(row.id for row in rows.collect()) == sorted([0, 1, 3] * len(BROKEN))
    snapshot = table.log().snapshot()
    assert snapshot.files["deletion_vector"].null_count == 0
    assert snapshot.statistics.num_records.to_pylist() == [4] * len(BROKEN)
