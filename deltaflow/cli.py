"""The command `deltaflow` shows what is in a table's log. It only reads, and starts no JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deltaflow.errors import DeltaError, DeltaIllegalArgumentException, VersionNotFoundError
from deltaflow.log import LOG_DIRECTORY, Commit, DeltaLog, Snapshot, encode_actions, schema_to_string
from deltaflow.log.protocol.commit import commit_version
from deltaflow.log.replay.listing import version_runs
from deltaflow.store import FileStatus, store_for

_FILES_PER_BATCH = 10_000
_AS_JSON = click.option("--json", "as_json", is_flag=True, help="JSON for programs, one object a line.")

Row = dict[str, Any]


class _Group(click.Group):
    """A group of commands whose DeltaErrors are messages, not tracebacks."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DeltaError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Group)
def main() -> None:
    """Looks into Delta tables without Spark and Java."""


@main.command(
    "connect-server",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
    short_help="Serves clients of Spark Connect.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def connect_server(ctx: click.Context, arguments: Sequence[str]) -> None:
    """Serves clients of Spark Connect; its module, which imports PySpark, is loaded when it is run."""
    from deltaflow.connect_server import connect_server

    connect_server.main([*arguments], prog_name=ctx.command_path, standalone_mode=False)


@main.group("log")
@click.argument("path")
@click.pass_context
def log_of_table(ctx: click.Context, path: str) -> None:
    """The transaction log of the table at PATH: a directory, or a URL such as s3://bucket/table."""
    ctx.obj = path


@log_of_table.command()
@_AS_JSON
@click.pass_obj
def history(path: str, as_json: bool) -> None:
    """The commits that the log still has, newest first."""
    log = _log_of_existing_table(path)
    rows = [
        _history_row(commit) for run in version_runs(_commit_versions(path)) for commit in log.commits(*run)
    ]
    columns = ["version", "timestamp_ms", "operation", "parameters", "added", "removed", "engine"]
    _show(reversed(rows), as_json, columns)


@log_of_table.command()
@click.option("--version", type=int, help="This version, instead of the newest.")
@_AS_JSON
@click.pass_obj
def state(path: str, version: int | None, as_json: bool) -> None:
    """What the table is at a version: schema, properties, protocol, numbers."""
    log = _log_of_existing_table(path)
    snapshot = log.snapshot() if version is None else log.snapshot_at(version)
    row = _state_row(snapshot) | {"checksum": _checksum_row(log.checksum_differences(snapshot))}
    if as_json:
        _write_json([row])
        return
    row["schema"] = snapshot.schema.treeString().rstrip("\n")
    grid = Table(box=box.SIMPLE_HEAD, show_header=False)
    for name, value in row.items():
        if value not in (None, {}, []):
            grid.add_row(_title(name), Text(_text(name, value)))
    Console().print(grid)


@log_of_table.command()
@click.argument("version", type=int)
@_AS_JSON
@click.pass_obj
def commit(path: str, version: int, as_json: bool) -> None:
    """The actions of the commit of VERSION, in their order."""
    log = _log_of_existing_table(path)
    versions = _commit_versions(path)
    if version not in versions:
        runs = ", ".join(f"[{first}, {last}]" for first, last in version_runs(versions)) or "none"
        raise VersionNotFoundError(
            f"The log has no commit file of version {version}. Available commits: {runs}.", table=log.path
        )
    (found,) = log.commits(version, version)
    actions = [msgspec.json.decode(line) for line in encode_actions(found.actions).splitlines()]
    if as_json:
        _write_json(actions)
        return
    rows = ({"action": name, "fields": fields} for action in actions for name, fields in action.items())
    _show(rows, False, ["action", "fields"])


@log_of_table.command()
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Only files of this partition; an empty value is null. May be given for several columns.",
)
@_AS_JSON
@click.pass_obj
def files(path: str, partitions: Sequence[str], as_json: bool) -> None:
    """The table's files with their statistics."""
    snapshot = _log_of_existing_table(path).snapshot()
    found = _files_of_partitions(snapshot, partitions)
    rows = (_file_row(row) for batch in found.to_batches(_FILES_PER_BATCH) for row in batch.to_pylist())
    if not as_json:
        rows = ({**row, **_readable_stats(row["stats"])} for row in rows)
    columns = ["path", "partition_values", "size_bytes", "modification_time_ms", "rows", "values"]
    _show(rows, as_json, columns)


@log_of_table.command()
@_AS_JSON
@click.pass_obj
def size(path: str, as_json: bool) -> None:
    """How many files and bytes the table and its log have."""
    snapshot = _log_of_existing_table(path).snapshot()
    tombstones = snapshot.tombstones
    rows = [
        ("data files", snapshot.num_files, snapshot.size_in_bytes),
        ("removed files that the log knows", tombstones.num_rows, pc.sum(tombstones["size"]).as_py() or 0),
    ]
    sizes_by_category: dict[str, list[int]] = {}
    for status in _log_files(path):
        sizes_by_category.setdefault(_category_of_log_file(status.name), []).append(status.size)
    sizes_by_category["sidecars"] = [status.size for status in _log_files(path, "/_sidecars")]
    rows += [
        (f"log: {category}", len(sizes), sum(sizes)) for category, sizes in sizes_by_category.items() if sizes
    ]
    columns = ["what", "files", "size_bytes"]
    _show((dict(zip(columns, row, strict=True)) for row in rows), as_json, columns)


def _log_of_existing_table(path: str) -> DeltaLog:
    """The log of the table at a path; DeltaTableNotFoundError if there is none."""
    log = DeltaLog.for_table(path)
    if log.latest_version() < 0:
        log.snapshot()
    return log


