"""Coverage-guided fuzzing of everything that is parsed of a table's directory, one target for each.

    python -m tests.security.fuzz TARGET --seconds 3600 --keep DIR   for so long; findings stay in DIR
    python -m tests.security.fuzz TARGET --again FILE                one of these once more

A target takes bytes, and ends in an answer or in an error of deltaflow's: every other exception is a finding,
and so is a crash. It needs atheris (`pip install atheris`), which brings libFuzzer.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import random
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__" and "--again" not in sys.argv:
    import atheris

    instrumented = atheris.instrument_imports(include=["deltaflow"])
else:
    from contextlib import nullcontext

    instrumented = nullcontext()

with instrumented:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyroaring import BitMap64
    from pyspark.sql import types as T

    from deltaflow.errors import DeltaError
    from deltaflow.log import DeltaLog, encode_actions
    from deltaflow.log.files.data_path import resolve_data_path
    from deltaflow.log.files.deletion_vectors import inline_vector, read_deletion_vectors
    from deltaflow.log.files.file_key import logical_key
    from deltaflow.log.files.file_rows import DELETION_VECTOR, FILES_SCHEMA
    from deltaflow.log.files.file_statistics import FileStatistics
    from deltaflow.log.files.footers import (
        arrow_schemas,
        collect_statistics,
        files_of_distinct_schemas,
        numbers_of_rows,
    )
    from deltaflow.log.files.partition_values import folder_values, typed_values_or_null
    from deltaflow.log.protocol.actions import decode_actions
    from deltaflow.log.protocol.column_mapping import visible_schema
    from deltaflow.log.protocol.schema import schema_from_string, schema_to_string
    from deltaflow.log.streams.source_offset import decode_offset, parse_offset
    from deltaflow.store import LocalLogStore

TYPES = [
    T.ByteType(), T.LongType(), T.DoubleType(), T.DecimalType(38, 10), T.BooleanType(), T.BinaryType(),
    T.DateType(), T.TimestampType(), T.TimestampNTZType(), T.StringType(),
]  # fmt: skip
SCHEMA = T.StructType([T.StructField(f"c{number}", of) for number, of in enumerate(TYPES)])


@dataclass(frozen=True)
class Target:
    """What is parsed, and sound inputs to begin with."""

    parse: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]


def _actions(data: bytes) -> None:
    encode_actions(decode_actions(data, "commit"))


def _commits() -> list[bytes]:
    from tests.log.hand_written import add, meta_data, protocol, remove

    usual = {"partitionValues": {"p": "x"}, "stats": '{"numRecords":1}', "tags": {"a": "b"}}
    lines = [
        protocol(3, 7, readerFeatures=[], writerFeatures=["x"]),
        meta_data(),
        add("a%20b", **usual),
        remove("q"),
    ]
    lines += [{"txn": {"appId": "q", "version": 1}}, {"commitInfo": {"operation": "W"}}, {"future": {}}]
    return ["\n".join(map(json.dumps, lines)).encode()]


def _checkpoint(data: bytes) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        log = Path(folder, "_delta_log")
        log.mkdir()
        (log / "00000000000000000000.checkpoint.parquet").write_bytes(data)
        snapshot = DeltaLog(LocalLogStore(), folder).snapshot()
        snapshot.files.validate(full=True)
        snapshot.tombstones.validate(full=True)
        snapshot.with_stats(snapshot.files).validate(full=True)
        _columns_read(snapshot.statistics, snapshot.schema)


def _checkpoints() -> list[bytes]:
    from tests.log.checkpoints import write_checkpoint
    from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol, remove

    with tempfile.TemporaryDirectory() as folder:
        table = HandWrittenTable(Path(folder) / "t")
        write_checkpoint(
            table, 0, [protocol(), meta_data(), add("a"), add("b", stats="{}"), remove("c")], "classic"
        )
        return [file.read_bytes() for file in table.log_directory.glob("*.checkpoint*.parquet")]


def _footer(data: bytes) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        file = Path(folder, "data.parquet")
        file.write_bytes(data)
        files, leaves = [(str(file), len(data))], [((field.name,), field.dataType) for field in SCHEMA]
        [rows] = numbers_of_rows(files)
        [text] = collect_statistics(files, [*leaves, (("l",), T.ArrayType(T.LongType()))])
        assert json.loads(text)["numRecords"] == rows
        assert len(list(arrow_schemas(files))) == len(files_of_distinct_schemas(files)) == 1


def _footers() -> list[bytes]:
    rows = {
        "c0": pa.array([1, None], pa.int8()), "c1": [1, 2], "c2": [0.5, None],
        "c3": pa.array([1, 2], pa.decimal128(38, 10)), "c4": [True, False], "c5": [b"a", None],
        "c6": pa.array([1, 2], pa.date32()), "c7": pa.array([1, 2], pa.timestamp("us", "UTC")),
        "c8": pa.array([1, 2], pa.timestamp("us")), "c9": ["a", "b"], "l": [[1, None], None],
    }  # fmt: skip
    found = []
    for options in (
        {},
        {"use_deprecated_int96_timestamps": True, "row_group_size": 1, "store_schema": False},
    ):
        file = io.BytesIO()
        pq.write_table(pa.table(rows), file, **options)
        found.append(file.getvalue())
    return found


def _stored_statistics(data: bytes) -> None:
    """Statistics in columns of a checkpoint: the values of a JSON object, in types that two bytes choose."""
    try:
        said = json.loads(data[2:])
        values = pa.array([said if isinstance(said, dict) else {}, None])
        stats = pa.array([None if data[0] & 1 else data[2:].decode(), None], pa.string())
    except (ValueError, RecursionError, OverflowError, pa.ArrowException):
        return
    target = STORED_TYPES[data[1] % len(STORED_TYPES)]
    known = {"path": ["a", "b"], "size": [1, 1], "modificationTime": [1, 1], "dataChange": [False, False]}
    columns = {name: pa.array(values) for name, values in known.items()}
    columns["partitionValues"] = pa.array([[], []], pa.map_(pa.string(), pa.string()))
    columns |= {"stats": stats, "stats_parsed": _retyped(values, target)}
    adds = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
    protocol = pa.array([{"minReaderVersion": 1, "minWriterVersion": 2}] + [None] * 2)
    metadata = pa.array([{"id": "t", "schemaString": SCHEMA.json(), "partitionColumns": []}] + [None] * 2)
    rows = pa.table(
        {"add": pa.concat_arrays([pa.nulls(1, adds.type), adds]), "protocol": protocol, "metaData": metadata}
    )
    file = io.BytesIO()
    try:
        pq.write_table(
            rows, file, use_deprecated_int96_timestamps=bool(data[0] & 2), row_group_size=1 + (data[0] >> 6)
        )
    except pa.ArrowException:  # structs without fields, nulls alone
        return
    _checkpoint(file.getvalue())


STORED_TYPES = [
    None, pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.timestamp("ms", "UTC"), pa.date32(), pa.binary(),
    pa.float32(), pa.decimal128(38, 10), pa.dictionary(pa.int32(), pa.string()), pa.large_string(), pa.int8(),
    pa.time64("us"), pa.list_(pa.int64()),
]  # fmt: skip


def _retyped(values: pa.Array, target: pa.DataType | None) -> pa.Array:
    """The values with each leaf as it is, or in another type if it can be cast."""
    if pa.types.is_struct(values.type):
        children = [_retyped(child, target) for child in values.flatten()]
        names = [field.name for field in values.type]
        return pa.StructArray.from_arrays(children, names=names, mask=values.is_null())
    try:
        return values if target is None else values.cast(target)
    except (pa.ArrowException, OverflowError):
        return values


def _stored_statistics_values() -> list[bytes]:
    said = _statistics_texts()[0]
    integers = {f"c{number}": number for number in range(len(TYPES))}
    all_integers = json.dumps({"numRecords": 3, "minValues": integers, "maxValues": integers})
    kinds = [bytes([flags, kind]) for flags in (0, 1, 2, 3) for kind in range(len(STORED_TYPES))]
    return [kind + said for kind in kinds] + [kind + all_integers.encode() for kind in kinds]


def _vector(data: bytes) -> None:
    described = {
        "storageType": "i", "pathOrInlineDv": _z85(data + bytes(-len(data) % 4)), "offset": None,
        "sizeInBytes": len(data), "cardinality": 1,
    }  # fmt: skip
    with suppress(Exception):  # what the log would have to say of it
        described["cardinality"] = len(BitMap64.deserialize(data[4:]))
    files = pa.table(
        {
            "path": ["a"],
            "stats": pa.array([None], pa.string()),
            "deletion_vector": pa.array([described], DELETION_VECTOR),
        }
    )
    [found] = read_deletion_vectors(files, "/t", 0)
    assert found is not None
    with suppress(ValueError):  # positions beyond 32 bits
        assert len(found.content_32) > 0
    union = found.rows | BitMap64([1, 2**40])
    assert len(union) <= len(found.rows) + 2
    union.run_optimize()
    assert len(BitMap64.deserialize(union.serialize())) == len(union)


def _z85(data: bytes) -> str:
    import base64

    from deltaflow.log.files import deletion_vectors

    return base64.b85encode(data).translate(deletion_vectors._TO_Z85).decode()


def _vectors() -> list[bytes]:
    from deltaflow.log.files.deletion_vectors import decoded_z85

    bitmaps = [BitMap64([1, 5, 2**33]), BitMap64(range(70_000)), BitMap64(range(0, 200_000, 3)), BitMap64()]
    return [decoded_z85(inline_vector(bitmap).path_or_inline_dv) for bitmap in bitmaps]


def _schema(data: bytes) -> None:
    schema = schema_from_string(data.decode("utf-8", "replace"))
    again = schema_from_string(schema_to_string(schema))
    assert again == schema
    visible_schema(schema).json()


def _schemas() -> list[bytes]:
    inner = T.StructType(
        [T.StructField("a", T.MapType(T.StringType(), T.ArrayType(T.LongType())), True, {"k": 1})]
    )
    return [SCHEMA.json().encode(), T.StructType([T.StructField("s", inner)]).json().encode()]


def _offset(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    decode_offset(text, "/t")
    assert parse_offset(parse_offset(text, "id", "/t").json(), "id", "/t").json()


def _offsets() -> list[bytes]:
    offset = {
        "sourceVersion": 3,
        "reservoirId": "id",
        "reservoirVersion": 7,
        "index": -1,
        "isStartingVersion": True,
    }
    return [json.dumps(offset).encode(), json.dumps({**offset, "eventTimeMillis": 1}).encode()]


def _partition_path(data: bytes) -> None:
    path = data.decode("utf-8", "replace")
    logical_key(path, None, "/t")
    place = resolve_data_path("/t", path)
    assert not place.deletable or place.path.startswith("/t/")
    assert not place.deletable or "_delta_log" not in place.path.split("/")[2:3]
    for folder in path.split("/"):
        if "=" in folder:
            folder_values(folder)
    for of in TYPES:
        typed_values_or_null(pa.array([path, path[1:]]), of, "Europe/Paris")


def _partition_paths() -> list[bytes]:
    return [
        b"p=2020-01-01/q=a%20b/f.parquet",
        b"../x",
        b"file:/t/_delta_log/x",
        b"2020-01-01 10:00:00.5+01:00",
        b"1e5",
    ]


def _statistics(data: bytes) -> None:
    """The first byte chooses the column: to read all of them takes a hundred times as long."""
    texts = pa.array([data[1:].decode("utf-8", "replace"), None], pa.string())
    nothing = {field.name: pa.nulls(2, field.type) for field in FILES_SCHEMA}
    files = pa.table({**nothing, "path": pa.array(["a", "b"]), "stats": texts})
    statistics = FileStatistics(files, SCHEMA)
    assert len(statistics.num_records) == 2
    names = SCHEMA.names if data[:1] == b"*" else [SCHEMA.names[sum(data[:1]) % len(TYPES)]]
    _columns_read(statistics, T.StructType([SCHEMA[name] for name in names]))


def _columns_read(statistics: FileStatistics, schema: T.StructType) -> None:
    statistics.load([(name,) for name in schema.names])
    for name in schema.names:
        found = statistics.skipping_column((name,))
        assert found is None or all(len(part) == len(statistics) for part in (found.low, found.high))
    assert statistics.has_tight_bounds in (True, False)
    assert len(statistics.num_rows) == len(statistics)


def _statistics_texts() -> list[bytes]:
    bounds = [
        1,
        2,
        1.5,
        1.25,
        True,
        "eA==",
        "2020-01-01",
        "2020-01-01T00:00:00.000Z",
        "2020-01-01T00:00:00.000",
        "x",
    ]
    values = {f"c{number}": value for number, value in enumerate(bounds)}
    said = {"numRecords": 3, "minValues": values, "maxValues": values, "nullCount": dict.fromkeys(values, 0)}
    return [json.dumps(said).encode()]


def _statistics_of_columns() -> list[bytes]:
    [said] = _statistics_texts()
    return [first + said for first in (b"*", *(bytes([number]) for number in range(len(TYPES))))]


TARGETS = {
    "commits": Target(_actions, _commits),
    "checkpoints": Target(_checkpoint, _checkpoints),
    "footers": Target(_footer, _footers),
    "deletion_vectors": Target(_vector, _vectors),
    "schemas": Target(_schema, _schemas),
    "offsets": Target(_offset, _offsets),
    "partition_paths": Target(_partition_path, _partition_paths),
    "statistics": Target(_statistics, _statistics_of_columns),
    "stored_statistics": Target(_stored_statistics, _stored_statistics_values),
}


def fault(target: Target, data: bytes) -> str | None:
    """What is wrong with the answer of a target; None if nothing is."""
    try:
        target.parse(data)
    except DeltaError:
        return None
    except Exception:
        return traceback.format_exc()
    return None


def mutations(seed: bytes, chance: random.Random) -> Iterator[bytes]:
    """Damaged copies of a sound input, without end; for tests, which have no atheris."""
    pieces = (b"null", b"-1", b"9" * 40, b"1e999999999", b'"\\ud800"', b"[]", b"{}", b"\xff", b"%FF", b"\0")
    while True:
        data = bytearray(seed)
        for _ in range(chance.choice((1, 1, 2, 4))):
            at = chance.randrange(len(data) + 1)
            match chance.randrange(4):
                case 0:
                    data[at:at] = chance.choice(pieces)
                case 1:
                    data[at : at + chance.choice((1, 4, 16))] = chance.randbytes(chance.choice((0, 1, 4)))
                case 2:
                    data[at : at + 8] = chance.choice(pieces)
                case 3 if at < len(data):
                    data[at] ^= 1 << chance.randrange(8)
        yield bytes(data)


@contextmanager
def _corpus(target: Target, keep: Path) -> Iterator[Path]:
    folder = keep / "corpus"
    folder.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        (folder / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
    yield folder


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzzes what is parsed of a table's directory.")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=3_600)
    parser.add_argument("--keep", type=Path, help="where inputs of findings stay; else in a new directory")
    parser.add_argument("--again", type=Path, help="one of those once more, and nothing else")
    options = parser.parse_args()
    target = TARGETS[options.target]
    if options.again is not None:
        found = fault(target, options.again.read_bytes())
        print(found or "no finding")
        return 1 if found else 0
    keep = options.keep or Path(tempfile.mkdtemp(prefix=f"fuzz-{options.target}-"))
    seen: set[str] = set()

    def one(data: bytes) -> None:
        found = fault(target, data)
        if found is None:
            return
        where = "\n".join(line for line in found.splitlines() if line.startswith("  File"))
        if where not in seen:  # of one fault one input is enough
            seen.add(where)
            file = keep / f"finding-{len(seen)}"
            file.write_bytes(data)
            print(f"{file}: {found}", flush=True)

    with _corpus(target, keep) as corpus:
        arguments = [
            sys.argv[0], str(corpus), f"-max_total_time={options.seconds}", f"-artifact_prefix={keep}/crash-",
            "-timeout=600", "-rss_limit_mb=4096", "-max_len=65536", "-print_final_stats=1",
        ]  # fmt: skip
        atheris.Setup(arguments, one)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
