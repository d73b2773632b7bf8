"""Streams out of tables whose columns were widened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tables import tuples

pytestmark = pytest.mark.spark


@pytest.mark.covers("typeWidening", "types that widen", "DELTA_SCHEMA_CHANGED_WITH_VERSION")
def test_a_type_change_stops_the_stream_which_goes_on_with_the_wide_type(
    streams: Any, table: str, checkpoint: str, tmp_path: Path
) -> None:
    """A stream over types that widen needs no schema tracking: each of its runs has one schema."""
    spark, name = streams.spark, f"delta.`{table}`"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, n SMALLINT, p SMALLINT) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    )
    spark.sql(f"INSERT INTO {name} VALUES (1, 1, 1)")
    seen: list[tuple[str, list[Any]]] = []

    def see(batch: Any, _: int) -> None:
        seen.append((batch.schema["n"].dataType.simpleString(), tuples(batch)))

    loaded = streams.read(table)
    streams.ended(streams.foreach(loaded, checkpoint, see))
    spark.sql(f"INSERT INTO {name} VALUES (2, 2, 2)")
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN n TYPE BIGINT, p TYPE INT")
    spark.sql(f"INSERT INTO {name} VALUES (3, 5000000000, 70000)")
    # The query that was defined before the change cannot read what comes after it.
    error = streams.failure(streams.foreach(loaded, checkpoint, see))
    assert error.code == "DELTA_SCHEMA_CHANGED_SINCE_ANALYSIS"
    # Begun anew, it reads the narrow files behind it as the wide type.
    reread = streams.read(table)
    streams.ended(streams.foreach(reread, checkpoint, see))
    assert seen == [("smallint", [(1, 1, 1)]), ("bigint", [(2, 2, 2), (3, 5_000_000_000, 70_000)])]
    assert sorted(streams.batches(reread, str(tmp_path / "snapshot"))[0]) == [1, 2, 3]
    # While it runs, a change stops it before the commit, and it says that a new start helps.
    query = streams.foreach(reread, checkpoint, see, trigger={"processingTime": "0 seconds"})
    streams.until(lambda: query.lastProgress is not None, query)
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN n TYPE DECIMAL(20, 0)")
    error = streams.failure(query)
    assert error.code == "DELTA_SCHEMA_CHANGED_WITH_VERSION"
    assert "Load the stream again" in error.message
    # From the start on, old versions are read as the newest type, with filters on the new one.
    read = {"startingVersion": 0, "sourceFilter": "n < 3"}
    found = streams.batches(streams.read(table, **read), str(tmp_path / "again"))
    assert sorted(i for ids in found.values() for i in ids) == [1, 2]
