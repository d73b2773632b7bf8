"""A replica of a Delta table that records its changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from deltaflow.streaming import apply_changes
from deltaflow.streaming.cdc import ChangeRows
from tests.feed_tables import FEED
from tests.tables import load, tuples

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]


def test_a_replica(streams: Any, tmp_path: Path) -> None:
    """However the commits are cut into batches: keys that change, that swap, and that come back."""
    source, replica, spark = str(tmp_path / "source"), str(tmp_path / "replica"), streams.spark
    first = pa.table({"id": range(8), "v": range(8)})
    deltalake.write_deltalake(source, first, configuration=FEED)
    table = deltalake.DeltaTable(source)
    table.update(updates={"v": "v + 10"}, predicate="id < 2")
    table.update(updates={"v": "v + 1"})

    def follow(files: int, scd_type: int = 1, **options: str) -> list[tuple[Any, ...]]:
        """The target, after batches of so many files."""
        options |= {"readChangeFeed": "true", "maxFilesPerTrigger": str(files)}
        changes = streams.read(source, **options)
        target = f"{replica}-{scd_type}"
        writer = apply_changes(changes, target, keys="id", envelope=ChangeRows(), scd_type=scd_type)
        writer = writer.option("checkpointLocation", f"{target}-checkpoint").trigger(availableNow=True)
        streams.ended(writer.start())
        return tuples(load(spark, target).select("id", "v"))

    def wanted() -> list[tuple[Any, ...]]:
        return tuples(load(spark, source))

    assert follow(2) == wanted()
    assert load(spark, f"{replica}-1").columns == ["id", "v", "__SEQUENCE"]
    # A row that is there says more than the delete before its update, which nobody has to remember.
    assert not Path(f"{replica}-1", "_changes").exists()
    table.update(updates={"id": "CASE id WHEN 2 THEN 3 ELSE 2 END"}, predicate="id IN (2, 3)")
    table.delete("id IN (5, 6)")
    deltalake.write_deltalake(source, pa.table({"id": [5, 9], "v": [50, 90]}), mode="append")
    deltalake.DeltaTable(source).update(updates={"id": "id + 100"}, predicate="id = 7")
    assert follow(2) == wanted()
    deltalake.write_deltalake(source, pa.table({"id": [9, 10], "v": [91, 100]}), mode="overwrite")
    assert follow(1) == wanted() == [(10, 100), (9, 91)]
    # The history begins with the first version, and each update ends what was valid before it.
    follow(4, 2, startingVersion="0")
    history = (
        load(spark, f"{replica}-2").where("id = 1").selectExpr("v", "__START_AT.version", "__END_AT.version")
    )
    assert sorted(tuple(row) for row in history.collect()) == [(1, 0, 1), (11, 1, 2), (12, 2, 7)]


@pytest.mark.long
def test_a_history_of_some_columns(streams: Any, tmp_path: Path) -> None:
    """Without the rows from before updates, an update of another column begins no row."""
    source, target, spark = str(tmp_path / "source"), str(tmp_path / "target"), streams.spark
    deltalake.write_deltalake(source, pa.table({"id": [1, 2], "v": [1, 2], "w": [1, 2]}), configuration=FEED)
    table = deltalake.DeltaTable(source)
    table.update(updates={"w": "w + 1"})
    table.update(updates={"v": "v + 1"}, predicate="id = 1")
    table.delete("id = 2")
    changes = streams.read(source, readChangeFeed="true", startingVersion="0")
    writer = apply_changes(
        changes.where("_change_type <> 'update_preimage'"),
        target,
        keys="id",
        envelope=ChangeRows(),
        scd_type=2,
        track_history_columns=["v"],
    )
    writer = writer.option("checkpointLocation", f"{target}-checkpoint").trigger(availableNow=True)
    streams.ended(writer.start())
    found = load(spark, target).selectExpr("id", "v", "w", "__START_AT.version", "__END_AT.version")
    assert tuples(found) == [(1, 1, 2, 0, 2), (1, 2, 2, 2, None), (2, 2, 3, 0, 3)]


def test_an_unknown_kind_of_change_is_an_error(spark: Any) -> None:
    rows = spark.createDataFrame([(1, "upsert", 3)], "id INT, _change_type STRING, _commit_version BIGINT")
    with pytest.raises(Exception, match="_change_type has none of insert"):
        ChangeRows().changes(rows, None).collect()  # type: ignore[arg-type]
