"""MERGE with schema evolution: which columns and fields a table takes over, and what they hold."""

from __future__ import annotations

from typing import Any

import pytest

from deltaflow import DeltaTable
from deltaflow.errors import DeltaAnalysisException, SchemaMismatchError
from deltaflow.tables import DeltaMergeBuilder
from tests.tables import data_files, load

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]


@pytest.fixture
def merging(spark, table):
    """A merge of a query into the table that a query makes."""

    def of(target: str, source: str, condition: Any = "t.id = s.id") -> DeltaMergeBuilder:
        spark.sql(target).write.format("delta").save(table)
        builder = DeltaTable.forPath(spark, table).alias("t").merge(spark.sql(source).alias("s"), condition)
        return builder.withSchemaEvolution()

    return of


def dicts_by_id(spark, path):
    rows = load(spark, path).collect()
    return sorted((row.asDict(recursive=True) for row in rows), key=lambda row: row["id"])


def columns(spark, path):
    return load(spark, path).schema.simpleString()


TARGET = "select * from values (1L, 'a'), (2L, 'a') as t (id, v)"
SOURCE = "select * from values (2L, 'b', 5), (3L, 'b', 6) as s (id, v, w)"


def test_stars_bring_new_columns(merging, spark, table):
    merging(TARGET, SOURCE).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert columns(spark, table) == "struct<id:bigint,v:string,w:int>"
    assert dicts_by_id(spark, table) == [
        {"id": 1, "v": "a", "w": None},
        {"id": 2, "v": "b", "w": 5},
        {"id": 3, "v": "b", "w": 6},
    ]


def test_stars_leave_columns_that_the_source_lacks(merging, spark, table):
    source = "select * from values (2L, 5), (3L, 6) as s (ID, w)"
    merging(TARGET, source).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert dicts_by_id(spark, table) == [
        {"id": 1, "v": "a", "w": None},
        {"id": 2, "v": "a", "w": 5},
        {"id": 3, "v": None, "w": 6},
    ]


def test_assignments_bring_the_columns_that_they_name(merging, spark, table):
    source = "select * from values (2L, 'b', 5, 1), (3L, 'b', 6, 1) as s (id, v, w, x)"
    merging(TARGET, source).whenMatchedUpdate("s.id = 2", {"w": "s.w + 1"}).whenNotMatchedInsert(
        values={"id": "s.id", "v": "'n'"}
    ).execute()
    assert columns(spark, table) == "struct<id:bigint,v:string,w:int>"
    assert dicts_by_id(spark, table) == [
        {"id": 1, "v": "a", "w": None},
        {"id": 2, "v": "a", "w": 6},
        {"id": 3, "v": "n", "w": None},
    ]


def test_the_setting_of_the_session(merging, spark, table, settings):
    builder = merging(TARGET, SOURCE)
    builder._evolves = False
    with pytest.raises(DeltaAnalysisException, match="DELTA_MERGE_UNRESOLVED_EXPRESSION"):
        builder.whenMatchedUpdate(set={"w": "s.w"}).execute()
    with settings({"spark.databricks.delta.schema.autoMerge.enabled": "true"}):
        builder.whenMatchedUpdate(set={"w": "s.w"}).execute()
    assert dicts_by_id(spark, table)[1] == {"id": 2, "v": "a", "w": 5}


def test_without_rows_to_change_the_schema_still_evolves(merging, spark, table):
    merging(TARGET, SOURCE).whenMatchedUpdateAll("s.id = 77").execute()
    assert columns(spark, table) == "struct<id:bigint,v:string,w:int>"
    assert len(data_files(table)) <= 2


def test_rows_that_no_source_row_matches(merging, spark, table):
    merging(TARGET, SOURCE).whenMatchedUpdateAll().whenNotMatchedBySourceUpdate(set={"v": "'z'"}).execute()
    assert dicts_by_id(spark, table)[0] == {"id": 1, "v": "z", "w": None}


def test_nested_fields(merging, spark, table):
    target = """select * from values (1L, named_struct('a', 1, 'b', 1)), (2L, named_struct('a', 1, 'b', 1)),
        (3L, null), (4L, named_struct('a', 1, 'b', 1)) as t (id, s)"""
    source = """select * from values (2L, named_struct('c', 2, 'a', 2)), (3L, null), (4L, null),
        (5L, named_struct('c', 2, 'a', 2)), (6L, null) as s (id, s)"""
    merging(target, source).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert columns(spark, table) == "struct<id:bigint,s:struct<a:int,b:int,c:int>>"
    assert [row["s"] for row in dicts_by_id(spark, table)] == [
        {"a": 1, "b": 1, "c": None},
        {"a": 2, "b": 1, "c": 2},  # what the source lacks stays
        None,
        {"a": None, "b": 1, "c": None},
        {"a": 2, "b": None, "c": 2},
        None,
    ]


def test_a_struct_that_is_assigned_loses_what_the_value_lacks(merging, spark, table):
    target = "select 1L id, named_struct('a', 1, 'b', 1) s"
    source = "select 1L id, named_struct('a', 2, 'c', 2) s"
    merging(target, source).whenMatchedUpdate(set={"t.s": "s.s"}).execute()
    assert dicts_by_id(spark, table) == [{"id": 1, "s": {"a": 2, "b": None, "c": 2}}]


def test_a_nested_field_that_is_assigned(merging, spark, table):
    target = "select * from values (1L, named_struct('a', 1)), (2L, named_struct('a', 1)) as t (id, s)"
    source = "select 1L id, named_struct('c', 2, 'd', 3) s"
    merging(target, source).whenMatchedUpdate(set={"s.c": "s.s.c"}).execute()
    assert columns(spark, table) == "struct<id:bigint,s:struct<a:int,c:int>>"
    assert [row["s"] for row in dicts_by_id(spark, table)] == [{"a": 1, "c": 2}, {"a": 1, "c": None}]


def test_structs_in_arrays(merging, spark, table):
    target = "select id + 1 as id, array(named_struct('a', 1)) l from range(2)"
    source = "select 1L id, array(named_struct('a', 2, 'b', 'x'), null) l"
    merging(target, source).whenMatchedUpdateAll().execute()
    assert [row["l"] for row in dicts_by_id(spark, table)] == [
        [{"a": 2, "b": "x"}, None],
        [{"a": 1, "b": None}],
    ]


def test_types_stay_and_values_are_cast(merging, spark, table):
    merging("select 1L id, 2Y small", "select 1 id, 100 small, 'x' w").whenMatchedUpdateAll().execute()
    assert columns(spark, table) == "struct<id:bigint,small:tinyint,w:string>"
    assert dicts_by_id(spark, table) == [{"id": 1, "small": 100, "w": "x"}]


def test_what_does_not_fit(merging, spark, table):
    builder = merging("select 1L id, named_struct('a', 1) s", "select 1L id, 7 s")
    with pytest.raises(SchemaMismatchError, match="DELTA_FAILED_TO_MERGE_FIELDS"):
        builder.whenMatchedUpdate(set={"t.s": "s.s"}).execute()


def test_nothing_is_logged_of_new_columns(merging, spark, table, logged_by_pyspark):
    new = {"id": "s.id", "w": "s.w"}
    merging(TARGET, SOURCE).whenMatchedUpdate(set={"w": "s.w"}).whenNotMatchedInsert(values=new).execute()
    assert columns(spark, table) == "struct<id:bigint,v:string,w:int>"
    assert [r.levelname for r in logged_by_pyspark.records] == []
