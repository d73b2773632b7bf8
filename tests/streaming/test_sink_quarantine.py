"""Rows that do not fit go to the quarantine, with the reason. Both tables together hold every row once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from deltaflow.log import DeltaLog
from deltaflow.log.observer import set_observer
from deltaflow.tables import DeltaTable, IdentityGenerator
from tests.tables import actions, commit_file, commit_info, every_action, load, read_by_deltalake, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def quarantine(tmp_path: Path) -> str:
    """A path for the quarantine's table, with nothing there."""
    return str(tmp_path / "quarantine")


def make(path: str, *fields: pa.Field, **constraints: str) -> None:
    """A table without rows."""
    table = deltalake.DeltaTable.create(path, pa.schema(fields))
    for name, expression in constraints.items():
        table.alter.add_constraint({name: expression})


def rows_so_far(path: str) -> list[dict[str, Any]]:
    """The rows as the independent reader sees them; none where there is no table yet."""
    return read_by_deltalake(path) if deltalake.DeltaTable.is_deltatable(path) else []


def set_aside(path: str) -> list[tuple[int, Any, str]]:
    """Batch, id and first line of the reason of every quarantined row."""
    found = rows_so_far(path)
    return sorted((row["batch_id"], row["row"]["id"], row["reason"].split("\n")[0]) for row in found)


def txns(path: str) -> list[tuple[str, int]]:
    return [(txn["appId"], txn["version"]) for txn in every_action(path, "txn")]


def check_whole(sink: str, quarantine: str, ids: range) -> None:
    """Every id is in one of the two tables, once."""
    fitting = Counter(row["id"] for row in rows_so_far(sink))
    assert fitting + Counter(row["row"]["id"] for row in rows_so_far(quarantine)) == Counter(ids)


@pytest.mark.covers("quarantinePath")
def test_every_kind_of_row_that_does_not_fit(
    streams: Any, table: str, sink: str, checkpoint: str, quarantine: str
) -> None:
    long, tiny = pa.int64(), pa.int8()
    make(
        sink,
        pa.field("id", long),
        pa.field("n", tiny),
        pa.field("must", pa.string(), nullable=False),
        pa.field("s", pa.struct([("a", tiny), ("b", pa.string())])),
        pa.field("l", pa.list_(tiny)),
        pa.field("extra", long),
        small="id < 8 AND 10 / (id - 6) < 100",
    )
    streams.append(table, 0, 10)
    frame = streams.read(table).selectExpr(
        "id",
        "IF(id = 1, 300, id) AS N",
        "IF(id IN (2, 3), NULL, 'x') AS must",
        "named_struct('B', 'b', 'A', IF(id = 4, 400, id)) AS s",
        "IF(id = 5, array(1, 500), NULL) AS l",
    )
    query = streams.copy(frame, sink, checkpoint, quarantinePath=quarantine)
    fits = [{"id": i, "n": i, "must": "x", "s": {"a": i, "b": "b"}, "l": None, "extra": None} for i in (0, 7)]
    assert sorted(rows_so_far(sink), key=lambda row: row["id"]) == fits
    overflow = "[DELTA_CAST_OVERFLOW_IN_TABLE_WRITE] Failed to write a value of type "
    missing = "[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] NOT NULL constraint violated for column: must."
    failed = "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint small "
    reasons = {i: reason for _, i, reason in set_aside(quarantine)}
    assert sorted(reasons) == [1, 2, 3, 4, 5, 6, 8, 9]
    assert reasons[1].startswith(f"{overflow}BIGINT into the TINYINT type column n.")
    assert reasons[1].endswith("Value: 300")
    assert reasons[2] == reasons[3] == missing
    assert f"{overflow}STRUCT<" in reasons[4]
    assert "400" in reasons[4]
    assert reasons[5].endswith("Value: [1, 500]")
    assert all(reasons[i].startswith(failed) for i in (6, 8, 9))
    [eighth] = [row for row in rows_so_far(quarantine) if row["row"]["id"] == 8]
    assert "id : 8" in eighth["reason"]
    # The row keeps the frame's names and types.
    assert eighth["row"] == {"id": 8, "N": 8, "must": "x", "s": {"B": "b", "A": 8}, "l": None}
    assert (eighth["batch_id"], eighth["query_id"]) == (0, query.id)
    assert txns(sink) == txns(quarantine) == [(query.id, 0)]
    assert query.lastProgress["numInputRows"] == 10
    info = commit_info(quarantine, 0)
    assert info["operation"] == "STREAMING UPDATE"
    assert info["operationMetrics"]["numOutputRows"] == "8"


