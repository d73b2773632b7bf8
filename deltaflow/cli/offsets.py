"""`deltaflow offsets …` shows and changes how far a stream has read its tables. Stop the stream first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import click

from deltaflow.cli.output import Output, Row, text
from deltaflow.log import DeltaLog
from deltaflow.log.streams.checkpoint import BatchOffsets, StreamCheckpoint
from deltaflow.log.streams.checkpoint_edit import CheckpointEdit
from deltaflow.log.streams.fork import plan_fork
from deltaflow.log.streams.rebuilding import plan_rebuilding
from deltaflow.log.streams.rewind import plan_adoption, plan_rewind
from deltaflow.streaming.operating.stream_sources import stream_sources
from deltaflow.streaming.stream_records import sink_record

_COLUMNS = ["batch", "done", "source", "version", "index", "initial_snapshot", "table_id", "offset"]


def _milliseconds(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is no time, such as 2026-01-31T12:00:00Z.") from error
    moment = found if found.tzinfo else found.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


_source = click.option("--source", metavar="N", help="The source's number, if several read a Delta table.")
_sink = click.option(
    "--sink",
    metavar="PATH",
    help="The Delta table that the stream writes, if the checkpoint does not name it.",
)
_table = click.option(
    "--table", metavar="PATH", help="The table that the source reads, if the checkpoint does not name it."
)
_yes = click.option("--yes", "-y", is_flag=True, help="Does not ask.")


@click.group()
def offsets() -> None:
    """Shows and changes how far a stream has read its tables.

    A change says what it will do, and asks. It writes a backup beside the checkpoint, or a new checkpoint.
    Stop the stream first.
    """


@offsets.command()
@click.argument("checkpoint")
@click.pass_obj
def show(output: Output, checkpoint: str) -> None:
    """The batches of CHECKPOINT, newest first, with the offset of each source at their end."""
    found = StreamCheckpoint(checkpoint)
    output.say(f"Query {found.query_id or 'without an id'}{', with state' if found.has_state else ''}")
    if found.is_blocked:
        output.say("A change was interrupted, and the stream does not start. Make the change again.")
    rows = (
        row
        for batch in reversed(found.planned)
        for row in _rows(found.offsets(batch), is_done=batch in found.done)
    )
    output.rows(({"query_id": found.query_id, **row} for row in rows), _COLUMNS)


def _rows(entry: BatchOffsets, *, is_done: bool) -> Iterator[Row]:
    for source, json in entry.offsets.items():
        row: Row = {"batch": entry.batch_id, "done": is_done, "source": source}
        offset = entry.delta_offset(source)
        if offset is None:
            yield row | {"offset": json}
        else:
            yield row | {
                "version": offset.reservoir_version,
                "index": offset.index if offset.is_barrier else max(offset.index, -1),
                "initial_snapshot": offset.is_starting_version,
                "table_id": offset.reservoir_id,
            }


@offsets.command()
@click.argument("checkpoint")
@click.option("--version", type=click.IntRange(min=0), help="The first version that is read again.")
@click.option(
    "--timestamp",
    "timestamp_ms",
    callback=_milliseconds,
    help="Reads again what was committed at that time or later: ISO 8601, in UTC unless it has a zone.",
)
@_table
@_source
@_sink
@_yes
@click.pass_context
def rewind(
    ctx: click.Context,
    checkpoint: str,
    version: int | None,
    timestamp_ms: int | None,
    table: str | None,
    source: str | None,
    sink: str | None,
    yes: bool,
) -> None:
    """Lets the stream of CHECKPOINT read versions of a table again."""
    if (version is None) == (timestamp_ms is None):
        raise click.UsageError("Give either --version or --timestamp.", ctx)
    _run(
        ctx.obj,
        lambda: plan_rewind(
            checkpoint,
            table or _recorded_table(checkpoint, source),
            version=version,
            timestamp_ms=timestamp_ms,
            source=source,
            sink=sink or _recorded_sink(checkpoint),
        ),
        yes=yes,
    )


@offsets.command()
@click.argument("checkpoint")
@click.argument("target")
@_sink
@_yes
@click.pass_obj
def fork(output: Output, checkpoint: str, target: str, sink: str | None, yes: bool) -> None:
    """Makes a checkpoint at TARGET with which a second stream goes on beside that of CHECKPOINT."""
    _run(output, lambda: plan_fork(checkpoint, target, sink=sink or _recorded_sink(checkpoint)), yes=yes)


@offsets.command()
@click.argument("checkpoint")
@_table
@click.option(
    "--version",
    type=click.IntRange(min=0),
    help="Begins with the commit of this version, instead of all rows of the newest one.",
)
@_source
@_sink
@_yes
@click.pass_obj
def adopt(
    output: Output,
    checkpoint: str,
    table: str | None,
    version: int | None,
    source: str | None,
    sink: str | None,
    yes: bool,
) -> None:
    """Lets the stream of CHECKPOINT go on with a table that was made anew, and has another id therefore."""
    _run(
        output,
        lambda: plan_adoption(
            checkpoint,
            table or _recorded_table(checkpoint, source),
            version=version,
            source=source,
            sink=sink or _recorded_sink(checkpoint),
        ),
        yes=yes,
    )


@offsets.command()
@click.argument("checkpoint")
@click.option("--sink", metavar="PATH", required=True, help="The Delta table that the stream writes.")
@click.option("--query-id", metavar="ID", help="The query, if several have written the table.")
@_yes
@click.pass_obj
def rebuild(output: Output, checkpoint: str, sink: str, query_id: str | None, yes: bool) -> None:
    """Rebuilds a lost CHECKPOINT, which must be empty, from the table that its stream writes."""
    _run(output, lambda: plan_rebuilding(checkpoint, sink, query_id=query_id), yes=yes)


def _recorded_table(checkpoint: str, source: str | None) -> str:
    """The table that the checkpoint names for its source."""
    found = StreamCheckpoint(checkpoint)
    sources = [] if found.newest_planned is None else stream_sources(found, (), {})
    paths = {own.path for own in sources if own.path is not None and source in (None, own.name)}
    if len(paths) != 1:
        reason = "names several tables" if paths else "does not name the table of the source"
        raise click.UsageError(f"The checkpoint {reason}: give --table, and --source if there are several.")
    return paths.pop()


def _recorded_sink(checkpoint: str) -> str | None:
    """The table that the checkpoint names as the one that the stream writes, if it is there."""
    record = sink_record(StreamCheckpoint(checkpoint))
    return record.path if record is not None and DeltaLog.for_table(record.path).exists() else None


def _run(output: Output, plan: Callable[[], CheckpointEdit], *, yes: bool) -> None:
    with output.progress() as progress:
        progress("the checkpoint and the log", 0, None)
        edit = plan()
    for step in edit.steps:
        output.say(step)
        if output.as_json and not yes:
            click.echo(text("", step), err=True)
    if not yes:
        number = len(edit.copied) + len(edit.files)
        click.confirm(f"Write {number} files below {edit.directory}?", abort=True, err=True)
    backup = edit.apply()
    if output.as_json:
        done = {"checkpoint": edit.directory, "steps": list(edit.steps), "files": list(edit.files)}
        output.json([done | {"backup": backup}])
    output.say("Done." if backup is None else f"Done. The checkpoint as it was is in {backup}.")
