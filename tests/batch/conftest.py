"""What every test of batch reads and writes checks of the tables that it leaves behind."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltaflow.log.observer import set_observer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[Any]


def plain(value: Any) -> Any:
    """A value that is equal to itself, whatever implementation read it: NaN, -0.0 and time zones included."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float():
            return repr(value)
        case dt.datetime() if value.tzinfo is not None:
            return (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        case dict():
            return {name.lower(): plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case bytearray():
            return bytes(value)
        case _:
            return value


def sorted_rows(rows: Rows) -> Rows:
    return sorted((plain(row) for row in rows), key=repr)


LOG_FILE = re.compile(r"\d{20}\.json|\d{20}\.crc|\d{20}\.checkpoint\.parquet|_last_checkpoint")


@pytest.fixture
def rows() -> Callable[[DataFrame], Rows]:
    """The rows of a frame as dicts, in an order of their own."""
    return lambda frame: sorted_rows(frame.toArrow().to_pylist())


@pytest.fixture
def rows_by_deltalake(tmp_path: Path) -> Callable[[str], Rows]:
    """The rows of a table as the independent implementation reads them, as in `rows`."""
    import deltalake

    def read(path: str) -> Rows:
        if "%" in path:  # in the path of a table it takes %41 for A
            path = shutil.copytree(path, tmp_path / "copy for deltalake", dirs_exist_ok=True)
        query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path)).execute("select * from t")
        return sorted_rows(pa.table(query.read_all()).to_pylist())

    return read


@pytest.fixture
def settings(spark: SparkSession) -> Callable[..., contextlib.AbstractContextManager[None]]:
    """Sets settings of the session for a block."""

    @contextlib.contextmanager
    def of_session(values: Mapping[str, str]) -> Iterator[None]:
        before = {name: spark.conf.get(name, None) for name in values}
        for name, value in values.items():
            spark.conf.set(name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, value)

    return of_session


@pytest.fixture
def setting(settings: Any) -> Iterator[Callable[[str, str], None]]:
    """Sets a setting of the session for the rest of the test."""
    with contextlib.ExitStack() as stack:
        yield lambda name, value: stack.enter_context(settings({name: value}))


@pytest.fixture
def actions() -> Callable[..., Rows]:
    """The actions of one kind in a commit (the newest without a version), as JSON objects."""

    def of(path: str, kind: str, version: int | None = None) -> Rows:
        files = sorted(Path(path, "_delta_log").glob("*.json"))
        lines = files[-1 if version is None else version].read_text().splitlines()
        return [json.loads(line)[kind] for line in lines if kind in json.loads(line)]

    return of


@pytest.fixture
def sound(spark: SparkSession, rows: Any, rows_by_deltalake: Any, settings: Any) -> Callable[[str], None]:
    """Asserts of a table that deltaflow wrote: both implementations read the same rows, every add action
    tells the truth about its file, and nothing else lies in the table."""

    def check(path: str) -> None:
        adds = []
        for commit in sorted(Path(path, "_delta_log").glob("*.json")):
            kinds = [json.loads(line) for line in commit.read_text().splitlines()]
            rearranges = kinds[0].get("commitInfo", {}).get("operation") == "OPTIMIZE"
            for add in [kind["add"] for kind in kinds if "add" in kind]:
                check_add(path, add)
                assert add["dataChange"] is not rearranges
                adds.append(add)
        found = {str(file.relative_to(path)) for file in Path(path).rglob("*") if file.is_file()}
        log_files = {name.removeprefix("_delta_log/") for name in found if name.startswith("_delta_log/")}
        beside = {name for name in found if not name.startswith("_delta_log/")}
        strange = {name for name in beside if not name.endswith(".crc")}
        assert strange == {unquote(add["path"]) for add in adds}
        assert beside - strange <= {str(Path(name).with_name(f".{Path(name).name}.crc")) for name in strange}
        assert all(LOG_FILE.fullmatch(name) for name in log_files)
        # As it is stored: deltalake fills up no CHAR.
        with settings({"spark.sql.readSideCharPadding": "false"}):
            assert rows(spark.read.format("delta").load(path)) == rows_by_deltalake(path)

    return check