def test_batches_without_such_rows_leave_no_commit(
    streams: Any, table: str, sink: str, checkpoint: str, quarantine: str
) -> None:
    make(sink, pa.field("id", pa.int64()), small="id < 8")
    options = {"quarantinePath": quarantine}
    for start in (0, 4, 8):
        streams.append(table, start, start + 4)
        query = streams.copy(streams.read(table), sink, checkpoint, **options)
        assert Path(quarantine, "_delta_log").exists() == (start == 8)
    assert txns(quarantine) == [(query.id, 2)]
    assert streams.ids(sink) == list(range(8))
    check_whole(sink, quarantine, range(12))
    # A new table, which every row fits, has no quarantine either.
    streams.copy(streams.read(table), f"{sink}2", f"{checkpoint}2", quarantinePath=f"{quarantine}2")
    assert streams.ids(f"{sink}2") == list(range(12))
    assert not Path(f"{quarantine}2", "_delta_log").exists()


def test_the_plan_of_a_batch_runs_once(
    streams: Any, table: str, sink: str, checkpoint: str, quarantine: str
) -> None:
    """Another run of the plan would give rows other letters, and so other tables."""
    make(sink, pa.field("id", pa.int64()), pa.field("u", pa.string()), half="u < '8'")
    streams.append(table, 0, 200, files=2)
    drawn = streams.read(table).selectExpr("id", "reflect('java.util.UUID', 'randomUUID') AS u")
    query = streams.copy(drawn, sink, checkpoint, quarantinePath=quarantine)
    assert 20 < len(rows_so_far(sink)) < 180
    check_whole(sink, quarantine, range(200))
    assert query.lastProgress["numInputRows"] == 200


POINTS = [
    ("files written", "quarantine"),
    ("commit put", "quarantine"),
    ("files written", "sink"),
    ("commit put", "sink"),
]


@pytest.mark.parametrize("stateful", [False, True], ids=["rows", "state"])
@pytest.mark.parametrize("point", POINTS, ids=lambda point: " ".join(point))
@pytest.mark.sampled(12)
def test_a_failure_at_every_point(
    streams: Any,
    table: str,
    sink: str,
    checkpoint: str,
    quarantine: str,
    point: tuple[str, str],
    stateful: bool,
) -> None:
    make(sink, pa.field("id", pa.int64()), odd="id % 4 != 0")
    streams.append(table, 0, 12)

    def start() -> Any:
        frame = streams.read(table)
        frame = frame.dropDuplicates(["id"]) if stateful else frame
        return streams.write(frame, sink, checkpoint, quarantinePath=quarantine)

    streams.ended(start())
    streams.append(table, 8, 20)

    def observer(at: str, facts: dict[str, Any]) -> None:
        place = facts.get("path", facts.get("table"))
        if (at, place) == (point[0], {"sink": sink, "quarantine": quarantine}[point[1]]):
            raise InterruptedError("the process ends here")

    set_observer(observer)
    streams.failed(start())
    set_observer(None)
    streams.append(table, 20, 24)
    query = streams.ended(start())
    if stateful:
        check_whole(sink, quarantine, range(24))
    else:
        found = Counter(row["id"] for row in rows_so_far(sink)) + Counter(
            row["row"]["id"] for row in rows_so_far(quarantine)
        )
        assert found == Counter([*range(12), *range(8, 20), *range(20, 24)])
    assert all(row["row"]["id"] % 4 == 0 for row in rows_so_far(quarantine))
    assert txns(sink) == [(query.id, batch) for batch in range(3)]
    assert {version for _, version in txns(quarantine)} == {0, 1, 2}


