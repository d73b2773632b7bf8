"""Expressions of a hostile table: what they name is neither called nor opened, whichever way rows come."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException, UnknownException
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from deltaflow.errors import DeltaError, DeltaUnsupportedOperationException
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol
from tests.security.conftest import streamed

pytestmark = [pytest.mark.spark, pytest.mark.breaks_protocol]

CANARY = "deltaflow.tests.canary"
CALL = f"java_method('java.lang.System', 'setProperty', '{CANARY}', 'called')"
REFUSED = "DELTA_UNSAFE_EXPRESSION"


@pytest.fixture
def called(spark: SparkSession) -> Iterator[Callable[[], bool]]:
    """Whether CALL was evaluated: the executor of these tests is in the JVM of the driver."""
    system: Any = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]
    system.clearProperty(CANARY)
    yield lambda: system.getProperty(CANARY) is not None
    system.clearProperty(CANARY)


@pytest.fixture
def hostile(tmp_path: Path) -> Callable[..., str]:
    """Makes a table of columns `id` and `v` with one row, in a file that lacks `v`."""

    def make(configuration: dict[str, str] | None = None, **of_v: str) -> str:
        table = HandWrittenTable(tmp_path / "hostile")
        metadata = {name.replace("__", "."): value for name, value in of_v.items()}
        fields = [T.StructField("id", T.LongType()), T.StructField("v", T.StringType(), True, metadata)]
        features = ["checkConstraints", "generatedColumns", "invariants", "allowColumnDefaults"]
        pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), f"{table.path}/one.parquet")
        size = Path(table.path, "one.parquet").stat().st_size
        table.commit(
            0,
            protocol(3, 7, readerFeatures=[], writerFeatures=features),
            meta_data(schema=T.StructType(fields), configuration=configuration or {}),
            add("one.parquet", size=size, stats='{"numRecords":1}'),
        )
        return table.path

    return make


def appended(spark: SparkSession, path: str) -> None:
    spark.range(1).write.format("delta").mode("append").save(path)


def appended_by_stream(spark: SparkSession, path: str) -> None:
    streamed(spark.readStream.format("delta").load(path).select("id"), path)


def statement(text: str) -> Callable[[SparkSession, str], None]:
    def run(spark: SparkSession, path: str) -> None:
        spark.sql(text.replace("<t>", f"delta.`{path}`")).collect()

    return run


MERGE = (
    "MERGE INTO <t> t USING (SELECT 2L AS id) s ON s.id = t.id "
    "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
)
DOORS = {
    "append": appended,
    "stream": appended_by_stream,
    "INSERT": statement("INSERT INTO <t> (id) VALUES (2)"),
    "UPDATE": statement("UPDATE <t> SET id = 3"),
    "UPDATE to DEFAULT": statement("UPDATE <t> SET v = DEFAULT"),
    "MERGE": statement(MERGE),
}
OF_CONSTRAINT = {"delta.constraints.c": f"{CALL} IS NULL"}
PLACES: dict[str, dict[str, Any]] = {
    "constraint": {"configuration": OF_CONSTRAINT},
    "invariant": {"delta__invariants": json.dumps({"expression": {"expression": f"{CALL} IS NULL"}})},
    "generated": {"delta__generationExpression": CALL},
    "default": {"CURRENT_DEFAULT": CALL},
}


@pytest.mark.parametrize(
    ("place", "door"),
    [
        *(("constraint", door) for door in DOORS if door != "UPDATE to DEFAULT"),
        ("invariant", "append"),
        *(("generated", door) for door in ("append", "UPDATE", "MERGE")),
        *(("default", door) for door in ("append", "INSERT", "UPDATE to DEFAULT", "MERGE")),
    ],
)
def test_no_door_calls_java(
    spark: SparkSession, hostile: Any, called: Callable[[], bool], place: str, door: str
) -> None:
    with pytest.raises(Exception, match=REFUSED):
        DOORS[door](spark, hostile(**PLACES[place]))
    assert not called()


def test_reading_evaluates_nothing_of_the_log(
    spark: SparkSession, hostile: Any, called: Callable[[], bool]
) -> None:
    path = hostile(EXISTS_DEFAULT="'evaluated'", CURRENT_DEFAULT=CALL, delta__generationExpression=CALL)
    assert spark.read.format("delta").load(path).collect() == [(1, None)]
    assert spark.sql(f"SELECT v FROM delta.`{path}`").collect() == [(None,)]
    spark.sql(f"DESCRIBE TABLE EXTENDED delta.`{path}`").collect()
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")
    assert not called()


@pytest.mark.parametrize(
    "condition",
    [
        "try_reflect('java.lang.System', 'exit', '1') IS NULL",
        "IDENTIFIER('ref' || 'lect')('java.lang.System', 'exit', '1') IS NULL",
        "from_avro(unhex('00'), '{}', map('avroSchemaUrl', 'http://127.0.0.1:9/')) IS NULL",
        "from_protobuf(unhex('00'), 'a', '/etc/passwd') IS NULL",
        "read_files('/etc/passwd') IS NULL",
        "xpath_string('<!DOCTYPE a SYSTEM \"http://127.0.0.1:9/\"><a/>', 'a') IS NULL",
        "XPATH(concat('<!DOCTYPE a SYSTEM \"http://127.0.0.1:9/', id, '\"><a/>'), 'a') IS NULL",
        "system.builtin.reflect('java.lang.System', 'exit', '1') IS NULL",
        "from_xml('<a/>', 'a INT', map('rowValidationXSDPath', 'http://127.0.0.1:9/')) IS NULL",
        "transform(array(1), x -> my_function(x))[0] > 0",
        "id IN (SELECT id FROM range(3))",
        "EXISTS (SELECT 1)",
        "(SELECT 1) > 0",
        ":parameter > 0",
    ],
)
def test_what_an_expression_may_not_have(spark: SparkSession, hostile: Any, condition: str) -> None:
    spark.udf.register("my_function", lambda value: value, "int")
    path = hostile({"delta.constraints.c": condition})
    with pytest.raises(DeltaUnsupportedOperationException, match=REFUSED) as error:
        appended(spark, path)
    assert path in str(error.value)


BROKEN_INVARIANTS = ["", "{", "[]", "null", '{"expression":{}}', '{"expression":{"expression":5}}']
BROKEN_INVARIANTS += ["[" * 100_000, '{"expression":{"expression":"id >"}}']


@pytest.mark.parametrize("invariant", range(len(BROKEN_INVARIANTS)))
def test_an_invariant_that_is_none_refuses_rows(spark: SparkSession, hostile: Any, invariant: int) -> None:
    path = hostile(delta__invariants=BROKEN_INVARIANTS[invariant])
    with pytest.raises((PySparkException, DeltaError)) as error:
        appended(spark, path)
    assert not isinstance(error.value, UnknownException), error.value
    assert spark.read.format("delta").load(path).count() == 1


def test_sparks_own_functions_work(spark: SparkSession, hostile: Any) -> None:
    condition = (
        "id IS NULL OR forall(array(id, 1), x -> x >= 0) AND upper('é' COLLATE UTF8_LCASE) = 'É' "
        "AND CASE WHEN id > 0 THEN id BETWEEN 1 AND 5 ELSE id::int = 0 END AND struct(*).id = id "
        "AND extract(YEAR FROM DATE'2020-01-01') = 2020 AND current_date() > DATE'2020-01-01' "
        "AND regexp_like('a', '^[a-z]$') AND get_json_object('{\"a\": 1}', '$.a') = '1'"
    )
    path = hostile({"delta.constraints.c": condition}, delta__generationExpression="concat('n', id)")
    appended(spark, path)
    assert spark.read.format("delta").load(path).where("id = 0").collect() == [(0, "n0")]


def test_variables_of_the_driver_do_not_get_into_a_table(
    spark: SparkSession, hostile: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "${env:PATH} ${system:user.home} ${spark.app.name} ${spark.master}"
    path = hostile(delta__generationExpression=f"concat('{text}', '')")
    appended(spark, path)
    spark.sql(f"UPDATE delta.`{path}` SET id = 5 WHERE id = 0")
    spark.sql(MERGE.replace("<t>", f"delta.`{path}`"))
    rows = spark.read.format("delta").load(path).where("id > 1").collect()
    assert sorted(rows) == [(2, text), (5, text)]


def test_a_users_own_condition_may_have_more(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "own")
    spark.range(3).write.format("delta").save(path)
    writer = spark.range(1).write.format("delta").mode("overwrite")
    writer.option("replaceWhere", "id < 2 AND schema_of_xml('<r><a>1</a></r>') IS NOT NULL").save(path)
    assert sorted(row.id for row in spark.read.format("delta").load(path).collect()) == [0, 2]