@pytest.fixture
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A path for a table, with nothing there; if the test passes, the table there must be `sound`."""
    path = tmp_path / "table"
    sound = request.getfixturevalue("sound")
    yield str(path)
    if (path / "_delta_log").exists():
        sound(str(path))


def check_add(root: str, add: dict[str, Any]) -> None:
    """The claims of an add action, compared with what pyarrow finds in the file."""
    file = Path(root, unquote(add["path"]))
    assert add["size"] == file.stat().st_size
    assert add["modificationTime"] == file.stat().st_mtime_ns // 1_000_000
    stats = json.loads(add["stats"], parse_float=Decimal)
    data = pq.ParquetFile(file).read()
    assert stats["numRecords"] == data.num_rows > 0
    check_columns(data.schema, data.columns, stats["minValues"], stats["maxValues"], stats["nullCount"])


def check_columns(fields: Any, columns: list[pa.ChunkedArray], low: Any, high: Any, nulls: Any) -> None:
    assert {*low, *high, *nulls} <= {field.name for field in fields}
    for field, column in zip(fields, columns, strict=True):
        name = field.name
        if pa.types.is_struct(field.type):
            flat = column.combine_chunks().flatten() if isinstance(column, pa.Array) else column.flatten()
            check_columns(list(field.type), flat, low.get(name, {}), high.get(name, {}), nulls.get(name, {}))
        elif pa.types.is_list(field.type) or pa.types.is_map(field.type):
            assert name not in low
            assert name not in high
            assert nulls.get(name, column.null_count) == column.null_count
        else:
            assert nulls[name] == column.null_count
            check_bounds(field.type, column, low.get(name), high.get(name))


def check_bounds(kind: pa.DataType, column: pa.ChunkedArray, low: Any, high: Any) -> None:
    if pa.types.is_timestamp(kind):
        assert str(kind) in ("timestamp[us, tz=UTC]", "timestamp[us]")
        for bound in (low, high):
            assert bound is None or bound.endswith("Z") == (kind.tz is not None)
        column = column.cast(pa.int64())
    values = [value for value in column.to_pylist() if value is not None]
    if not values or pa.types.is_boolean(kind) or pa.types.is_binary(kind):
        assert (low, high) == (None, None)
    elif pa.types.is_timestamp(kind):
        if min(values) >= -62_135_596_800_000_000 and max(values) <= 253_402_300_799_999_000:
            assert milliseconds(low) == min(values) // 1000
            assert milliseconds(high) == -(-max(values) // 1000)
    elif pa.types.is_floating(kind):
        numbers = [value for value in values if not math.isnan(value)]
        finite = len(numbers) == len(values) and not any(map(math.isinf, values))
        assert not finite or (float(low), float(high)) == (min(values), max(values))
        assert low is None or float(low) <= min(numbers)
        assert high is None or float(high) >= max(numbers)
    elif pa.types.is_date(kind):
        assert (dt.date.fromisoformat(low), dt.date.fromisoformat(high)) == (min(values), max(values))
    elif pa.types.is_string(kind):
        assert low == min(values)[:32]
        assert high >= max(values)
        assert len(max(values)) > 32 or high == max(values)
    else:
        assert (low, high) == (min(values), max(values))


def milliseconds(text: str) -> int:
    moment = dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


@pytest.fixture
def database(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """The folder of a database of the test's own, which is the current one; its name is the folder's."""
    folder = tmp_path / f"db_{tmp_path.name}".lower().replace("-", "_")
    spark.sql(f"CREATE DATABASE {folder.name} LOCATION '{folder}'")
    before = spark.catalog.currentDatabase()
    spark.sql(f"USE {folder.name}")
    yield folder
    spark.sql(f"USE {before}")
    spark.sql(f"DROP DATABASE {folder.name} CASCADE")


@pytest.fixture
def at() -> Iterator[Callable[[str, Callable[[], object]], None]]:
    """Sets an action that runs once, when an operation gets to a point."""

    def set_to(point: str, action: Callable[[], object]) -> None:
        pending = [action]

        def observer(name: str, facts: dict[str, Any]) -> None:
            if name == point and pending:
                pending.pop()()

        set_observer(observer)

    yield set_to
    set_observer(None)


@pytest.fixture
def random_table(spark: SparkSession, table: str) -> Callable[[random.Random], Rows]:
    """Makes the table of 60 rows by chance in partitions by p, in two commits; the rows."""

    def make(chance: random.Random) -> Rows:
        model = [
            {"id": i, "p": chance.choice([None, "a", "b"]), "x": chance.choice([None, *range(10)])}
            for i in range(60)
        ]
        for part in (model[:30], model[30:]):
            spark.createDataFrame(part, "id long, p string, x int").coalesce(1).write.format("delta").mode(
                "append"
            ).partitionBy("p").save(table)
        return model

    return make