@pytest.mark.parametrize("constraint", ["id < 7", None])
def test_a_batch_that_runs_again_under_other_constraints(
    streams: Any, table: str, sink: str, checkpoint: str, quarantine: str, constraint: str | None
) -> None:
    """Rows that were quarantined fit now: they are in the table, and no longer in the quarantine."""
    make(sink, pa.field("id", pa.int64()), small="id < 5")
    streams.append(table, 0, 10)

    def observer(at: str, facts: dict[str, Any]) -> None:
        if at == "files written" and facts["path"] == sink:
            raise InterruptedError("the process ends here")

    set_observer(observer)
    streams.failed(streams.write(streams.read(table), sink, checkpoint, quarantinePath=quarantine))
    set_observer(None)
    assert len(rows_so_far(quarantine)) == 5
    deltalake.DeltaTable(sink).alter.drop_constraint("small")
    if constraint is not None:
        deltalake.DeltaTable(sink).alter.add_constraint({"small": constraint})
    streams.copy(streams.read(table), sink, checkpoint, quarantinePath=quarantine)
    assert [i for _, i, _ in set_aside(quarantine)] == ([7, 8, 9] if constraint else [])
    check_whole(sink, quarantine, range(10))


@pytest.mark.parametrize("loses", ["the commit", "all commits"])
@pytest.mark.sampled(2)
def test_a_batch_that_runs_again_when_log_cleanup_has_removed_its_commit(
    streams: Any, table: str, sink: str, checkpoint: str, quarantine: str, loses: str
) -> None:
    """The statistics show which files are the batch's. Files of other batches and queries stay."""
    make(sink, pa.field("id", pa.int64()), small="id < 5")
    streams.append(table, 0, 10)
    other = str(Path(checkpoint).with_name("checkpoint of another query"))
    other_sink = str(Path(sink).with_name("other sink"))
    make(other_sink, pa.field("id", pa.int64()), small="id < 8")
    streams.copy(streams.read(table), other_sink, other, quarantinePath=quarantine)

    def observer(at: str, facts: dict[str, Any]) -> None:
        if at == "files written" and facts["path"] == sink:
            raise InterruptedError("the process ends here")

    set_observer(observer)
    streams.failed(streams.write(streams.read(table), sink, checkpoint, quarantinePath=quarantine))
    set_observer(None)
    version_of_run = versions(quarantine)[-1]
    streams.append(table, 10, 12)
    streams.copy(streams.read(table), other_sink, other, quarantinePath=quarantine)
    DeltaLog.for_table(quarantine).checkpoint()
    for version in versions(quarantine):
        if loses == "all commits" or version <= version_of_run:
            commit_file(quarantine, version).unlink()
    deltalake.DeltaTable(sink).alter.drop_constraint("small")
    deltalake.DeltaTable(sink).alter.add_constraint({"small": "id < 7"})
    streams.copy(streams.read(table), sink, checkpoint, quarantinePath=quarantine)
    own = [row["row"]["id"] for row in rows_so_far(quarantine) if row["row"]["id"] not in (8, 9, 10, 11)]
    assert own == [7]
    assert Counter(row["row"]["id"] for row in rows_so_far(quarantine)) == {7: 1, 8: 2, 9: 2, 10: 2, 11: 2}


@pytest.mark.parametrize(
    ("rewrite", "vectors"),
    [
        ("OPTIMIZE {0}", "false"),
        ("UPDATE {0} SET reason = 'seen' WHERE row.id > 8", "true"),
        ("DELETE FROM {0} WHERE row.id = 8", "false"),
    ],
)
@pytest.mark.long
def test_a_batch_that_runs_again_when_its_files_were_rewritten(
    streams: Any,
    table: str,
    sink: str,
    checkpoint: str,
    quarantine: str,
    rewrite: str,
    vectors: str,
) -> None:
    """Its rows are found wherever they are now; those of other batches stay."""
    make(sink, pa.field("id", pa.int64()), small="id < 5")
    streams.append(table, 0, 8)
    streams.copy(streams.read(table), sink, checkpoint, quarantinePath=quarantine)
    assert [i for _, i, _ in set_aside(quarantine)] == [5, 6, 7]
    properties = f"('delta.enableDeletionVectors' = '{vectors}')"
    streams.spark.sql(f"ALTER TABLE delta.`{quarantine}` SET TBLPROPERTIES {properties}")
    streams.append(table, 8, 12)

    def observer(at: str, facts: dict[str, Any]) -> None:
        if at == "files written" and facts["path"] == sink:
            raise InterruptedError("the process ends here")

    set_observer(observer)
    streams.failed(streams.write(streams.read(table), sink, checkpoint, quarantinePath=quarantine))
    set_observer(None)
    streams.spark.sql(rewrite.format(f"delta.`{quarantine}`"))
    streams.copy(streams.read(table), sink, checkpoint, quarantinePath=quarantine)
    found = load(streams.spark, quarantine).selectExpr("batch_id", "row.id").collect()
    assert sorted(map(tuple, found)) == [(0, 5), (0, 6), (0, 7), (1, 8), (1, 9), (1, 10), (1, 11)]
    assert streams.ids(sink) == list(range(5))