def _log_files(path: str, below: str = "") -> list[FileStatus]:
    store, directory = store_for(path)
    try:
        return store.list_from(f"{directory.rstrip('/')}/{LOG_DIRECTORY}{below}", "")
    except FileNotFoundError:
        return []


def _commit_versions(path: str) -> list[int]:
    """The versions, ascending, whose commit files are there."""
    versions = (commit_version(status.name) for status in _log_files(path))
    return [version for version in versions if version is not None]


def _category_of_log_file(name: str) -> str:
    if commit_version(name) is not None:
        return "commits"
    categories = {".checkpoint.": "checkpoints", ".compacted.json": "compactions", ".crc": "checksums"}
    return next((category for part, category in categories.items() if part in name), "other files")


def _history_row(commit: Commit) -> Row:
    info = commit.commit_info
    return {
        "version": commit.version,
        "timestamp_ms": commit.timestamp_ms,
        "operation": None if info is None else info.operation,
        "parameters": {} if info is None else info.operation_parameters or {},
        "metrics": {} if info is None else info.operation_metrics or {},
        "added": len(commit.adds),
        "removed": len(commit.removes),
        "engine": None if info is None else info.engine_info,
        "user_metadata": None if info is None else info.user_metadata,
    }


def _state_row(snapshot: Snapshot) -> Row:
    metadata, protocol = snapshot.metadata, snapshot.protocol
    return {
        "version": snapshot.version,
        "timestamp_ms": snapshot.timestamp_ms,
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "schema": msgspec.json.decode(metadata.schema_string or schema_to_string(snapshot.schema)),
        "partition_columns": metadata.partition_columns,
        "properties": metadata.configuration,
        "min_reader_version": protocol.min_reader_version,
        "min_writer_version": protocol.min_writer_version,
        "reader_features": protocol.reader_features,
        "writer_features": protocol.writer_features,
        "files": snapshot.num_files,
        "size_bytes": snapshot.size_in_bytes,
        "transactions": {app_id: txn.version for app_id, txn in snapshot.transactions.items()},
        "domains": {name: domain.configuration for name, domain in snapshot.domains.items()},
    }


def _checksum_row(differences: dict[str, tuple[Any, Any]] | None) -> Any:
    """How the version's checksum file compares with the log; None without one."""
    if not differences:
        return None if differences is None else "agrees with the log"
    return {name: {"log": of_log, "checksum": own} for name, (of_log, own) in differences.items()}


def _files_of_partitions(snapshot: Snapshot, partitions: Iterable[str]) -> pa.Table:
    found = snapshot.files
    names = {name.lower(): name for name in snapshot.partition_columns}
    for partition in partitions:
        column, separator, value = partition.partition("=")
        if not separator or column.lower() not in names:
            raise DeltaIllegalArgumentException(
                f"--partition {partition} does not say COLUMN=VALUE of a partition column. "
                f"Partition columns: {', '.join(snapshot.partition_columns) or 'none'}.",
                table=snapshot.path,
            )
        # An empty string is null (PROTOCOL.md, "Partition Value Serialization").
        values = pc.coalesce(pc.map_lookup(found["partition_values"], names[column.lower()], "first"), "")
        found = found.filter(pc.equal(values, value))
    return found


def _file_row(row: Row) -> Row:
    try:
        stats = None if row["stats"] is None else msgspec.json.decode(row["stats"])
    except msgspec.DecodeError:
        # Statistics that are not JSON are shown as they are.
        stats = row["stats"]
    return {
        "path": row["path"],
        "partition_values": dict(row["partition_values"]),
        "size_bytes": row["size"],
        "modification_time_ms": row["modification_time"],
        "stats": stats,
    }


def _show(rows: Iterable[Row], as_json: bool, columns: Sequence[str]) -> None:
    if as_json:
        _write_json(rows)
        return
    grid = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        numeric = column in ("version", "size_bytes", "added", "removed", "files", "rows")
        grid.add_column(_title(column), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(_text(column, row[column])) for column in columns))
    Console().print(grid)


def _title(name: str) -> Text:
    return Text(name.removesuffix("_ms").removesuffix("_bytes").replace("_", " "))


def _readable_stats(stats: Any) -> Row:
    """The number of rows, and a line for each column: smallest … largest, nulls."""
    if not isinstance(stats, dict):
        return {"rows": None, "values": stats}
    least, most, nulls = (
        dict(_flat(part)) if isinstance(part := stats.get(name), dict) else {}
        for name in ("minValues", "maxValues", "nullCount")
    )
    lines = []
    for column in {**least, **most, **nulls}:
        bounds = f"{_text('', least.get(column))} … {_text('', most.get(column))}"
        found = f"{column}: {bounds}" if column in least or column in most else f"{column}:"
        lines.append(found + (f" ({nulls[column]} null)" if nulls.get(column) else ""))
    return {"rows": stats.get("numRecords"), "values": "\n".join(lines)}


def _write_json(rows: Iterable[Row]) -> None:
    for row in rows:
        click.echo(msgspec.json.encode(row))


def _text(name: str, value: Any) -> str:
    """A value as readable text."""
    if value is None:
        return ""
    if name.endswith("_ms"):
        return _time(value)
    if name.endswith("_bytes"):
        return _bytes(value)
    if isinstance(value, dict):
        return "\n".join(f"{key}: {_text('', inner)}" for key, inner in _flat(value))
    if isinstance(value, list):
        return ", ".join(_text("", item) for item in value)
    # Anybody may have written the log: its control characters must not reach the terminal.
    text = str(value)
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def _flat(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _flat(inner, f"{prefix}{key}.")
        else:
            yield prefix + key, inner


def _time(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"


def _bytes(size: int) -> str:
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(amount) < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"


if __name__ == "__main__":
    main()
