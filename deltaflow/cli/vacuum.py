"""`deltaflow vacuum PATH` deletes files that no version within the retention needs, or lists them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import click
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltaflow.batch.commands.vacuum import deletable_files, delete_files
from deltaflow.cli.output import Output, text
from deltaflow.log.maintenance.vacuum_candidates import (
    INVENTORY_SCHEMA,
    Find,
    in_directory,
    in_inventory,
    in_log,
)

_ROWS_AT_ONCE = 10_000


@click.command()
@click.argument("path")
@click.option("--dry-run", is_flag=True, help="Lists the files, and deletes nothing.")
@click.option(
    "--retain",
    "hours",
    type=click.FloatRange(min=0),
    metavar="HOURS",
    help="Keeps what versions of the last HOURS need; the table's own retention by default, and at least.",
)
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    metavar="DIRECTORY",
    help="The checkpoint of a stream that still needs files of the table. May be given several times.",
)
@click.option("--lite", is_flag=True, help="Finds the files in the log alone, and lists no directory.")
@click.option(
    "--inventory",
    type=click.Path(exists=True),
    metavar="FILE",
    help="Finds the files in this Parquet file, with the columns path, length, isDir and modificationTime.",
)
@click.option("--yes", "-y", is_flag=True, help="Does not ask.")
@click.pass_obj
def vacuum(
    output: Output,
    path: str,
    dry_run: bool,
    hours: float | None,
    checkpoints: Sequence[str],
    lite: bool,
    inventory: str | None,
    yes: bool,
) -> None:
    """Deletes the files of the table at PATH that no version within the retention needs.

    It needs no Spark. Ctrl-C while it deletes leaves a table that is whole: run it again for the rest.
    """
    if lite and inventory is not None:
        raise click.UsageError("--lite and --inventory exclude each other.")
    if hours is not None and math.isnan(hours):
        raise click.BadParameter("nan is no number of hours.", param_hint="--retain")
    find: Find = in_log if lite else in_directory
    if inventory is not None:
        find = in_inventory(_read(inventory))
    with output.progress() as progress:
        progress("the table's log" if lite else "the table's directory", 0, None)
        found = deletable_files(path, hours, {}, checkpoints, find)
    total = int(pc.sum(found["size"]).as_py() or 0)
    if dry_run:
        for batch in found.to_batches(_ROWS_AT_ONCE):
            for row in batch.to_pylist():
                if output.as_json:
                    output.json([{"path": row["path"], "size_bytes": row["size"]}])
                else:
                    click.echo(text("", row["path"]))
    counted = f"{found.num_rows} files and empty directories, {text('size_bytes', total)}"
    if dry_run:
        output.say(f"A vacuum would delete {counted}.")
        return
    if found.num_rows and not yes:
        click.confirm(f"Delete {counted} of {path}?", abort=True, err=True)
    with output.progress() as progress:
        progress("deleting", 0, None)
        delete_files(path, hours, {}, checkpoints, find)
    if output.as_json:
        output.json([{"deleted": found.num_rows, "size_bytes": total}])
    output.say(f"Deleted {counted}.")


def _read(inventory: str) -> pa.Table:
    try:
        return pq.read_table(inventory, columns=INVENTORY_SCHEMA.names).cast(INVENTORY_SCHEMA)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise click.BadParameter(f"{inventory} cannot be read as an inventory: {error}") from error
