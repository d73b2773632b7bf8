"""What every test of batch reads and writes checks of the tables that it leaves behind."""

from __future__ import annotations

import datetime as dt
import json
import math
import random
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.logger import PySparkLogger

from deltaflow.log.observer import set_observer
from tests.tables import files_below, load, read_commits, rows, rows_by_deltalake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[Any]
LOG_FILE = re.compile(r"\d{20}\.json|\d{20}\.crc|\d{20}\.checkpoint\.parquet|_last_checkpoint")


@pytest.fixture
def sound(spark: SparkSession, settings: Any) -> Callable[[str], None]:
    """Asserts of a table that deltaflow wrote: both implementations read the same rows, every add action
    tells the truth about its file, and nothing else lies in the table."""

    def check(path: str) -> None:
        adds = []
        for commit in read_commits(path):
            rearranges = commit[0].get("commitInfo", {}).get("operation") == "OPTIMIZE"
            for add in [action["add"] for action in commit if "add" in action]:
                check_add(path, add)
                assert add["dataChange"] is not rearranges
                adds.append(add)
        found = set(files_below(path))
        log_files = {name.removeprefix("_delta_log/") for name in found if name.startswith("_delta_log/")}
        beside = {name for name in found if not name.startswith("_delta_log/")}
        strange = {name for name in beside if not name.endswith(".crc")}
        assert strange == {unquote(add["path"]) for add in adds}
        assert beside - strange <= {str(Path(name).with_name(f".{Path(name).name}.crc")) for name in strange}
        assert all(LOG_FILE.fullmatch(name) for name in log_files)
        # As it is stored: deltalake fills up no CHAR.
        with settings({"spark.sql.readSideCharPadding": "false"}):
            assert rows(load(spark, path)) == rows_by_deltalake(path)

    return check


@pytest.fixture
def logged_by_pyspark(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What is logged, also of AnalysisExceptions that reach Python: PySpark logs each of them with its trace,
    even if it is caught."""
    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("DataFrame", "SQL")]
    for logger in loggers:
        logger.addHandler(caplog.handler)
    yield caplog
    for logger in loggers:
        logger.removeHandler(caplog.handler)


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


def check_bounds(arrow_type: pa.DataType, column: pa.ChunkedArray, low: Any, high: Any) -> None:
    if pa.types.is_timestamp(arrow_type):
        assert str(arrow_type) in ("timestamp[us, tz=UTC]", "timestamp[us]")
        for bound in (low, high):
            assert bound is None or bound.endswith("Z") == (arrow_type.tz is not None)
        column = column.cast(pa.int64())
    values = [value for value in column.to_pylist() if value is not None]
    if not values or pa.types.is_boolean(arrow_type) or pa.types.is_binary(arrow_type):
        assert (low, high) == (None, None)
    elif pa.types.is_timestamp(arrow_type):
        if min(values) >= -62_135_596_800_000_000 and max(values) <= 253_402_300_799_999_000:
            assert milliseconds(low) == min(values) // 1000
            assert milliseconds(high) == -(-max(values) // 1000)
    elif pa.types.is_floating(arrow_type):
        numbers = [value for value in values if not math.isnan(value)]
        finite = len(numbers) == len(values) and not any(map(math.isinf, values))
        assert not finite or (float(low), float(high)) == (min(values), max(values))
        assert low is None or float(low) <= min(numbers)
        assert high is None or float(high) >= max(numbers)
    elif pa.types.is_date(arrow_type):
        assert (dt.date.fromisoformat(low), dt.date.fromisoformat(high)) == (min(values), max(values))
    elif pa.types.is_string(arrow_type):
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
