"""Tables as tests write and read them, and their logs as plain files, which are read without deltaflow."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TablePath = str | Path
Action = dict[str, Any]
INTERPRETED = {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": "false"}
"""The settings of a session without generated code."""


def write(
    frame: DataFrame,
    path: TablePath,
    mode: str = "append",
    partition_by: Sequence[str] = (),
    **options: Any,
) -> None:
    """Writes a frame into a table, as one file for each partition."""
    writer = frame.coalesce(1).write.format("delta").mode(mode).partitionBy(*partition_by)
    writer.options(**options).save(str(path))


def load(spark: SparkSession, path: TablePath, **options: Any) -> DataFrame:
    """The rows of a table, as Spark reads them."""
    return spark.read.format("delta").options(**options).load(str(path))


def ids(frame: DataFrame) -> list[int]:
    """The values of the column `id`, in order."""
    return sorted(row.id for row in frame.collect())


def tuples(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The rows as tuples, in an order of their own."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def rows(frame: DataFrame) -> list[Any]:
    """The rows as dicts of comparable values, in an order of their own."""
    return _sorted_rows(frame.toArrow())


def rows_by_deltalake(path: TablePath) -> list[Any]:
    """The rows of a table as the independent implementation reads them, in the form of `rows`."""
    import deltalake

    with tempfile.TemporaryDirectory() as folder:
        if "%" in str(path):  # in the path of a table it takes %41 for A
            path = shutil.copytree(path, Path(folder, "copy"))
        table = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path))
        return _sorted_rows(pa.table(table.execute("select * from t").read_all()))


def ids_by_deltalake(path: TablePath) -> list[int]:
    """The values of the column `id` as the independent implementation reads them, in order."""
    import deltalake

    return sorted(deltalake.DeltaTable(path).to_pyarrow_table(columns=["id"])["id"].to_pylist())


def read_by_deltalake(path: TablePath) -> list[dict[str, Any]]:
    """The rows of a table as Python values of the independent implementation, in an order of their own."""
    import deltalake

    return sorted(deltalake.DeltaTable(path).to_pyarrow_table().to_pylist(), key=repr)


def _sorted_rows(table: pa.Table) -> list[Any]:
    return sorted((_comparable(row) for row in table.to_pylist()), key=repr)


def _comparable(value: Any) -> Any:
    """A value that is equal to itself, whatever implementation read it: NaN, -0.0 and time zones included."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float():
            return repr(value)
        case dt.datetime() if value.tzinfo is not None:
            return (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        case dict():
            return {name.lower(): _comparable(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_comparable(inner) for inner in value]
        case bytearray():
            return bytes(value)
        case _:
            return value


def data_files(path: TablePath) -> set[str]:
    """The Parquet files in the folder of a table, by their paths below it; the log's are left out."""
    files = (file.relative_to(path) for file in Path(path).rglob("*.parquet"))
    return {str(file) for file in files if "_delta_log" not in file.parts}


def files_below(folder: TablePath) -> dict[str, tuple[int, int]]:
    """Every file below a folder, the log's included, with its size and the time of its last change."""
    files = (file for file in Path(folder).rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): (file.stat().st_size, file.stat().st_mtime_ns) for file in files}


def set_time(file: Path, time_ms: int) -> None:
    """Sets the time of a file's last change."""
    os.utime(file, ns=(time_ms * 1_000_000,) * 2)


def commit_file(path: TablePath, version: int) -> Path:
    return Path(path, "_delta_log", f"{version:020}.json")


def versions(path: TablePath) -> list[int]:
    """The versions that have a commit in the log, in order."""
    files = Path(path, "_delta_log").glob("*.json")
    return sorted(int(file.stem) for file in files if file.stem.isdigit())


def checkpoint_versions(path: TablePath) -> list[int]:
    """The versions that have a checkpoint, of whatever form, in order."""
    return sorted(int(file.name[:20]) for file in Path(path, "_delta_log").glob("*.checkpoint.*"))


def latest_version(path: TablePath) -> int:
    return versions(path)[-1]


def read_commit(path: TablePath, version: int | None = None) -> list[Action]:
    """The actions of a commit, the newest one without a version: {name: action}, as the file has them."""
    text = commit_file(path, latest_version(path) if version is None else version).read_text()
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def every_action(path: TablePath, name: str) -> list[Action]:
    """The actions of one name in all commits, oldest first."""
    return [action[name] for commit in read_commits(path) for action in commit if name in action]


def read_commits(path: TablePath) -> list[list[Action]]:
    """The actions of every commit, oldest first."""
    return [read_commit(path, version) for version in versions(path)]


def actions(path: TablePath, name: str, version: int | None = None) -> list[Action]:
    """The actions of one name in a commit, the newest one without a version."""
    return [action[name] for action in read_commit(path, version) if name in action]


def commit_info(path: TablePath, version: int | None = None) -> Action:
    """The commitInfo of a commit, the newest one without a version."""
    [info] = actions(path, "commitInfo", version)
    return info


def operations(path: TablePath) -> list[str]:
    """The operation of every commit, oldest first."""
    return [info["operation"] for info in every_action(path, "commitInfo")]


def edit_commit(path: TablePath, edit: Callable[[Action], None], version: int = 0) -> None:
    """Writes a commit again, after a change to each of its actions: {name: action}."""
    lines = read_commit(path, version)
    for line in lines:
        edit(line)
    write_commit(path, version, *lines)


def put_file(file: Path, text: str | bytes, time_ms: int | None = None) -> None:
    """Writes a file of a log in one piece, with its time, as writers of tables do: a stream that runs would
    take an empty file for a whole commit, and never look at it again."""
    part = file.with_name(f".{file.name}.part")
    part.write_bytes(text.encode() if isinstance(text, str) else text)
    if time_ms is not None:
        set_time(part, time_ms)
    part.rename(file)


written_by_hand: list[str] = []
"""The tables whose commits tests have written or edited, which need not be as the protocol says."""


def write_commit(path: TablePath, version: int, *lines: Action) -> None:
    """Writes a commit by hand: {name: action}, one a line."""
    written_by_hand.append(str(path))
    file = commit_file(path, version)
    put_file(file, "".join(json.dumps(line) + "\n" for line in lines))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
