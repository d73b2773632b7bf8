"""Reading checkpoints: every layout, what survives, and what happens when one is broken."""

from __future__ import annotations

import io
import json
import logging
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from fsspec.implementations.local import LocalFileSystem

from deltaflow.errors import CorruptLogError, StoreError, UnsupportedFeatureError
from deltaflow.log import DeltaLog, add_files, decode_actions, encode_actions, tombstone_actions
from deltaflow.log.files.json_column import json_column
from deltaflow.store import LocalLogStore
from deltaflow.store.fsspec_store import FsspecLogStore
from tests.log.checkpoints import ADD, CHECKPOINT_LAYOUTS, write_checkpoint, write_compaction, write_hint
from tests.log.hand_written import HandWrittenTable, add, meta_data, paths, protocol, remove

VECTOR = {"storageType": "u", "pathOrInlineDv": "ab", "offset": 4, "sizeInBytes": 40, "cardinality": 6}
STATE = [
    protocol(1, 7, writerFeatures=["domainMetadata"]),
    meta_data(partition_columns=["part"], configuration={"delta.appendOnly": "false", "odd": 'q"\\'}),
    {"txn": {"appId": "q", "version": 7, "lastUpdated": 3}},
    {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
    add("part=x/1", partitionValues={"part": "x"}, stats='{"numRecords":1}', tags={"k": 'v"', "n": None}),
    add("part=y/2", partitionValues={"part": None}, deletionVector=VECTOR, baseRowId=5),
    add("3", partitionValues={"part": "ü\n"}, defaultRowCommitVersion=2, clusteringProvider="liquid"),
    remove("4", deletionTimestamp=9, size=4, partitionValues={"part": "z"}, extendedFileMetadata=True),
    remove("2", deletionVector=VECTOR, tags={"a": "b"}),
]


def gone(table: HandWrittenTable, *versions: int) -> None:
    for version in versions:
        (table.log_directory / f"{version:020}.json").unlink()


def a_table_with_a_checkpoint(table: HandWrittenTable, layout: str = "classic") -> list[Path]:
    """Versions 0 to 3, with files 0 to 3 and a checkpoint of version 2."""
    table.first_commit(add("0"))
    for version in range(1, 4):
        table.commit(version, add(str(version)))
    return write_checkpoint(
        table, 2, [protocol(), meta_data(), *(add(str(path)) for path in range(3))], layout
    )


@pytest.mark.parametrize("layout", CHECKPOINT_LAYOUTS)
def test_a_checkpoint_of_any_layout_gives_back_every_action(table: HandWrittenTable, layout: str) -> None:
    write_checkpoint(table, 5, STATE, layout)
    table.commit(6, add("5", partitionValues={"part": "x"}))
    snapshot = table.log().snapshot()
    assert (snapshot.version, snapshot.table_id, snapshot.txn_version("q")) == (6, "table-1", 7)
    assert snapshot.metadata.configuration == {"delta.appendOnly": "false", "odd": 'q"\\'}
    assert snapshot.domains["d"].configuration == "{}"
    written = decode_actions("\n".join(map(json.dumps, STATE)).encode(), "f")
    adds = [action for action in add_files(snapshot.with_stats(snapshot.files)) if action.path != "5"]
    assert sorted(adds, key=lambda file: file.path) == sorted(written[4:7], key=lambda file: file.path)
    tombstones = sorted(tombstone_actions(snapshot.tombstones), key=lambda file: file.path)
    assert [file.path for file in tombstones] == ["2", "4"]
    assert (tombstones[0].deletion_vector, tombstones[0].tags) == (written[8].deletion_vector, {"a": "b"})
    assert (tombstones[1].deletion_timestamp, tombstones[1].size) == (9, 4)
    assert (tombstones[1].partition_values, tombstones[1].extended_file_metadata) == ({"part": "z"}, True)


def with_texts(arrow_type: pa.DataType, texts: pa.DataType) -> pa.DataType:
    """The type with texts of another type, as a writer may store it beside the schema of Parquet."""
    if pa.types.is_struct(arrow_type):
        return pa.struct([field.with_type(with_texts(field.type, texts)) for field in arrow_type])
    if pa.types.is_map(arrow_type):
        return pa.map_(with_texts(arrow_type.key_type, texts), with_texts(arrow_type.item_type, texts))
    if pa.types.is_list(arrow_type):
        return pa.list_(with_texts(arrow_type.value_type, texts))
    return texts if pa.types.is_string(arrow_type) else arrow_type


@pytest.mark.parametrize("texts", [pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_texts_may_be_views_or_in_dictionaries(table: HandWrittenTable, texts: pa.DataType) -> None:
    def state() -> tuple[Any, ...]:
        snapshot = table.log().snapshot()
        files = list(add_files(snapshot.with_stats(snapshot.files)))
        others = snapshot.protocol, snapshot.metadata, snapshot.transactions, snapshot.domains
        return files, list(tombstone_actions(snapshot.tombstones)), *others

    bounds = pa.struct({"part": pa.string()})
    add_type = ADD | {"stats_parsed": pa.struct({"numRecords": pa.int64(), "minValues": bounds})}
    parsed = add("5", partitionValues={"part": None}, stats_parsed={"minValues": {"part": "ü"}})
    [file] = write_checkpoint(table, 5, [*STATE, parsed], add=add_type)
    before, rows = state(), pq.read_table(file)
    columns = [column.cast(with_texts(column.type, texts)) for column in rows.columns]
    try:
        pq.write_table(pa.table(columns, names=rows.column_names), file)
    except pa.ArrowNotImplementedError:
        pytest.skip(f"this pyarrow writes no {texts} into Parquet files")
    assert str(texts) in str(pq.read_schema(file))
    assert state() == before


def test_a_null_partition_value_of_a_tombstone_that_deltalake_has_stored(table: HandWrittenTable) -> None:
    """By a release that wrote keys without values: pyarrow does not read them."""
    file = Path(__file__).with_name("deltalake-1.2.1.checkpoint.parquet")
    with pytest.raises(pa.ArrowInvalid, match="length smaller than expected"):
        pq.read_table(file).validate(full=True)
    shutil.copy(file, table.log_directory / f"{2:020}.checkpoint.parquet")
    snapshot = table.log().snapshot()
    assert snapshot.files["partition_values"].to_pylist() == [[("p", "y")]]
    folders = [path.partition("/")[0] for path in snapshot.tombstones["path"].to_pylist()]
    assert sorted(folders) == ["p=__HIVE_DEFAULT_PARTITION__", "p=x"]
    DeltaLog(LocalLogStore(), table.path, clock=lambda: 0).checkpoint()
    pq.read_table(table.log_directory / f"{2:020}.checkpoint.parquet").validate(full=True)
    assert table.log().snapshot().tombstones.num_rows == 2


def test_a_row_of_a_checkpoint_is_the_file_of_a_later_remove(table: HandWrittenTable) -> None:
    files = [add("a%20b"), add("/abs"), add("plain"), add("v", deletionVector=VECTOR), add("v")]
    write_checkpoint(table, 0, [protocol(), meta_data(), *files, remove("back")])
    table.commit(1, remove("a b"), remove("file:/abs"), remove("v", deletionVector=VECTOR), add("back"))
    snapshot = table.log().snapshot()
    assert sorted(snapshot.files["path"].to_pylist()) == ["back", "plain", "v"]
    assert sorted(snapshot.tombstones["path"].to_pylist()) == ["a b", "file:/abs", "v"]


def test_unknown_fields_of_a_checkpoint_survive(table: HandWrittenTable) -> None:
    schema = ADD | {"future": pa.struct({"x": pa.list_(pa.int32()), "y": pa.string()})}
    action = add("a", future={"x": [1, None]})
    write_checkpoint(table, 0, [protocol(), meta_data(), action, add("b")], add=schema)
    snapshot = table.log().snapshot()
    files = snapshot.with_stats(snapshot.files)
    assert dict(zip(files["path"].to_pylist(), files["extra"].to_pylist(), strict=True)) == {
        "a": '{"future":{"x":[1,null]}}',
        "b": None,
    }
    assert json.loads(encode_actions(add_files(files)).splitlines()[0]) == action


@pytest.mark.parametrize("has_column", [True, False])
def test_statistics_that_are_only_a_struct_become_json(table: HandWrittenTable, has_column: bool) -> None:
    bounds = pa.struct(
        {"id": pa.int64(), "at": pa.timestamp("us", "UTC"), "s": pa.struct({"d": pa.date32()})}
    )
    parsed = pa.struct({"numRecords": pa.int64(), "minValues": bounds, "tightBounds": pa.bool_()})
    stats = {
        "numRecords": 3,
        "minValues": {
            "id": -1,
            "at": datetime(2020, 1, 2, 3, 4, 5, 678901, UTC),
            "s": {"d": date(2020, 1, 2)},
        },
    }
    schema = {name: arrow_type for name, arrow_type in ADD.items() if has_column or name != "stats"}
    both = [add("json", stats='{"numRecords":9}')] if has_column else []
    files = [add("parsed", stats_parsed=stats), add("none"), *both]
    write_checkpoint(table, 0, [protocol(), meta_data(), *files], add=schema | {"stats_parsed": parsed})
    snapshot = table.log().snapshot()
    rows = snapshot.with_stats(snapshot.files)
    found = dict(zip(rows["path"].to_pylist(), rows["stats"].to_pylist(), strict=True))
    assert found.pop("parsed") == (
        '{"numRecords":3,"minValues":{"id":-1,"at":"2020-01-02T03:04:05.678901Z","s":{"d":"2020-01-02"}}}'
    )
    assert found == {"none": None} | ({"json": '{"numRecords":9}'} if has_column else {})
    assert rows["extra"].null_count == len(files)


@pytest.mark.parametrize("layout", CHECKPOINT_LAYOUTS)
@pytest.mark.parametrize("damage", ["cut", "empty", "missing", "no parquet"])
def test_a_broken_checkpoint_is_passed_over_with_a_warning(
    table: HandWrittenTable, layout: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = a_table_with_a_checkpoint(table, layout)[0]
    content = file.read_bytes()
    damaged = {"cut": content[: len(content) // 2], "empty": b"", "missing": None, "no parquet": b"x" * 99}
    if damaged[damage] is None:
        file.unlink()
    else:
        file.write_bytes(damaged[damage])
    write_hint(table, 2)
    assert paths(table.log()) == ["0", "1", "2", "3"]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    gone(table, 0, 1)
    with pytest.raises(CorruptLogError, match=r"Missing versions in .*: 0 to 1"):
        table.log().snapshot()


def test_an_earlier_checkpoint_stands_in_for_a_broken_one(table: HandWrittenTable) -> None:
    a_table_with_a_checkpoint(table)
    write_checkpoint(table, 3, STATE)[0].write_bytes(b"PAR1")
    write_hint(table, 3)
    gone(table, 0, 1, 2)
    assert paths(table.log()) == ["0", "1", "2", "3"]
    gone(table, 3)
    with pytest.raises(CorruptLogError, match=r"Missing versions in .*: 3;.*0003\.checkpoint\.parquet"):
        table.log().snapshot()


def test_a_checkpoint_that_lacks_metadata_is_an_error(table: HandWrittenTable) -> None:
    table.first_commit()
    write_checkpoint(table, 0, [protocol(), add("a")])
    with pytest.raises(CorruptLogError, match="no metaData action"):
        table.log().snapshot()


def test_a_checkpoint_whose_protocol_is_not_readable_is_refused(table: HandWrittenTable) -> None:
    write_checkpoint(table, 0, [protocol(3, 7, readerFeatures=["odd"], writerFeatures=["odd"]), meta_data()])
    with pytest.raises(UnsupportedFeatureError, match="odd"):
        table.log().snapshot()


@pytest.mark.parametrize(
    "hint", [b"", b"{", b"[]", b'{"version":"x"}', b'{"version":-4}', b"\xff", 1, 3, 9, 2]
)
def test_the_hint_is_only_a_hint(
    table: HandWrittenTable, hint: bytes | int, caplog: pytest.LogCaptureFixture
) -> None:
    a_table_with_a_checkpoint(table)
    if isinstance(hint, int):
        write_hint(table, hint)
    else:
        (table.log_directory / "_last_checkpoint").write_bytes(hint)
    assert paths(table.log()) == ["0", "1", "2", "3"]
    is_wrong = hint not in (1, 2, b'{"version":-4}')
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * is_wrong


def test_a_right_hint_spares_the_log_before_it(table: HandWrittenTable) -> None:
    class Recording(LocalLogStore):
        listed: list[str]

        def list_from(self, directory: str, name: str) -> Any:
            self.listed.append(name)
            return super().list_from(directory, name)

    a_table_with_a_checkpoint(table)
    write_hint(table, 2)
    store = Recording()
    store.listed = []
    assert DeltaLog(store, table.path).snapshot().num_files == 4
    assert store.listed == ["00000000000000000002."]


class _DriverError(Exception):
    """As aiohttp's and botocore's errors, no OSError."""


class _Ended(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        raise _DriverError("the connection has ended")


class _FailingReads(LocalFileSystem):
    """Opens files of Parquet, and fails when they are read."""

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        file = super().open(path, mode, **options)
        if not path.endswith(".parquet"):
            return file
        with file:
            return _Ended(file.read())


@pytest.mark.parametrize("layout", CHECKPOINT_LAYOUTS)
def test_a_checkpoint_that_the_storage_fails_to_give_is_not_called_damaged(
    table: HandWrittenTable, layout: str, caplog: pytest.LogCaptureFixture
) -> None:
    a_table_with_a_checkpoint(table, layout)
    log = DeltaLog(FsspecLogStore(_FailingReads()), table.path)
    assert paths(log) == ["0", "1", "2", "3"]
    (record,) = caplog.records
    assert "An earlier checkpoint, or commits alone, are used" in record.message
    gone(table, 0, 1)
    with pytest.raises(StoreError, match=r"Cannot read .*parquet: the connection has ended\. Check") as error:
        DeltaLog(FsspecLogStore(_FailingReads()), table.path).snapshot()
    assert isinstance(error.value.__cause__, _DriverError)


def test_an_incomplete_multi_part_checkpoint_is_none(table: HandWrittenTable) -> None:
    a_table_with_a_checkpoint(table, "multi-part")[1].unlink()
    assert paths(table.log()) == ["0", "1", "2", "3"]
    gone(table, 3, 2)
    with pytest.raises(CorruptLogError, match=r"Missing versions in .*: 2;"):
        table.log().snapshot()


def test_parts_of_two_checkpoints_make_none(table: HandWrittenTable) -> None:
    first, second = a_table_with_a_checkpoint(table, "multi-part")
    second.rename(second.with_name(second.name.replace("0000000002.parquet", "0000000003.parquet")))
    assert paths(table.log()) == ["0", "1", "2", "3"]
    assert first.exists()


def test_a_gap_after_the_checkpoint_names_the_missing_versions(table: HandWrittenTable) -> None:
    a_table_with_a_checkpoint(table)
    table.commit(6, add("6"))
    with pytest.raises(CorruptLogError, match=r"VERSIONS_NOT_CONTIGUOUS.*: 4 to 5; all from 3 to 6"):
        table.log().snapshot()


def test_a_version_beyond_all_bounds_does_not_hang(table: HandWrittenTable) -> None:
    table.first_commit()
    table.commit(10**20 - 1)
    with pytest.raises(CorruptLogError, match="1 to 99999999999999999998"):
        table.log().snapshot()


def test_a_checkpoint_bridges_a_gap_after_a_known_version(table: HandWrittenTable) -> None:
    table.first_commit(add("a"))
    log = table.log()
    assert log.snapshot().version == 0
    write_checkpoint(table, 5, [protocol(), meta_data(), add("b")])
    table.commit(6, add("c"))
    assert paths(log) == ["b", "c"]


def test_an_update_reads_neither_checkpoint_nor_hint(table: HandWrittenTable) -> None:
    a_table_with_a_checkpoint(table)
    log = table.log()
    assert log.snapshot().version == 3
    write_checkpoint(table, 3, STATE)[0].write_bytes(b"broken")
    write_hint(table, 3)
    table.commit(4, add("4"))
    assert paths(log) == ["0", "1", "2", "3", "4"]


def test_a_log_compaction_stands_for_its_commits(table: HandWrittenTable) -> None:
    table.first_commit(add("0"))
    for version in range(1, 6):
        table.commit(version, add(str(version)))
    # Its file is named otherwise, so that it shows who was read.
    write_compaction(table, 1, 3, [add("1 to 3"), remove("0")])
    write_compaction(table, 1, 2, [add("1 to 2")])
    write_compaction(table, 3, 9, [add("3 to 9")])
    log = table.log()
    assert paths(log) == ["1 to 3", "4", "5"]
    assert sorted(log.snapshot_at(2).files["path"].to_pylist()) == ["0", "1 to 2", "2"]
    gone(table, 2)
    with pytest.raises(CorruptLogError, match=r"Missing versions in .*: 2;"):
        table.log().snapshot()


@pytest.mark.parametrize("content", [b"{", b'{"add":null}\n[]', None])
def test_a_log_compaction_that_is_none_is_passed_over_with_a_warning(
    table: HandWrittenTable, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    table.first_commit(add("0"))
    for version in range(1, 4):
        table.commit(version, add(str(version)))
    not_reconciled = [remove("0"), add("0"), add("5")]
    file = write_compaction(table, 1, 2, not_reconciled)
    if content is not None:
        file.write_bytes(content)
    assert paths(table.log()) == ["0", "1", "2", "3"]
    assert "compacted.json" in caplog.text


@pytest.mark.parametrize("has_commit", [True, False])
def test_a_checkpoint_alone_is_a_table(table: HandWrittenTable, has_commit: bool) -> None:
    (file,) = write_checkpoint(table, 3, STATE)
    if has_commit:
        file = table.commit(3, add("unread"))
    snapshot = table.log().snapshot()
    assert (snapshot.version, snapshot.num_files) == (3, 3)
    assert snapshot.timestamp_ms == file.stat().st_mtime_ns // 1_000_000


def test_the_in_commit_timestamp_of_a_checkpointed_version(table: HandWrittenTable) -> None:
    features = protocol(1, 7, writerFeatures=["inCommitTimestamp"])
    metadata = meta_data(configuration={"delta.enableInCommitTimestamps": "true"})
    table.commit(0, {"commitInfo": {"timestamp": 4, "inCommitTimestamp": 5}}, features, metadata)
    write_checkpoint(table, 0, [features, metadata])
    assert table.log().snapshot().timestamp_ms == 5


def test_checkpoints_of_another_writer(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for number in range(3):
        rows = pa.table({"part": ["x", "y"], "id": [number, number + 10]})
        write_deltalake(path, rows, mode="overwrite" if number == 2 else "append", partition_by=["part"])
    theirs = DeltaTable(path)
    theirs.create_checkpoint()
    write_deltalake(path, pa.table({"part": ["z"], "id": [7]}), mode="append")
    for version in range(3):
        (tmp_path / "t/_delta_log" / f"{version:020}.json").unlink()
    theirs = DeltaTable(path)
    snapshot = DeltaLog.for_table(path).snapshot()
    assert snapshot.version == theirs.version() == 3
    added = pa.table(theirs.get_add_actions())
    assert sorted(snapshot.files["path"].to_pylist()) == sorted(added["path"].to_pylist())
    assert sorted(snapshot.files["size"].to_pylist()) == sorted(added["size_bytes"].to_pylist())
    texts = snapshot.with_stats(snapshot.files)["stats"].to_pylist()
    assert all(json.loads(stats)["numRecords"] == 1 for stats in texts)
    assert snapshot.tombstones.num_rows == 4


def test_json_of_every_type() -> None:
    stats_type = pa.struct(
        {
            "b": pa.bool_(),
            "f": pa.float64(),
            "d": pa.decimal128(10, 2),
            "t": pa.timestamp("us"),
            "m": pa.map_(pa.string(), pa.int64()),
            "l": pa.list_(pa.struct({"x": pa.string()})),
            "raw": pa.binary(),
        }
    )
    rows = [
        {"b": True, "f": float("-inf"), "d": Decimal("-1.20"), "t": datetime(1, 1, 1), "raw": b"\xff"},
        None,
        {"f": 1.5, "m": [("k", None), ("\x01", 1)], "l": [{"x": "{,"}, {"x": None}, None]},
        {},
    ]
    values = pa.array(rows, stats_type)
    texts = [
        '{"b":true,"f":"-Infinity","d":-1.20,"t":"0001-01-01T00:00:00.000000"}',
        None,
        '{"f":1.5,"m":{"k":null,"\\u0001":1},"l":[{"x":"{,"},{},null]}',
        "{}",
    ]
    assert json_column(values).to_pylist() == texts
    assert json_column(values.slice(2, 1)).to_pylist() == texts[2:3]
    assert '00.000000Z"' in json_column(values, naive_is_utc=True)[0].as_py()
