"""The clauses of MERGE: what the builder takes, how names are resolved, what is cast, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from deltaflow import DeltaTable
from deltaflow.errors import DeltaAnalysisException, DeltaError
from deltaflow.tables import DeltaMergeBuilder
from tests.tables import load, tuples, versions

pytestmark = pytest.mark.spark


@pytest.fixture
def merging(spark, table):
    """A merge of a query into the table, which has one row of an id, v, and a struct st."""
    spark.sql("select 1L id, 'a' v, named_struct('a', 1, 'b', 'x') st").write.format("delta").save(table)

    def of(query: str, condition: Any = "t.id = s.id") -> DeltaMergeBuilder:
        return DeltaTable.forPath(spark, table).alias("t").merge(spark.sql(query).alias("s"), condition)

    return of


def fields(spark, path):
    return tuples(load(spark, path).selectExpr("id", "v", "st.a", "st.b"))


SOURCE = "select 1L id, 'b' v, named_struct('a', 2, 'b', 'y') st"


# -- arguments ----------------------------------------


def test_arguments_of_the_wrong_kind(merging, spark, table):
    target = DeltaTable.forPath(spark, table)
    with pytest.raises(ValueError, match="'source' in merge cannot be None"):
        target.merge(None, "true")
    with pytest.raises(TypeError, match="must be DataFrame"):
        target.merge([], "true")
    with pytest.raises(ValueError, match="'condition' in merge cannot be None"):
        target.merge(spark.range(1), None)
    with pytest.raises(TypeError, match="must be a Spark SQL Column or a string"):
        target.merge(spark.range(1), 1)
    builder = merging(SOURCE)
    with pytest.raises(ValueError, match="'set' in whenMatchedUpdate cannot be None"):
        builder.whenMatchedUpdate("true")
    with pytest.raises(TypeError, match="'values' in whenNotMatchedInsert must be a dict"):
        builder.whenNotMatchedInsert(values=[("id", "1")])
    with pytest.raises(TypeError, match="Keys of dict in 'set' in whenNotMatchedBySourceUpdate"):
        builder.whenNotMatchedBySourceUpdate(set={1: "1"})
    with pytest.raises(TypeError, match="Values of dict in 'set' in whenMatchedUpdate"):
        builder.whenMatchedUpdate(set={"v": 1})
    with pytest.raises(TypeError, match="'condition' must be"):
        builder.whenMatchedDelete(7)


def test_a_builder_is_not_changed_by_its_methods(merging, spark, table):
    builder = merging(SOURCE)
    builder.whenMatchedDelete()
    with pytest.raises(DeltaAnalysisException, match="DELTA_MERGE_MISSING_WHEN"):
        builder.execute()
    with pytest.raises(DeltaAnalysisException, match="DELTA_MERGE_MISSING_WHEN"):
        builder.whenMatchedUpdate(set={}).execute()  # it would say nothing


@pytest.mark.parametrize(
    ("add", "error"),
    [
        (lambda b: b.whenMatchedDelete().whenMatchedUpdateAll(), "DELTA_NON_LAST_MATCHED_CLAUSE_OMIT"),
        (
            lambda b: b.whenNotMatchedInsertAll().whenNotMatchedInsertAll("s.id = 1"),
            "DELTA_NON_LAST_NOT_MATCHED_CLAUSE_OMIT",
        ),
        (
            lambda b: b.whenNotMatchedBySourceDelete().whenNotMatchedBySourceDelete(),
            "DELTA_NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT",
        ),
        (lambda b: b.whenMatchedUpdate(set={"v": "s.nothing"}), "DELTA_MERGE_UNRESOLVED_EXPRESSION"),
        (lambda b: b.whenMatchedUpdate(set={"nothing": "s.v"}), "DELTA_MERGE_UNRESOLVED_EXPRESSION"),
        (lambda b: b.whenMatchedUpdate(set={"upper(v)": "s.v"}), "DELTA_MERGE_UNRESOLVED_EXPRESSION"),
        (lambda b: b.whenNotMatchedInsert(values={"v": "t.v"}), "DELTA_MERGE_UNRESOLVED_EXPRESSION"),
        (lambda b: b.whenNotMatchedInsertAll("t.id = 1"), "DELTA_MERGE_UNRESOLVED_EXPRESSION"),
        (lambda b: b.whenNotMatchedBySourceDelete("s.id = 1"), "DELTA_MERGE_UNRESOLVED_EXPRESSION"),
        (lambda b: b.whenMatchedDelete("v = 'a'"), "AMBIGUOUS_REFERENCE"),
        (lambda b: b.whenMatchedDelete("rand() < 2"), "DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED"),
        (lambda b: b.whenMatchedDelete("max(s.id) > 1"), "DELTA_AGGREGATION_NOT_SUPPORTED"),
        (lambda b: b.whenMatchedDelete("s.id = (select max(id) from range(9) where id < t.id)"), "_SUBQUERY"),
        (lambda b: b.whenMatchedDelete("s.v"), "DATATYPE_MISMATCH"),
        (lambda b: b.whenMatchedUpdate(set={"v": "s.v", "t.v": "'x'"}), "DELTA_CONFLICT_SET_COLUMN"),
        (lambda b: b.whenMatchedUpdate(set={"st.a": "1", "st": "s.st"}), "DELTA_CONFLICT_SET_COLUMN"),
        (lambda b: b.whenMatchedUpdate(set={"v.x": "1"}), "INVALID_EXTRACT_BASE_FIELD_TYPE|UNRESOLVED"),
        (
            lambda b: b.whenNotMatchedInsert(values={"id": "1", "ID": "2"}),
            "DELTA_DUPLICATE_COLUMNS_ON_INSERT",
        ),
        (
            lambda b: b.whenNotMatchedInsert(values={"t.st.a": "1"}),
            "DELTA_UNSUPPORTED_NESTED_FIELD_IN_OPERATION",
        ),
        (lambda b: b.whenMatchedUpdate(set={"t.st": "s.v"}), "DATATYPE_MISMATCH"),
        (
            lambda b: b.whenMatchedUpdate(set={"t.st": "named_struct('a', 1, 'c', 2)"}),
            "DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION",
        ),
    ],
)
@pytest.mark.sampled(3)
def test_what_analysis_refuses(merging, spark, table, add, error):
    with pytest.raises((AnalysisException, DeltaError), match=error):
        add(merging(SOURCE)).execute()
    assert len(versions(table)) == 1


@pytest.mark.parametrize(
    ("condition", "error"),
    [
        ("t.id = s.nothing", "DELTA_MERGE_UNRESOLVED_EXPRESSION.*search condition"),
        ("id = 1", "AMBIGUOUS_REFERENCE"),
        ("exists (select 1 from range(9) r where r.id = t.id and r.id = s.id)", "DELTA_UNSUPPORTED_SUBQUERY"),
        ("t.id = s.id + rand()", "DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED"),
    ],
)
def test_search_conditions_that_analysis_refuses(merging, condition, error):
    with pytest.raises(AnalysisException, match=error):
        merging(SOURCE, condition).whenMatchedDelete().execute()


# -- names and stars ----------------------------------------


def test_stars_need_all_columns_of_the_table(merging, spark, table):
    with pytest.raises(DeltaAnalysisException, match="Cannot resolve `st` in UPDATE clause"):
        merging("select 1L id, 'b' v").whenMatchedUpdateAll().execute()
    with pytest.raises(DeltaAnalysisException, match=r"Cannot resolve `st` in INSERT clause"):
        merging("select 1L id, 'b' v").whenNotMatchedInsertAll().execute()
    more = "select 1L ID, 'b' V, named_struct('B', 'y', 'A', 2) ST, 7 more"
    merging(more).whenMatchedUpdateAll().execute()
    assert fields(spark, table) == [(1, "b", 2, "y")]
    merging(more.replace("1L", "2L")).whenNotMatchedInsertAll().execute()
    assert fields(spark, table) == [(1, "b", 2, "y"), (2, "b", 2, "y")]


def test_fields_of_structs_are_set_one_by_one(merging, spark, table):
    merging(SOURCE).whenMatchedUpdate(set={"t.st.a": "t.st.a + s.st.a", "`v`": F.upper("s.v")}).execute()
    assert fields(spark, table) == [(1, "B", 3, "x")]


def test_names_that_only_one_side_has_need_no_alias(spark, merging, table):
    source = spark.sql("select 1L key, 'n' word")
    target = DeltaTable.forPath(spark, table)
    target.merge(source, source.key == F.col("id")).whenMatchedUpdate(set={"v": source.word}).execute()
    assert fields(spark, table) == [(1, "n", 1, "x")]


def test_conditions_by_columns_of_frames(spark, merging, table):
    source = spark.sql(SOURCE)
    aliased = source.alias("s")
    builder = DeltaTable.forPath(spark, table).alias("t").merge(aliased, F.col("t.id") == source["id"])
    builder.whenMatchedUpdate(aliased["v"] == "b", {"v": source["v"]}).execute()
    assert fields(spark, table) == [(1, "b", 1, "x")]


def test_the_time_is_one_for_all_jobs(merging, spark, table):
    builder = merging(SOURCE, "t.id = s.id and current_timestamp() > timestamp'2020-01-01'")
    builder.whenMatchedUpdate(
        "now() > timestamp'2020-01-01'", {"v": "cast(current_date() > '2020' as string)"}
    )
    assert builder.whenMatchedDelete("current_timestamp() < timestamp'2020-01-01'").execute().count() == 1


# -- casts ----------------------------------------


def test_values_are_cast_as_they_are_stored(merging, spark, table):
    source = "select 1 id, 5 v, named_struct('a', '7', 'b', 8) st"
    merging(source).whenMatchedUpdateAll().execute()
    assert fields(spark, table) == [(1, "5", 7, "8")]
    merging(source).whenMatchedUpdate("s.id > 5", {"v": "s.v"}).whenMatchedUpdate(
        set={"v": "date'2024-01-01'", "t.st.a": "2.0"}
    ).execute()
    assert fields(spark, table) == [(1, "2024-01-01", 2, "8")]


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.sampled(2)
def test_values_that_do_not_fit_fail(merging, spark, table, ansi, settings):
    with settings({"spark.sql.ansi.enabled": ansi}):
        for value, error in (("10000000000", "CAST_OVERFLOW_IN_TABLE_INSERT"), ("'x'", "CAST_INVALID_INPUT")):
            with pytest.raises(Exception, match=error):
                merging(SOURCE).whenMatchedUpdate(set={"t.st.a": value}).execute()
    assert fields(spark, table) == [(1, "a", 1, "x")]


@pytest.mark.long
def test_structs_in_arrays_and_maps_are_matched_by_name(spark, table):
    item = "named_struct('a', 1, 'b', 'x')"
    spark.sql(f"select 1L id, array({item}) l, map('k', {item}) m").write.format("delta").save(table)
    item = "named_struct('b', 'y', 'a', 2S)"
    source = f"select 1L id, array({item}, null) l, map('k', {item}) m"
    target = DeltaTable.forPath(spark, table).alias("t")
    target.merge(spark.sql(source).alias("s"), "t.id = s.id").whenMatchedUpdateAll().execute()
    [found] = load(spark, table).collect()
    assert [item and tuple(item) for item in found.l] == [(2, "y"), None]
    assert tuple(found.m["k"]) == (2, "y")
