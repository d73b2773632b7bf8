"""File statistics: which footers give some, for which columns, with which counts."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from deltaflow.errors import DeltaIllegalArgumentException, StoreError
from deltaflow.log import Metadata, schema_to_string
from deltaflow.log.files import footers
from deltaflow.log.files.column_chunks import ColumnChunks
from deltaflow.log.files.footers import collect_statistics, numbers_of_rows
from deltaflow.log.protocol.indexed_columns import check_statistics_columns
from deltaflow.store import Stores, tails
from tests.log.files.footer_statistics import (
    COLUMNS,
    MICROSECONDS,
    assert_statistics_hold,
    indexed,
    one_column,
    statistics,
    statistics_text,
    write_parquet,
)

PROVEN = ("byte", "short", "integer", "long", "string", "timestamp", "decimal", "wide")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("footers")


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_no_value_lies_outside_and_counts_are_exact(directory: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(COLUMNS)))
    arrow_type, drawn_type, data_type, values = COLUMNS[name]
    rows = data.draw(st.lists(st.none() | values, max_size=8))
    array = pa.array(rows, drawn_type or arrow_type).cast(arrow_type)
    absent = pa.array([row is None for row in rows], pa.bool_())
    nested = pa.StructArray.from_arrays([array], names=["v"], mask=absent)
    file = write_parquet(directory, {"a": array, "s": nested}, row_group_size=data.draw(st.integers(1, 9)))
    schema = StructType().add("a", data_type).add("s", StructType().add("v", data_type))

    assert_statistics_hold(file, schema)

    found = statistics(file, schema)
    assert found["nullCount"] == {"a": array.null_count, "s": {"v": array.null_count}}
    if name in PROVEN and array.null_count < len(array):
        low, high = found["minValues"], found["maxValues"]
        assert "a" in low
        assert low["s"]["v"] == low["a"]
        assert ("a" in high) or name == "string"


# Single rules.


def test_shape_is_the_protocols_compact_json(tmp_path: Path) -> None:
    file = write_parquet(tmp_path, {"a": pa.array([1, None]), "n": pa.array([{"b": {"c": "x"}}, None])})
    inner = StructType().add("b", StructType().add("c", StringType()))
    schema = StructType().add("a", LongType()).add("n", inner)
    assert statistics_text(file, schema) == (
        '{"numRecords":2,"minValues":{"a":1,"n":{"b":{"c":"x"}}},"maxValues":{"a":1,"n":{"b":{"c":"x"}}},'
        '"nullCount":{"a":1,"n":{"b":{"c":1}}}}'
    )


def test_files_keep_their_order(tmp_path: Path) -> None:
    files = []
    for number in range(40):
        file = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"a": pa.array([number], pa.int32())}), file)
        files.append((str(file), file.stat().st_size))
    found = collect_statistics(files, [(("a",), IntegerType())])
    assert [json.loads(text)["minValues"]["a"] for text in found] == list(range(40))


def test_no_files_no_statistics() -> None:
    assert collect_statistics([], [(("a",), IntegerType())]) == []


def test_a_file_without_rows(tmp_path: Path) -> None:
    file = write_parquet(tmp_path, {"a": pa.array([], pa.int32()), "s": pa.array([], pa.string())})
    schema = StructType().add("a", IntegerType()).add("s", StringType())
    expected = {"numRecords": 0, "minValues": {}, "maxValues": {}, "nullCount": {"a": 0, "s": 0}}
    assert statistics(file, schema) == expected


def test_row_groups_of_nulls_only_do_not_cost_the_bounds(tmp_path: Path) -> None:
    values = pa.array([None, None, 5, 3, None, 9], pa.int64())
    assert one_column(tmp_path, values, LongType(), row_group_size=2) == (3, 9, 3)


def test_a_row_group_without_bounds_costs_them_but_not_the_count(tmp_path: Path) -> None:
    values = pa.array(["a", "b", "c" * 5000, None])
    assert one_column(tmp_path, values, StringType(), row_group_size=2) == (None, None, 1)


def test_a_footer_without_statistics_counts_records_and_required_columns(tmp_path: Path) -> None:
    file = tmp_path / "data.parquet"
    fields = pa.schema([pa.field("a", pa.int32()), pa.field("b", pa.int32(), nullable=False)])
    table = pa.table({"a": pa.array([1, 2], pa.int32()), "b": pa.array([1, 2], pa.int32())}, schema=fields)
    pq.write_table(table, file, write_statistics=False)
    found = statistics(file, StructType().add("a", IntegerType()).add("b", IntegerType()))
    assert found == {"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {"b": 0}}


def test_columns_beyond_the_first_leaves_are_left_out(tmp_path: Path) -> None:
    file = write_parquet(
        tmp_path,
        {
            "s": pa.array([{"a": 1, "b": 2}]),
            "l": pa.array([[1]]),
            "c": pa.array([3]),
            "t": pa.array([{"d": 4, "e": 5}]),
            "z": pa.array([6]),
        },
    )
    long = LongType()
    schema = (
        StructType()
        .add("s", StructType().add("a", long).add("b", long))
        .add("l", ArrayType(long))
        .add("c", long)
        .add("t", StructType().add("d", long).add("e", long))
        .add("z", long)
    )
    five = indexed(file, schema, dataSkippingNumIndexedCols="5")
    assert five["minValues"] == {"s": {"a": 1, "b": 2}, "c": 3, "t": {"d": 4}}
    assert indexed(file, schema, dataSkippingNumIndexedCols="1")["nullCount"] == {"s": {"a": 0}}
    nothing = {"numRecords": 1, "minValues": {}, "maxValues": {}, "nullCount": {}}
    assert indexed(file, schema, dataSkippingNumIndexedCols="0") == nothing
    assert "z" in indexed(file, schema, dataSkippingNumIndexedCols="-1")["minValues"]
    many = write_parquet(tmp_path, {f"c{number}": pa.array([number]) for number in range(40)})
    wide = StructType()
    for number in range(40):
        wide.add(f"c{number}", long)
    assert list(indexed(many, wide)["nullCount"]) == [f"c{number}" for number in range(32)]


def test_the_named_columns_have_statistics_and_no_others(tmp_path: Path) -> None:
    file = write_parquet(
        tmp_path,
        {
            **{f"c{number}": pa.array([number]) for number in range(40)},
            "s": pa.array([{"A": 1, "b": {"c": 2, "d": b"x"}, "e": 3}]),
            "x.y": pa.array([4]),
        },
    )
    long = LongType()
    inner = StructType().add("c", long).add("d", BinaryType())
    schema = StructType()
    for number in range(40):
        schema.add(f"c{number}", long)
    schema.add("s", StructType().add("A", long).add("b", inner).add("e", long)).add("x.y", long)

    def counted(columns: str) -> Any:
        # They stand before the number of columns.
        return indexed(file, schema, dataSkippingStatsColumns=columns, dataSkippingNumIndexedCols="1")

    assert counted("C39, s.a")["nullCount"] == {"c39": 0, "s": {"A": 0}}
    found = counted("S.b , `x.y`")
    assert found["nullCount"] == {"s": {"b": {"c": 0, "d": 0}}, "x.y": 0}
    assert found["minValues"] == {"s": {"b": {"c": 2}}, "x.y": 4}
    assert counted("")["nullCount"] == {}


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ("part", "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_PARTITIONED_COLUMN"),
        ("s.none", "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        ("id.x", "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        ("blob", "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_TYPE"),
        ("id, ID", "DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS"),
        ("s, s.a", "DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS"),
    ],
)
def test_named_columns_must_be_in_the_table_and_have_an_order(columns: str, code: str) -> None:
    metadata = Metadata(
        id="t",
        schema_string=schema_to_string(
            StructType()
            .add("id", LongType())
            .add("blob", BinaryType())
            .add("s", StructType().add("a", LongType()).add("blob", BinaryType()))
            .add("part", LongType())
        ),
        partition_columns=["part"],
        configuration={"delta.dataSkippingStatsColumns": columns},
    )
    with pytest.raises(DeltaIllegalArgumentException) as raised:
        check_statistics_columns(metadata, "t")
    assert raised.value.error_class == code


@pytest.mark.parametrize(("length", "low", "high"), [(0, None, None), (2, "xa", "xa\x7f"), (9, "xab", "xab")])
def test_the_length_of_cut_strings_is_the_tables(
    tmp_path: Path, length: int, low: str | None, high: str | None
) -> None:
    file = write_parquet(tmp_path, {"c": pa.array(["xab"])})
    found = statistics(file, StructType().add("c", StringType()), string_prefix_length=length)
    assert (found["minValues"].get("c"), found["maxValues"].get("c")) == (low, high)


def test_columns_are_found_by_their_whole_exact_name(tmp_path: Path) -> None:
    file = write_parquet(
        tmp_path, {"a.b": pa.array([7]), "a": pa.array([{"b": 1, "B": 2}]), "A": pa.array([3])}
    )
    long = LongType()
    schema = StructType().add("A", long).add("a", StructType().add("B", long).add("b", long)).add("a.b", long)
    assert statistics(file, schema)["minValues"] == {"A": 3, "a": {"B": 2, "b": 1}, "a.b": 7}


def test_columns_missing_in_the_file_are_all_null(tmp_path: Path) -> None:
    file = write_parquet(tmp_path, {"a": pa.array([1, 2]), "s": pa.array([{"x": 1}, None])})
    schema = (
        StructType()
        .add("new", StringType())
        .add("s", StructType().add("x", LongType()).add("y", LongType()))
        .add("t", StructType().add("u", LongType()))
    )
    assert statistics(file, schema) == {
        "numRecords": 2,
        "minValues": {"s": {"x": 1}},
        "maxValues": {"s": {"x": 1}},
        "nullCount": {"new": 2, "s": {"x": 1, "y": 2}, "t": {"u": 2}},
    }


def test_arrays_and_maps_have_exact_null_counts(tmp_path: Path) -> None:
    counters = pa.map_(pa.string(), pa.int32())
    file = write_parquet(
        tmp_path,
        {
            "full": pa.array([[1], [2, 3]]),
            "hollow": pa.array([[1], []]),
            "absent": pa.array([[1], None]),
            "gap": pa.array([[1], [None]]),
            "m": pa.array([[("k", 1)], [("l", None)]], counters),
            "n": pa.array([[("k", 1)], None], counters),
            "after": pa.array([1, 2]),
        },
    )
    schema = StructType()
    for name in ("full", "hollow", "absent", "gap"):
        schema.add(name, ArrayType(LongType()))
    schema.add("m", MapType(StringType(), IntegerType())).add("n", MapType(StringType(), IntegerType()))
    schema.add("after", LongType())
    found = statistics(file, schema)
    nulls = {"full": 0, "hollow": 0, "absent": 1, "gap": 0, "m": 0, "n": 1, "after": 0}
    assert found["nullCount"] == nulls
    assert found["minValues"] == {"after": 1}


LISTS = st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=2))
PAIRS = st.one_of(st.none(), st.lists(st.tuples(st.sampled_from("kl"), st.integers(0, 9)), max_size=2))
ROWS_WITH_COLLECTIONS = st.lists(
    st.one_of(st.none(), st.fixed_dictionaries({"l": LISTS, "m": PAIRS, "d": st.lists(LISTS, max_size=2)})),
    min_size=1,
    max_size=20,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=ROWS_WITH_COLLECTIONS, group=st.integers(1, 9), required=st.booleans())
def test_null_counts_of_nested_collections_are_those_of_the_rows(
    tmp_path: Path, rows: list[dict[str, Any] | None], group: int, required: bool
) -> None:
    numbers = pa.list_(pa.int64())
    arrow = pa.struct(
        [
            pa.field("l", numbers),
            pa.field("m", pa.map_(pa.string(), pa.int64())),
            pa.field("d", pa.list_(numbers)),
        ]
    )
    if required:
        rows = [row for row in rows if row is not None]
    fields = pa.schema([pa.field("s", arrow, nullable=not required)])
    file = tmp_path / f"{uuid.uuid4()}.parquet"
    pq.write_table(pa.table([pa.array(rows, arrow)], schema=fields), file, row_group_size=group)
    of_numbers = ArrayType(LongType())
    columns = StructType().add("l", of_numbers).add("m", MapType(StringType(), LongType()))
    schema = StructType().add("s", columns.add("d", ArrayType(of_numbers)))
    found = statistics(file, schema)["nullCount"].get("s", {})
    expected = {name: sum(row is None or row[name] is None for row in rows) for name in "lmd"}
    assert found == expected


def test_a_footer_without_levels_gives_no_null_count_of_an_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_parquet(tmp_path, {"a": pa.array([[1], None])})
    monkeypatch.setattr(ColumnChunks, "definition_levels", lambda *_: [None])
    assert statistics(file, StructType().add("a", ArrayType(LongType())))["nullCount"] == {}


def edit_footer(file: Path, old: bytes, new: bytes) -> None:
    """Puts bytes in the place of others, of their last occurrence in the file's footer."""
    before, found, after = file.read_bytes().rpartition(old)
    assert found
    length = int.from_bytes(after[-8:-4], "little") + len(new) - len(old)
    file.write_bytes(before + new + after[:-8] + length.to_bytes(4, "little") + after[-4:])


