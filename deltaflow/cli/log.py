"""`deltaflow log PATH …` shows what is in a table's log. It only reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import msgspec

from deltaflow.cli.output import Output, Row, flat, text
from deltaflow.errors import DeltaIllegalArgumentException, VersionNotFoundError
from deltaflow.log.protocol.actions import name_and_body
from deltaflow.log.protocol.commit import LOG_DIRECTORY, Commit, commit_version
from deltaflow.log.replay.listing import version_runs
from deltaflow.log.replay.log_files import LogFiles, existing_log
from deltaflow.log.untrusted_json import decode_json
from deltaflow.store import FileStatus, store_for

if TYPE_CHECKING:
    # `history` does without pyarrow and PySpark, and starts faster.
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from deltaflow.log import DeltaLog, Snapshot

_FILES_PER_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class _Asked:
    """What all commands of the group have."""

    path: str
    output: Output

    def files(self) -> LogFiles:
        """The log's files; DeltaTableNotFoundError if there is no table."""
        return existing_log(self.path)

    def log(self) -> DeltaLog:
        """The log; DeltaTableNotFoundError if there is no table."""
        from deltaflow.log import DeltaLog

        log = DeltaLog.for_table(self.path)
        if log.latest_version() < 0:
            log.snapshot()
        return log

    def snapshot(self, version: int | None = None) -> Snapshot:
        """The table at a version, the newest one by default."""
        log = self.log()
        with self.output.progress() as progress:
            progress("the log", 0, None)
            return log.snapshot() if version is None else log.snapshot_at(version)


@click.group()
@click.argument("path")
@click.pass_context
def log(ctx: click.Context, path: str) -> None:
    """Shows the transaction log of the table at PATH: a directory, or a URL such as s3://bucket/table."""
    ctx.obj = _Asked(path, ctx.obj)


@log.command()
@click.pass_obj
def history(asked: _Asked) -> None:
    """The commits that the log still has, newest first."""
    files = asked.files()
    listing = files.list(0)
    rows: list[Row] = []
    with asked.output.progress() as progress:
        for run in version_runs(sorted(listing.commits)):
            for commit in files.commits(listing, *run):
                progress("commits", len(rows), len(listing.commits))
                rows.append(_history_row(commit))
    columns = ["version", "timestamp_ms", "operation", "parameters", "added", "removed", "engine"]
    asked.output.rows(reversed(rows), columns)


@log.command()
@click.option("--version", type=int, help="This version, instead of the newest.")
@click.pass_obj
def state(asked: _Asked, version: int | None) -> None:
    """What the table is at a version: schema, properties, protocol, numbers."""
    snapshot = asked.snapshot(version)
    row = _state_row(snapshot) | {"checksum": _checksum_row(asked.log().checksum_differences(snapshot))}
    if not asked.output.as_json:
        row["schema"] = snapshot.schema.treeString().rstrip("\n")
    asked.output.record(row)


@log.command()
@click.argument("version", type=int)
@click.pass_obj
def commit(asked: _Asked, version: int) -> None:
    """The actions of the commit of VERSION, in their order."""
    files = asked.files()
    listing = files.list(0)
    if version not in listing.commits:
        runs = ", ".join(f"[{first}, {last}]" for first, last in version_runs(sorted(listing.commits)))
        raise VersionNotFoundError(
            f"The log has no commit file of version {version}. Available commits: {runs or 'none'}.",
            table=files.path,
        )
    (found,) = files.commits(listing, version, version)
    bodies = map(name_and_body, found.actions)
    if asked.output.as_json:
        asked.output.json({name: _fields(body)} for name, body in bodies)
        return
    asked.output.rows(({"action": n, "fields": _fields(body)} for n, body in bodies), ["action", "fields"])


def _fields(body: msgspec.Raw) -> Any:
    """The fields of an action; its text where it has a number of which Python makes none, such as 1e999."""
    try:
        return decode_json(body)
    except msgspec.DecodeError:
        return bytes(body).decode()


