"""Records with a column for the operation."""

from __future__ import annotations

import pytest

from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.streaming.cdc import Flat
from deltaflow.streaming.cdc.changes import Current
from tests.tables import tuples

pytestmark = pytest.mark.spark

NOTHING = Current(None, lambda: None, ("id",))


def test_operations_by_their_names(spark):
    rows = [(1, "INSERT", 1), (1, "u", 2), (2, "Delete", 3), (None, "truncate", 4)]
    frame = spark.createDataFrame(rows, "id INT, op STRING, at INT")
    found = Flat(operation="op", sequence_by="at * 10").changes(frame, NOTHING)
    assert found.columns == ["id", "at", "_change", "_sequence"]
    told = [tuple(row) for row in found.select("_change", "_sequence", "id").collect()]
    assert told == [("upsert", 10, 1), ("upsert", 20, 1), ("delete", 30, 2), ("truncate", 40, None)]
    own = Flat(
        operation="op",
        sequence_by="at",
        upserts=["new", "after"],
        deletes=["gone"],
        truncates=[],
        ignored=["before"],
    )
    frame = spark.createDataFrame([(1, "before", 1), (1, "AFTER", 1), (2, "gone", 2)], frame.schema)
    assert tuples(own.changes(frame, NOTHING).select("_change", "id")) == [("delete", 2), ("upsert", 1)]


@pytest.mark.parametrize("operation", ["insrt", None])
def test_other_operations_are_errors(spark, operation):
    frame = spark.createDataFrame([(1, "i", 1), (2, operation, 2)], "id INT, op STRING, at INT")
    with pytest.raises(Exception, match=r"in column op is none of c, create.*Record: \{\"id\":2"):
        Flat(operation="op", sequence_by="at").changes(frame, NOTHING).collect()


def test_an_operation_has_one_meaning():
    with pytest.raises(DeltaIllegalArgumentException, match="'d' of Flat is in two lists"):
        Flat(operation="op", sequence_by="at", upserts=["D"])