@pytest.mark.parametrize(
    ("sound", "broken"),
    [
        (b"\x15\x04\x19", b"\x15\x02\x19"),  # the type of its chunk is INT32
        (b"\x25\x02\x18\x01a", b"\x25\x00\x18\x01a"),  # the field is required: too many levels are counted
        (b"\x28\x08\x01\x00", b"\x28\x07\x01"),  # the greatest value has seven bytes
    ],
    ids=["type", "levels", "bound"],
)
def test_of_a_footer_that_contradicts_itself_only_the_number_of_rows_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sound: bytes, broken: bytes
) -> None:
    """pyarrow would end the process."""
    file = write_parquet(tmp_path, {"a": pa.array([0, 1, None])})
    schema = StructType().add("a", LongType())
    assert statistics(file, schema)["maxValues"] == {"a": 1}
    assert not caplog.messages
    edit_footer(file, sound, broken)
    assert statistics(file, schema) == {"numRecords": 3, "minValues": {}, "maxValues": {}, "nullCount": {}}
    assert f"{file}: its footer's statistics are left out" in caplog.text


def test_a_struct_without_fields_has_no_leaf(tmp_path: Path) -> None:
    """Neither Arrow nor Spark writes one; what comes after it would get the bounds of its neighbours."""
    file = write_parquet(tmp_path, {"b": pa.array([1, 2]), "c": pa.array([7, 9])}, store_schema=False)
    root, empty = b"\x19\x4c\x35\x00\x18\x06schema\x15\x06\x00", b"\x35\x02\x18\x01a\x15\x00\x00"
    edit_footer(file, b"\x19\x3c\x35\x00\x18\x06schema\x15\x04\x00", root + empty)
    assert pq.read_schema(file).names == ["a", "b", "c"]
    found = statistics(file, StructType().add("b", LongType()).add("c", LongType()))
    assert (found["minValues"], found["maxValues"]) == ({"b": 1, "c": 7}, {"b": 2, "c": 9})


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    good = write_parquet(tmp_path, {"a": pa.array([1])})
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(b"PAR1 but nothing of it PAR1")
    files = [(str(file), file.stat().st_size) for file in (good, bad)]
    with pytest.raises(StoreError, match=r"bad\.parquet") as raised:
        collect_statistics(files, [(("a",), LongType())])
    assert raised.value.file == str(bad)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"gone\.parquet"):
        collect_statistics([(str(tmp_path / "gone.parquet"), 10)], [(("a",), LongType())])