@log.command()
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Only files of this partition; an empty value is null. May be given for several columns.",
)
@click.pass_obj
def files(asked: _Asked, partitions: Sequence[str]) -> None:
    """The table's files with their statistics."""
    snapshot = asked.snapshot()
    found, schema = _files_of_partitions(snapshot, partitions), snapshot.schema
    rows = (
        _file_row(row, schema)
        for batch in snapshot.with_stats(found).to_batches(_FILES_PER_BATCH)
        for row in batch.to_pylist()
    )
    if not asked.output.as_json:
        rows = ({**row, **_readable_stats(row["stats"], row.get("deletion_vector"))} for row in rows)
    columns = ["path", "partition_values", "size_bytes", "modification_time_ms", "rows", "values"]
    asked.output.rows(rows, columns)


@log.command()
@click.pass_obj
def size(asked: _Asked) -> None:
    """How many files and bytes the table and its log have."""
    import pyarrow.compute as pc

    snapshot = asked.snapshot()
    tombstones = snapshot.tombstones
    rows = [
        ("data files", snapshot.num_files, snapshot.size_in_bytes),
        ("removed files that the log knows", tombstones.num_rows, pc.sum(tombstones["size"]).as_py() or 0),
    ]
    sizes_by_category: dict[str, list[int]] = {}
    for status in _log_files(asked.path):
        sizes_by_category.setdefault(_category_of_log_file(status.name), []).append(status.size)
    sizes_by_category["sidecars"] = [status.size for status in _log_files(asked.path, "/_sidecars")]
    rows += [
        (f"log: {category}", len(sizes), sum(sizes)) for category, sizes in sizes_by_category.items() if sizes
    ]
    columns = ["what", "files", "size_bytes"]
    asked.output.rows((dict(zip(columns, row, strict=True)) for row in rows), columns)


def _log_files(path: str, below: str = "") -> list[FileStatus]:
    store, directory = store_for(path)
    try:
        return store.list_from(f"{directory.rstrip('/')}/{LOG_DIRECTORY}{below}", "")
    except FileNotFoundError:
        return []


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
    try:
        schema = decode_json(metadata.schema_string or snapshot.schema.json())
    except msgspec.DecodeError:
        schema = snapshot.schema.jsonValue()  # it says what is wrong
    return {
        "version": snapshot.version,
        "timestamp_ms": snapshot.timestamp_ms,
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "schema": schema,
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
    import pyarrow.compute as pc

    found = snapshot.files
    names = {name.lower(): physical for name, physical in snapshot.physical_partition_columns.items()}
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


def _file_row(row: Row, schema: StructType) -> Row:
    """A file, with the names that its columns have in the table."""
    from deltaflow.log.protocol.column_mapping import with_logical_names

    try:
        stats = None if row["stats"] is None else decode_json(row["stats"])
    except msgspec.DecodeError:
        # Statistics that are not JSON are shown as they are.
        stats = row["stats"]
    if isinstance(stats, dict):
        stats = {
            name: with_logical_names(part, schema) if isinstance(part, dict) else part
            for name, part in stats.items()
        }
    described = {
        "path": row["path"],
        "partition_values": with_logical_names(dict(row["partition_values"]), schema),
        "size_bytes": row["size"],
        "modification_time_ms": row["modification_time"],
        "stats": stats,
    }
    vector = row["deletion_vector"]
    return described if vector is None else {**described, "deletion_vector": vector}


def _readable_stats(stats: Any, vector: Any) -> Row:
    """The number of rows that are not deleted, and a line for each column: smallest … largest, nulls."""
    if not isinstance(stats, dict):
        return {"rows": None, "values": stats}
    least, most, nulls = (
        dict(flat(part)) if isinstance(part := stats.get(name), dict) else {}
        for name in ("minValues", "maxValues", "nullCount")
    )
    lines = []
    for column in {**least, **most, **nulls}:
        bounds = f"{text('', least.get(column))} … {text('', most.get(column))}"
        found = f"{column}: {bounds}" if column in least or column in most else f"{column}:"
        lines.append(found + (f" ({nulls[column]} null)" if nulls.get(column) else ""))
    rows = stats.get("numRecords")
    if vector is not None and isinstance(rows, int):
        rows -= vector["cardinality"]
    return {"rows": rows, "values": "\n".join(lines)}