def test_another_schema_of_the_stream(
    streams: Any, table: str, sink: str, checkpoint: str, quarantine: str
) -> None:
    """The quarantine adds new columns, and keeps the old ones."""
    make(sink, pa.field("id", pa.int64()), pa.field("n", pa.int8()), pa.field("m", pa.int8()))
    streams.append(table, 0, 1)
    streams.copy(
        streams.read(table).selectExpr("id", "500 AS n"), sink, checkpoint, quarantinePath=quarantine
    )
    streams.append(table, 1, 2)
    streams.copy(
        streams.read(table).selectExpr("id", "600 AS m"), sink, checkpoint, quarantinePath=quarantine
    )
    aside = sorted(rows_so_far(quarantine), key=lambda row: row["batch_id"])
    assert [json.dumps(row["row"]) for row in aside] == [
        '{"id": 0, "n": 500, "m": null}',
        '{"id": 1, "n": null, "m": 600}',
    ]


@pytest.mark.parametrize(
    ("kept", "given", "policy"),
    [
        ("20", "0.7D", "ANSI"),
        ("20", "1L << 40", "ANSI"),
        ("20", "'text'", "LEGACY"),
        ("CAST(0.5 AS FLOAT)", "0.1D", "ANSI"),
        ("1.5", "CAST(1.25 AS DECIMAL(8, 4))", "ANSI"),
        ("DATE'2024-01-01'", "TIMESTAMP_NTZ'2024-01-01 12:00:00'", "ANSI"),
    ],
)
@pytest.mark.sampled(2)
def test_a_value_that_the_quarantine_would_round(
    streams: Any,
    settings: Any,
    table: str,
    sink: str,
    checkpoint: str,
    quarantine: str,
    kept: str,
    given: str,
    policy: str,
) -> None:
    """Another stream's rows stop it; those of a wider type are kept once the quarantine may widen its own."""
    streams.append(table, 0, 2)
    for i, value in enumerate((kept, given)):
        path, frame = f"{sink}{i}", streams.read(table).selectExpr("id", f"{value} AS v")
        make(path, pa.field("id", pa.int64()), small="id < 1")
        streams.spark.sql(
            f"ALTER TABLE delta.`{path}` ADD COLUMNS v {frame.schema['v'].dataType.simpleString()}"
        )
        if i == 0:
            streams.copy(frame, path, f"{checkpoint}{i}", quarantinePath=quarantine)

    def second() -> Any:
        with settings({"spark.sql.storeAssignmentPolicy": policy}):
            return streams.write(frame, path, f"{checkpoint}1", quarantinePath=quarantine)

    before = versions(quarantine)
    message = streams.failed(second())
    assert f"[DELTA_QUARANTINE_TYPES] The quarantine at {quarantine} cannot keep rows" in message
    assert "column row.v is " in message
    assert (versions(quarantine), streams.ids(path)) == (before, [])
    streams.spark.sql(
        f"ALTER TABLE delta.`{quarantine}` SET TBLPROPERTIES ("
        "'delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported')"
    )
    if given == "'text'":
        assert "Give the stream another quarantine" in streams.failed(second())
        return
    query = streams.ended(second())
    rows = load(streams.spark, quarantine).where(f"query_id = '{query.id}'").select("row.*")
    assert rows.collect() == streams.spark.sql(f"SELECT 1L AS id, {given} AS v").collect()
    assert streams.ids(path) == [0]


def test_a_narrower_type_than_the_quarantine_has(
    streams: Any, table: str, sink: str, checkpoint: str, quarantine: str
) -> None:
    streams.append(table, 0, 2)
    for i, value in enumerate(("0.5D", "7", "CAST(8 AS SHORT)")):
        make(f"{sink}{i}", pa.field("id", pa.int64()), pa.field("v", pa.float64()), small="id < 1")
        frame = streams.read(table).selectExpr("id", f"{value} AS v")
        streams.copy(frame, f"{sink}{i}", f"{checkpoint}{i}", quarantinePath=quarantine)
    assert sorted(row["row"]["v"] for row in rows_so_far(quarantine)) == [0.5, 7.0, 8.0]


