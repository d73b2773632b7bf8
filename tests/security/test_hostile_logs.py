"""How much a log may hold, and where its files may be, before its reader refuses it."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

from deltaflow.errors import (
    CorruptLogError,
    DeltaError,
    DeltaIllegalArgumentException,
    StoreError,
    without_secrets,
)
from deltaflow.log import DeltaLog, limits
from deltaflow.log.files.deletion_vectors import read_deletion_vectors
from deltaflow.log.files.partition_values import typed_values
from deltaflow.log.protocol.schema import schema_from_string
from deltaflow.store import store_for, table_path
from tests.log.checkpoints import write_checkpoint
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol

pytestmark = pytest.mark.breaks_protocol


@pytest.fixture
def table(tmp_path: Path) -> HandWrittenTable:
    return HandWrittenTable(tmp_path / "table")


def nested(depth: int) -> str:
    """A schema of so many structs within structs."""
    begin = '{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":{},"type":'
    return begin * depth + '"long"' + "}]}" * depth


def test_schemas_of_a_hundred_levels_are_read_and_no_deeper_ones() -> None:
    assert schema_from_string(nested(limits.MAX_SCHEMA_DEPTH - 1)).json()
    for depth in (limits.MAX_SCHEMA_DEPTH + 1, 300, 900, 100_000):
        with pytest.raises(CorruptLogError, match=r"schema in the table's metaData"):
            schema_from_string(nested(depth))
    deep = nested(1).replace('"metadata":{}', '"metadata":' + "[" * 500 + "]" * 500)
    with pytest.raises(CorruptLogError, match="types within types"):
        schema_from_string(deep)


def test_a_commit_that_no_memory_holds_is_not_read(table: HandWrittenTable) -> None:
    file = table.first_commit()
    os.truncate(file, limits.MAX_JSON_FILE_BYTES + 1)  # it takes no space on the disk
    with pytest.raises(CorruptLogError, match=f"{file} has {limits.MAX_JSON_FILE_BYTES + 1} bytes"):
        table.log().snapshot()


def bomb(rows: int, path: str = "x") -> bytes:
    """A checkpoint in Parquet with so many add actions of one path, which is once in the file."""
    schema = pa.schema([("add", pa.struct([("path", pa.string()), ("size", pa.int64())]))])
    target = io.BytesIO()
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        columns = [pa.repeat(pa.scalar(path), rows), pa.repeat(pa.scalar(1, pa.int64()), rows)]
        adds = pa.StructArray.from_arrays(columns, names=["path", "size"])
        writer.write_batch(pa.record_batch([adds], schema=schema))
    return target.getvalue()


@pytest.mark.parametrize(("rows", "path"), [(20_000, "x"), (300, "long" * 10_000)])
def test_a_checkpoint_that_expands_too_much_is_not_kept(
    table: HandWrittenTable, monkeypatch: pytest.MonkeyPatch, rows: int, path: str
) -> None:
    monkeypatch.setattr("deltaflow.log.replay.checkpoint_budget.MIN_EXPANDED_BYTES", 100_000)
    monkeypatch.setattr("deltaflow.log.replay.checkpoint_budget.MAX_CHECKPOINT_EXPANSION", 10)
    table.commit(1, add("a"))
    name = "00000000000000000000.checkpoint.parquet"
    (table.log_directory / name).write_bytes(bomb(rows, path))
    with pytest.raises(CorruptLogError, match=f"{name} is a small file"):
        table.log().snapshot()


def test_a_checkpoint_whose_footer_contradicts_its_schema_does_not_end_the_process(
    table: HandWrittenTable,
) -> None:
    """Each optional field of its schema becomes a required one in turn: a footer then has too many levels."""
    table.first_commit()
    write_checkpoint(table, 0, [protocol(), meta_data(), add("a"), add("b", stats="{}")], "classic")
    [checkpoint] = table.log_directory.glob("*.checkpoint.parquet")
    content = checkpoint.read_bytes()
    optional, required = b"\x25\x02\x18", b"\x25\x00\x18"
    places = [place for place in range(len(content)) if content.startswith(optional, place)]
    assert len(places) > 20
    for place in places:
        checkpoint.write_bytes(content[:place] + required + content[place + len(optional) :])
        with suppress(DeltaError):
            snapshot = table.log().snapshot()
            snapshot.with_stats(snapshot.files).validate(full=True)


def test_numbers_finer_than_any_decimal_do_not_end_the_process(table: HandWrittenTable) -> None:
    """As a partition value, and as bounds that a checkpoint stores in columns."""
    schema = T.StructType().add("d", T.DecimalType(38, 10)).add("p", T.DecimalType(38, 10)).add("s", "string")
    fine = "-62e-620202"
    bounds = f'{{"d":{fine},"s":"3e-1234"}}'
    table.first_commit(
        add(
            "a",
            stats=f'{{"numRecords":1,"minValues":{bounds},"maxValues":{bounds}}}',
            partitionValues={"p": fine},
        ),
        add("b", stats='{"numRecords":1,"minValues":{"d":1E-7}}', partitionValues={"p": "0E-10"}),
        add("c", stats='{"numRecords":1,"minValues":{"d":"1e-1000000000"}}', partitionValues={"p": None}),
        schema=schema,
        partition_columns=["p"],
        configuration={"delta.checkpoint.writeStatsAsStruct": "true"},
    )
    table.log().checkpoint()
    snapshot = table.log().snapshot()
    with pytest.raises(pa.ArrowInvalid, match=f"'{fine}' is no decimal"):
        typed_values(pa.array([fine]), schema["p"].dataType)
    stored = pq.read_table(next(table.log_directory.glob("*.checkpoint.parquet")))["add"].to_pylist()
    bound = {add["path"]: add["stats_parsed"]["minValues"] for add in stored if add is not None}
    assert bound == {
        "a": {"d": None, "s": "3e-1234"},
        "b": {"d": Decimal("1E-7"), "s": None},
        "c": {"d": None, "s": None},
    }
    assert snapshot.files.num_rows == 3


def test_a_checkpoint_with_fewer_rows_than_its_footer_counts_is_not_used(
    table: HandWrittenTable, caplog: pytest.LogCaptureFixture
) -> None:
    table.first_commit()
    table.commit(1, add("a"), add("b"))
    write_checkpoint(table, 1, [protocol(), meta_data(), add("a"), add("b"), add("c")], "classic")
    [checkpoint] = table.log_directory.glob("*.checkpoint.parquet")
    # The last number 5 of the footer is that of the rows in its row group.
    before, _, after = checkpoint.read_bytes().rpartition(b"\x16\x0a")
    checkpoint.write_bytes(before + b"\x16\x0e" + after)
    assert pq.read_metadata(checkpoint).row_group(0).num_rows == 7
    assert sorted(table.log().snapshot().files["path"].to_pylist()) == ["a", "b"]
    assert "2 rows are missing of those that the footer counts" in caplog.text


@pytest.mark.parametrize(
    "sidecar",
    ["../../../outside.parquet", "%2E%2E/outside.parquet", "/etc/passwd", "file:///etc/passwd", "s3://b/k"],
)
def test_a_sidecar_elsewhere_is_not_opened(table: HandWrittenTable, sidecar: str) -> None:
    table.commit(1, add("a"))
    lines: list[dict[str, Any]] = [
        {"checkpointMetadata": {"version": 0}},
        protocol(3, 7, readerFeatures=["v2Checkpoint"], writerFeatures=["v2Checkpoint"]),
        meta_data(),
        {"sidecar": {"path": sidecar, "sizeInBytes": 1, "modificationTime": 1}},
    ]
    name = "00000000000000000000.checkpoint.01234567-89ab-cdef-0123-456789abcdef.json"
    (table.log_directory / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(CorruptLogError, match=r"is not in .*_sidecars"):
        table.log().snapshot()


@pytest.mark.parametrize(
    ("vector", "problem"),
    [
        ({"sizeInBytes": 2**31 - 1, "offset": 1}, "size 2147483647"),
        ({"sizeInBytes": 34, "offset": -5}, "offset -5"),
        ({"sizeInBytes": -1, "offset": 1}, "size -1"),
        ({"sizeInBytes": 34, "offset": 2**31 - 1}, r"."),
    ],
)
def test_a_deletion_vector_with_wild_numbers(
    table: HandWrittenTable, vector: dict[str, int], problem: str
) -> None:
    (Path(table.path) / "v.bin").write_bytes(b"\1" + bytes(100))
    described = {
        "storageType": "p",
        "pathOrInlineDv": f"file://{table.path}/v.bin",
        "cardinality": 1,
        **vector,
    }
    table.commit(
        0,
        protocol(3, 7, readerFeatures=["deletionVectors"], writerFeatures=["deletionVectors"]),
        meta_data(),
        add("a", deletionVector=described),
    )
    snapshot = table.log().snapshot()
    with pytest.raises(CorruptLogError, match=problem):
        read_deletion_vectors(snapshot.files, snapshot.path, snapshot.version)


def test_a_bitmap_that_breaks_its_own_rules_is_refused() -> None:
    # Its values are not in order, which operations on it rely on without looking.
    from pyroaring import BitMap64

    sound = BitMap64([3, 5]).serialize()
    broken = sound.replace(bytes([3, 0, 5, 0]), bytes([5, 0, 3, 0]))
    assert broken != sound
    with pytest.raises(ValueError, match="increasing"):
        BitMap64.deserialize(broken)


@pytest.mark.parametrize("count", [1, 2**30, 2**63 - 1])
def test_a_bitmap_that_claims_more_than_it_has(count: int) -> None:
    from pyroaring import BitMap64

    with pytest.raises(ValueError, match=r"."):
        BitMap64.deserialize(count.to_bytes(8, "little") + bytes(8))


PASSWORDS = [
    "sftp://me:hunter2@host/t",
    "s3a://AKIA:hunter2@bucket/t",
    "s3a://AKIA:8a/hunter2@bucket/t",
    "https://:hunter2@host/t",
    "https://me:the hunter2@host/t",
    "simplecache::s3://AKIA:8a/hunter2@bucket/t",
]


@pytest.mark.parametrize("path", PASSWORDS)
@pytest.mark.parametrize("opened_by", [store_for, table_path, DeltaLog.for_table])
def test_a_path_with_a_password_is_refused_and_not_repeated(
    path: str, opened_by: Callable[[str], object]
) -> None:
    with pytest.raises(DeltaIllegalArgumentException) as error:
        opened_by(path)
    assert "password" in str(error.value)
    assert "hunter2" not in f"{error.value} {error.value.getMessageParameters()}"


def test_errors_show_neither_passwords_nor_signatures() -> None:
    signed = "https://b.example/k?X-Amz-Date=1&X-Amz-Signature=abcd&x=1 https://a.example/c?sv=1&sig=efgh%3D"
    error = StoreError(f"Cannot read {signed}: refused", file="ftp://me:hunter2@host/x")
    assert {"abcd", "efgh", "hunter2"}.isdisjoint(str(error).replace("=", " ").replace("&", " ").split())
    assert "hunter2" not in f"{error} {error.file}"
    assert "efgh" not in str(StoreError("Cannot read", table="https://a.example/c?sig=efgh").table)
    assert "x=1" in str(error)
    plain = "MERGE ON t.token=s.token AND hdfs://host:8020/a@b is abfss://box@account.example/t"
    assert DeltaError(plain).message == plain


@pytest.mark.parametrize("piece", ["a", "a://", "://a:", "a://b:", "&sig=", "?x-amz-", "a.-+"])
def test_secrets_of_a_long_message_are_found_in_linear_time(piece: str) -> None:
    # In quadratic time this would take minutes.
    assert without_secrets(piece * 50_000 + " s://a:hunter2@b").endswith(" s://a:***@b")