def test_a_file_of_another_size_than_the_written_one_is_refused(tmp_path: Path) -> None:
    file = write_parquet(tmp_path, {"a": pa.array([1])})
    with pytest.raises(StoreError, match=r"data\.parquet has \d+ bytes, but its writer reported 12"):
        collect_statistics([(str(file), 12)], [(("a",), LongType())])


def test_an_independent_reader_understands_them(tmp_path: Path) -> None:
    schema = StructType()
    columns: dict[str, pa.Array] = {}
    for name, values, data_type in [
        ("l", pa.array([-(2**63), 2**63 - 1]), LongType()),
        ("d", pa.array([0.0, 1.5]), DoubleType()),
        ("s", pa.array(["é" * 40, "\U0001f600"]), StringType()),
        ("day", pa.array([0, 1], pa.int32()).cast(pa.date32()), DateType()),
        ("t", pa.array([1_001, 2_001], MICROSECONDS), TimestampType()),
        ("n", pa.array([Decimal("-1.50"), Decimal("2.25")], pa.decimal128(9, 2)), DecimalType(9, 2)),
    ]:
        columns[name] = values
        schema.add(name, data_type)
    file = write_parquet(tmp_path, columns)
    add = {
        "path": file.name,
        "partitionValues": {},
        "size": file.stat().st_size,
        "modificationTime": 0,
        "dataChange": True,
        "stats": statistics_text(file, schema),
    }
    metadata = {
        "id": "5f2a2a4e-3f0b-4a55-9d52-7d6d3c2b1a00",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema.json(),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 0,
    }
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    log = tmp_path / "_delta_log"
    log.mkdir()
    actions = [{"protocol": protocol}, {"metaData": metadata}, {"add": add}]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))

    [found] = pa.table(deltalake.DeltaTable(tmp_path).get_add_actions(flatten=True)).to_pylist()

    assert found["num_records"] == 2
    for name, values in columns.items():
        assert found[f"null_count.{name}"] == 0
        assert found[f"min.{name}"] <= min(values.to_pylist())
        if name != "d":
            assert found[f"max.{name}"] >= max(values.to_pylist())
    assert (found["min.n"], found["max.n"]) == (Decimal("-1.50"), Decimal("2.25"))


# Files of Spark's own writer, made in a process of its own so that no session is shared.


@pytest.mark.parametrize("bytes_at_once", [1_000, 600_000, 64_000_000])
def test_long_footers_are_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_at_once: int
) -> None:
    files, numbers = [], range(9)
    for number in numbers:
        note = "x" * (100_000 if number % 3 else 10)  # of Parquet's footer
        table = pa.table({"a": range(number + 1)}).replace_schema_metadata({"note": note})
        pq.write_table(table, tmp_path / f"{number}.parquet")
        files.append((str(tmp_path / f"{number}.parquet"), (tmp_path / f"{number}.parquet").stat().st_size))
    reads: list[int] = []

    def counted(some: list[tuple[str, int]], size: int, stores: Stores) -> list[bytes]:
        reads.append(len(some))
        return tails(some, size, stores)

    monkeypatch.setattr(footers, "tails", counted)
    monkeypatch.setattr(footers, "_BYTES_AT_ONCE", bytes_at_once)
    assert numbers_of_rows(files) == [number + 1 for number in numbers]
    assert reads == {1_000: [9, *[1] * 6], 600_000: [9, 1, 1, 2, 1, 1], 64_000_000: [9, 6]}[bytes_at_once]