def test_a_constraint_of_the_quarantine(
    streams: Any, table: str, sink: str, checkpoint: str, quarantine: str
) -> None:
    """The error says whose it is."""
    make(sink, pa.field("id", pa.int64()), small="id < 1")
    streams.append(table, 0, 2)
    streams.copy(streams.read(table), sink, checkpoint, quarantinePath=quarantine)
    streams.spark.sql(f"ALTER TABLE delta.`{quarantine}` ADD CONSTRAINT few CHECK (batch_id < 1)")
    streams.append(table, 2, 3)
    query = streams.write(streams.read(table), sink, checkpoint, quarantinePath=quarantine)
    message = streams.failed(query)
    assert "CHECK constraint few" in message
    assert f"(table {quarantine})" in message
    assert len(rows_so_far(quarantine)) == 1


def test_char_lengths(streams: Any, table: str, sink: str, checkpoint: str, quarantine: str) -> None:
    long = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    short = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}
    text = {"name": "t", "type": "string", "nullable": True, "metadata": short}
    make(sink, pa.field("id", pa.int64()), pa.field("t", pa.string()))
    [metadata] = actions(sink, "metaData", 0)
    schema = json.dumps({"type": "struct", "fields": [long, text]})
    streams.add_version(sink, {"metaData": {**metadata, "schemaString": schema}})
    streams.append(table, 0, 2)
    frame = streams.read(table).selectExpr("id", "IF(id = 1, 'four', 'two') AS t")
    streams.copy(frame, sink, checkpoint, quarantinePath=quarantine)
    assert rows_so_far(sink) == [{"id": 0, "t": "two"}]
    [(_, found, reason)] = set_aside(quarantine)
    assert found == 1
    assert reason.startswith("[DELTA_EXCEED_CHAR_VARCHAR_LIMIT]")
    assert reason.endswith("Value: four")


def test_computed_columns(
    spark: SparkSession, streams: Any, table: str, sink: str, checkpoint: str, quarantine: str
) -> None:
    """A generated column that cannot be computed has no value, and its error says so."""
    columns = DeltaTable.create(spark).location(sink).addColumn("id", "BIGINT")
    columns.addColumn("k", "BIGINT", generatedAlwaysAs=IdentityGenerator())
    columns.addColumn("share", "BIGINT", generatedAlwaysAs="6 DIV id")
    columns.addColumn("code", "VARCHAR(2)", generatedAlwaysAs="CAST(id * 50 AS STRING)")
    columns.addColumn("p", "STRING", generatedAlwaysAs="CAST(id AS STRING)").partitionedBy("p").execute()
    streams.append(table, 0, 4)
    streams.copy(streams.read(table), sink, checkpoint, quarantinePath=quarantine)
    found = load(spark, sink)
    assert [tuple(row) for row in found.select("id", "share", "code", "p").collect()] == [(1, 6, "50", "1")]
    reasons = {found_id: reason for _, found_id, reason in set_aside(quarantine)}
    assert sorted(reasons) == [0, 2, 3]
    says = "] Column {} cannot be computed: its expression {} fails for the row{}."
    assert reasons[0].endswith(says.format("share", "6 DIV id", ""))
    too_long = says.format("code", "CAST(id * 50 AS STRING)", ", or its value is too long")
    assert reasons[2].endswith(too_long)
    assert reasons[3].endswith(too_long)


