"""What catches each mistake: the except clause, condition and SQLSTATE of delta-spark, by every door."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    PySparkException,
    StreamingQueryException,
    UnsupportedOperationException,
)
from pyspark.sql import DataFrame, SparkSession

from deltaflow import DeltaTable
from deltaflow.errors import DeltaError

pytestmark = pytest.mark.spark


class Tables(NamedTuple):
    """Tables that no case changes: each of its calls fails."""

    spark: SparkSession
    folder: str

    def path(self, name: str) -> str:
        """Of a table: `plain`, `parts`, `append_only`, `wide`, …; at `nothing` there is nothing."""
        return f"{self.folder}/{name}"

    def sql(self, statement: str) -> Any:
        """Runs a statement; <name> stands for delta.`path`."""
        for name in ("plain", "parts", "append_only", "wide", "parquet", "nothing"):
            statement = statement.replace(f"<{name}>", f"delta.`{self.path(name)}`")
        return self.spark.sql(statement).collect()

    def of(self, name: str) -> DeltaTable:
        return DeltaTable.forPath(self.spark, self.path(name))

    def read(self, name: str = "plain", **options: str) -> list[Any]:
        return self.spark.read.format("delta").options(**options).load(self.path(name)).collect()

    def write(
        self, *columns: str, to: str = "plain", mode: str = "append", by: str | None = None, **options: str
    ) -> None:
        writer = self.spark.range(3).selectExpr(*columns or ("id",)).write.format("delta").mode(mode)
        writer.options(**{name.replace("__", "."): value for name, value in options.items()}).save(
            self.path(to), partitionBy=by
        )

    def stream(self, source: str = "plain", **options: str) -> None:
        """Reads a table by a stream with the options, and writes the rows into another."""
        self.sink(self.spark.readStream.format("delta").options(**options).load(self.path(source)))

    def sink(self, frame: DataFrame, to: str = "out", **options: str) -> None:
        """Writes the rows of a stream that are there."""
        writer = frame.writeStream.format("delta").options(**options).trigger(availableNow=True)
        query = writer.option("checkpointLocation", self.path(f"checkpoint-{uuid4()}")).start(self.path(to))
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def rows_of_stream(self, *columns: str) -> DataFrame:
        return self.spark.readStream.format("delta").load(self.path("plain")).selectExpr(*columns)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    made = Tables(spark, str(tmp_path_factory.mktemp("tables")))
    made.write(mode="errorifexists")
    made.write("id", "id % 2 AS part", to="parts", by="part")
    made.write(to="append_only", delta__appendOnly="true")
    made.write(
        "id", "int(id) AS n", "named_struct('x', 1) AS s", "array(named_struct('x', 1)) AS a", to="wide"
    )
    spark.range(3).write.parquet(made.path("parquet"))
    made.write(to="changed")
    made.of("changed").delete("id = 1")
    made.write("array(id) AS id", to="arrays")
    return made


Call = Callable[[Tables], Any]


def case(name: str, call: Call, caught: type[Exception], condition: str, sqlstate: str) -> Any:
    return pytest.param(call, caught, condition, sqlstate, id=name)


MERGE = "MERGE INTO <wide> t USING (SELECT 1L AS id, n FROM VALUES (1), (2) AS v(n)) s ON t.id = s.id "

CASES = [
    # Reads
    case(
        "load nothing",
        lambda t: t.read("nothing"),
        AnalysisException,
        "PATH_NOT_FOUND",
        "42K03",
    ),
    case(
        "select nothing",
        lambda t: t.sql("SELECT * FROM <nothing>"),
        AnalysisException,
        "PATH_NOT_FOUND",
        "42K03",
    ),
    case(
        "load another format",
        lambda t: t.read("parquet"),
        AnalysisException,
        "DELTA_TABLE_NOT_FOUND",
        "42P01",
    ),
    case(
        "select another format",
        lambda t: t.sql("SELECT * FROM <parquet>"),
        AnalysisException,
        "DELTA_TABLE_NOT_FOUND",
        "42P01",
    ),
    case(
        "forPath of nothing",
        lambda t: t.of("nothing"),
        AnalysisException,
        "DELTA_MISSING_DELTA_TABLE",
        "42P01",
    ),
    case(
        "a version that is no number",
        lambda t: t.read(versionAsOf="x"),
        IllegalArgumentException,
        "DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE",
        "42604",
    ),
    case(
        "a version with a timestamp",
        lambda t: t.read(versionAsOf="0", timestampAsOf="2020-01-01"),
        IllegalArgumentException,
        "DELTA_ONEOF_IN_TIMETRAVEL",
        "42601",
    ),
    case(
        "a version that is not there",
        lambda t: t.read(versionAsOf="99"),
        AnalysisException,
        "DELTA_VERSION_NOT_FOUND",
        "22003",
    ),
    case(
        "VERSION AS OF that is not there",
        lambda t: t.sql("SELECT * FROM <plain> VERSION AS OF 99"),
        AnalysisException,
        "DELTA_VERSION_NOT_FOUND",
        "22003",
    ),
    case(
        "a timestamp that is none",
        lambda t: t.read(timestampAsOf="05/04/1999"),
        AnalysisException,
        "DELTA_TIMESTAMP_INVALID",
        "42816",
    ),
    case(
        "a timestamp before the table",
        lambda t: t.read(timestampAsOf="1990-01-01"),
        AnalysisException,
        "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION",
        "42816",
    ),
    # Writes
    case(
        "append another type",
        lambda t: t.write("array(id) AS id"),
        AnalysisException,
        "DELTA_FAILED_TO_MERGE_FIELDS",
        "22005",
    ),
    case(
        "append another type and a new column",
        lambda t: t.write("array(id) AS id", "id AS other"),
        AnalysisException,
        "DELTA_FAILED_TO_MERGE_FIELDS",
        "22005",
    ),
    case(
        "append another type with mergeSchema",
        lambda t: t.write("array(id) AS id", mergeSchema="true"),
        AnalysisException,
        "DELTA_FAILED_TO_MERGE_FIELDS",
        "22005",
    ),
    case(
        "overwrite by another type",
        lambda t: t.write("array(id) AS id", mode="overwrite"),
        AnalysisException,
        "DELTA_FAILED_TO_MERGE_FIELDS",
        "22005",
    ),
    case(
        "append a new column",
        lambda t: t.write("id", "id AS other"),
        AnalysisException,
        "DELTA_METADATA_MISMATCH",
        "42KDG",
    ),
    case(
        "append by other partitions",
        lambda t: t.write("id", "1L AS part", to="parts", by="id"),
        AnalysisException,
        "DELTA_METADATA_MISMATCH",
        "42KDG",
    ),
    case(
        "a boolean that is none",
        lambda t: t.write(mergeSchema="maybe"),
        IllegalArgumentException,
        "DELTA_ILLEGAL_OPTION",
        "42616",
    ),
    case(
        "txnVersion alone",
        lambda t: t.write(txnVersion="1"),
        IllegalArgumentException,
        "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS.MISSING_DATAFRAME_WRITE_OPTIONS",
        "42616",
    ),
    case(
        "replaceWhere with dynamic overwrite",
        lambda t: t.write(
            "id",
            "0L AS part",
            to="parts",
            mode="overwrite",
            replaceWhere="part = 0",
            partitionOverwriteMode="dynamic",
        ),
        IllegalArgumentException,
        "DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE",
        "42613",
    ),
    case(
        "overwriteSchema with dynamic overwrite",
        lambda t: t.write(
            "id",
            "0L AS part",
            to="parts",
            mode="overwrite",
            by="part",
            overwriteSchema="true",
            partitionOverwriteMode="dynamic",
        ),
        IllegalArgumentException,
        "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE",
        "42613",
    ),
    case(
        "replaceWhere that is no expression",
        lambda t: t.write("id", "0L AS part", to="parts", mode="overwrite", replaceWhere="part = = 0"),
        AnalysisException,
        "DELTA_FAILED_RECOGNIZE_PREDICATE",
        "42601",
    ),
    case(
        "replaceWhere that the rows break",
        lambda t: t.write("id", "0L AS part", to="parts", mode="overwrite", replaceWhere="part = 1"),
        AnalysisException,
        "DELTA_REPLACE_WHERE_MISMATCH",
        "44000",
    ),
    # Properties
    case(
        "a property's value, by a writer",
        lambda t: t.write(to="new", delta__appendOnly="maybe"),
        IllegalArgumentException,
        "DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED",
        "0A000",
    ),
    case(
        "a property's value, in SQL",
        lambda t: t.sql("ALTER TABLE <plain> SET TBLPROPERTIES ('delta.checkpointInterval' = '-1')"),
        IllegalArgumentException,
        "DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED",
        "0A000",
    ),
    case(
        "a property that nobody knows",
        lambda t: t.sql("ALTER TABLE <plain> SET TBLPROPERTIES ('delta.noSuch' = '1')"),
        AnalysisException,
        "DELTA_UNKNOWN_CONFIGURATION",
        "F0000",
    ),
    # Columns
    case(
        "add a column that is there",
        lambda t: t.sql("ALTER TABLE <wide> ADD COLUMNS (N INT)"),
        AnalysisException,
        "FIELD_ALREADY_EXISTS",
        "42710",
    ),
    case(
        "add a field that is there",
        lambda t: t.sql("ALTER TABLE <wide> ADD COLUMNS (s.x INT)"),
        AnalysisException,
        "FIELD_ALREADY_EXISTS",
        "42710",
    ),
    # DELETE, UPDATE, MERGE
    case(
        "delete from nothing",
        lambda t: t.sql("DELETE FROM <nothing>"),
        AnalysisException,
        "PATH_NOT_FOUND",
        "42K03",
    ),
    case(
        "delete from an append-only table",
        lambda t: t.of("append_only").delete("id = 1"),
        UnsupportedOperationException,
        "DELTA_CANNOT_MODIFY_APPEND_ONLY",
        "42809",
    ),
    case(
        "DELETE FROM an append-only table",
        lambda t: t.sql("DELETE FROM <append_only> WHERE id = 1"),
        UnsupportedOperationException,
        "DELTA_CANNOT_MODIFY_APPEND_ONLY",
        "42809",
    ),
    case(
        "overwrite an append-only table",
        lambda t: t.write(to="append_only", mode="overwrite"),
        UnsupportedOperationException,
        "DELTA_CANNOT_MODIFY_APPEND_ONLY",
        "42809",
    ),
    case(
        "update an int by an array",
        lambda t: t.of("wide").update(set={"n": "array(1)"}),
        AnalysisException,
        "DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION",
        "42K09",
    ),
    case(
        "UPDATE a struct by an int",
        lambda t: t.sql("UPDATE <wide> SET s = 1"),
        AnalysisException,
        "DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION",
        "42K09",
    ),
    case(
        "MERGE an array into an int",
        lambda t: t.sql(MERGE + "WHEN MATCHED THEN UPDATE SET n = array(1)"),
        AnalysisException,
        "DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION",
        "42K09",
    ),
    case(
        "UPDATE a field in an array",
        lambda t: t.sql("UPDATE <wide> SET a.x = 1"),
        AnalysisException,
        "DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE",
        "0A000",
    ),
    case(
        "MERGE of two rows into one",
        lambda t: t.sql(MERGE + "WHEN MATCHED THEN UPDATE SET n = s.n"),
        UnsupportedOperationException,
        "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE",
        "21506",
    ),
    # OPTIMIZE, VACUUM and the others
    case(
        "ZORDER BY a column that is not there",
        lambda t: t.sql("OPTIMIZE <wide> ZORDER BY (other)"),
        IllegalArgumentException,
        "DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST",
        "42703",
    ),
    case(
        "z-order by a partition column",
        lambda t: t.of("parts").optimize().executeZOrderBy("part"),
        IllegalArgumentException,
        "DELTA_ZORDERING_ON_PARTITION_COLUMN",
        "42P10",
    ),
    case(
        "OPTIMIZE where no expression stands",
        lambda t: t.of("parts").optimize().where("part = = 1").executeCompaction(),
        AnalysisException,
        "DELTA_FAILED_RECOGNIZE_PREDICATE",
        "42601",
    ),
    case(
        "vacuum with a negative retention",
        lambda t: t.of("plain").vacuum(-1),
        IllegalArgumentException,
        "DELTA_VACUUM_RETENTION_PERIOD_NEGATIVE",
        "22003",
    ),
    case(
        "VACUUM with a short retention",
        lambda t: t.sql("VACUUM <plain> RETAIN 1 HOURS"),
        IllegalArgumentException,
        "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT",
        "22003",
    ),
    case(
        "generate an unknown mode",
        lambda t: t.of("plain").generate("other"),
        IllegalArgumentException,
        "DELTA_MODE_NOT_SUPPORTED",
        "0AKDC",
    ),
    case(
        "RESTORE a version that is not there",
        lambda t: t.sql("RESTORE TABLE <plain> TO VERSION AS OF 99"),
        AnalysisException,
        "DELTA_CANNOT_RESTORE_TABLE_VERSION",
        "22003",
    ),
    # Streams, before they run
    case(
        "stream from nothing",
        lambda t: t.stream("nothing"),
        AnalysisException,
        "DELTA_SCHEMA_NOT_SET",
        "KD008",
    ),
    case(
        "an output mode that is not there",
        lambda t: (
            t.rows_of_stream("id")
            .writeStream.format("delta")
            .outputMode("update")
            .option("checkpointLocation", t.path("unused"))
            .start(t.path("out"))
        ),
        AnalysisException,
        "DELTA_UNSUPPORTED_OUTPUT_MODE",
        "0AKDC",
    ),
    case(
        "an option of the sink",
        lambda t: t.sink(t.rows_of_stream("id"), mergeSchema="maybe"),
        IllegalArgumentException,
        "DELTA_ILLEGAL_OPTION",
        "42616",
    ),
]

IN_STREAMS = [
    case(
        "two starts",
        lambda t: t.stream(startingVersion="0", startingTimestamp="2020-01-01"),
        IllegalArgumentException,
        "DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET",
        "42613",
    ),
    case(
        "a limit that is none",
        lambda t: t.stream(maxFilesPerTrigger="0"),
        IllegalArgumentException,
        "DELTA_ILLEGAL_OPTION",
        "42616",
    ),
    case(
        "rows that were changed",
        lambda t: t.stream("changed", startingVersion="0"),
        UnsupportedOperationException,
        "DELTA_SOURCE_TABLE_IGNORE_CHANGES",
        "0A000",
    ),
    case(
        "rows of another type",
        lambda t: t.sink(t.rows_of_stream("id"), to="arrays"),
        AnalysisException,
        "DELTA_FAILED_TO_MERGE_FIELDS",
        "22005",
    ),
]


@pytest.mark.parametrize(("call", "caught", "condition", "sqlstate"), CASES)
@pytest.mark.sampled(6)
def test_a_mistake_is_caught_as_in_delta_spark(
    tables: Tables, call: Call, caught: type[Exception], condition: str, sqlstate: str
) -> None:
    with pytest.raises(caught) as raised:
        call(tables)
    error = raised.value
    assert isinstance(error, PySparkException)
    assert (error.getCondition(), error.getSqlState()) == (condition, sqlstate)
    if isinstance(error, DeltaError):
        assert isinstance(pickle.loads(pickle.dumps(error)), caught)


@pytest.mark.parametrize(("call", "caught", "condition", "sqlstate"), IN_STREAMS)
def test_a_stream_that_fails_names_the_condition(
    tables: Tables, call: Call, caught: type[Exception], condition: str, sqlstate: str
) -> None:
    with pytest.raises(StreamingQueryException) as raised:
        call(tables)
    assert f"[{condition}]" in str(raised.value)
    cause: Any = raised.value._cause
    assert isinstance(cause, caught)
    assert (cause.getCondition(), cause.getSqlState()) == (condition, sqlstate)