def test_expressions_that_are_there_twice(
    spark: SparkSession, streams: Any, table: str, sink: str, checkpoint: str, quarantine: str
) -> None:
    """Spark computes those once, which must not be outside of the attempt, in whichever places they are."""
    columns = DeltaTable.create(spark).location(sink).addColumn("id", "BIGINT")
    columns.addColumn("share", "BIGINT", generatedAlwaysAs="6 DIV id")
    columns.addColumn("more", "BIGINT", generatedAlwaysAs="6 DIV id + 1")
    columns.addColumn("twice", "BIGINT", generatedAlwaysAs="(10 DIV (id - 1)) * (10 DIV (id - 1))")
    columns.addColumn("p", "STRING", generatedAlwaysAs="CAST(12 DIV (id - 2) AS STRING)").partitionedBy("p")
    columns.execute()
    spark.sql(f"ALTER TABLE delta.`{sink}` ADD CONSTRAINT a CHECK (8 DIV (id - 3) > 0)")
    spark.sql(f"ALTER TABLE delta.`{sink}` ADD CONSTRAINT b CHECK (8 DIV (id - 3) < 9)")
    streams.append(table, 0, 5)
    streams.copy(streams.read(table), sink, checkpoint, quarantinePath=quarantine)
    assert load(spark, sink).collect() == [(4, 1, 2, 9, "6")]
    reasons = {row["row"]["id"]: row["reason"] for row in rows_so_far(quarantine)}
    failing = {0: ["Column share", "Column more"], 1: ["Column twice"], 2: ["Column p"]}
    failing[3] = ["CHECK constraint a ", "CHECK constraint b "]
    assert {key: reason.count("[DELTA_") for key, reason in reasons.items()} == {0: 2, 1: 1, 2: 1, 3: 2}
    assert all(name in reasons[key] for key, names in failing.items() for name in names), reasons


def test_types_whose_text_needs_a_time_zone(
    spark: SparkSession, streams: Any, table: str, sink: str, checkpoint: str, quarantine: str
) -> None:
    """Columns that fit, columns that do not, and those of a constraint."""
    spark.sql(
        f"CREATE TABLE delta.`{sink}` (id BIGINT, t TIMESTAMP, v VARIANT, "
        "s STRUCT<t: TIMESTAMP, n: TINYINT>) USING delta"
    )
    spark.sql(f"ALTER TABLE delta.`{sink}` ADD CONSTRAINT early CHECK (t < timestamp'2024-01-01 02:00:00Z')")
    streams.append(table, 0, 4)
    frame = streams.read(table).selectExpr(
        "id",
        "timestamp'2024-01-01 00:00:00Z' + id * interval '1' hour AS t",
        "parse_json('1') AS v",
        "named_struct('t', timestamp'2024-01-01 00:00:00Z', 'n', IF(id = 0, 300, 1)) AS s",
    )
    streams.copy(frame, sink, checkpoint, quarantinePath=quarantine)
    assert [row.id for row in load(spark, sink).select("id").collect()] == [1]
    rows = load(spark, quarantine).selectExpr("row.id", "reason").orderBy("id").collect()
    ends = [row.reason.split("\n")[-1] for row in rows]
    assert ends[0].endswith("Value: {2024-01-01 00:00:00, 300}")
    assert ends[1:] == [" - t : 2024-01-01 02:00:00", " - t : 2024-01-01 03:00:00"]


def test_names_of_a_mapped_table(
    spark: SparkSession, streams: Any, table: str, sink: str, checkpoint: str, quarantine: str
) -> None:
    """The quarantine has the frame's names, which only a mapped table may have."""
    spark.sql(
        f"CREATE TABLE delta.`{sink}` (`the id` BIGINT NOT NULL) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    streams.append(table, 0, 3)
    frame = streams.read(table).selectExpr("IF(id = 1, NULL, id) AS `the id`")
    streams.copy(frame, sink, checkpoint, quarantinePath=quarantine)
    streams.append(table, 1, 2)
    streams.copy(frame, sink, checkpoint, quarantinePath=quarantine)
    assert sorted(row[0] for row in load(spark, sink).collect()) == [0, 2]
    rows = load(spark, quarantine).orderBy("batch_id").select("batch_id", "row").collect()
    assert [row.asDict(recursive=True) for row in rows] == [
        {"batch_id": batch, "row": {"the id": None}} for batch in (0, 1)
    ]


@pytest.mark.parametrize("same", [False, True], ids=["complete mode", "its own table"])
def test_refused_at_the_start(
    streams: Any, table: str, sink: str, checkpoint: str, quarantine: str, same: bool
) -> None:
    streams.append(table, 0, 2)
    frame, mode = (
        (streams.read(table), "append") if same else (streams.read(table).groupBy().count(), "complete")
    )
    with pytest.raises(AnalysisException, match="quarantinePath") as raised:
        streams.write(frame, sink, checkpoint, mode=mode, quarantinePath=f"{sink}/" if same else quarantine)
    assert raised.value.error_class == ("DELTA_ILLEGAL_OPTION" if same else "DELTA_UNSUPPORTED_OPTION")
    assert not Path(sink).exists()
