"""`deltaflow repair PATH` removes files that are not there from a table's log, or lists them."""

from __future__ import annotations

import click
import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.batch.commands.repair import repair as repair_table
from deltaflow.cli.exit_codes import FOUND
from deltaflow.cli.output import Output, text

_ROWS_AT_ONCE = 10_000


@click.command()
@click.argument("path")
@click.option("--dry-run", is_flag=True, help="Lists the files, and commits nothing.")
@click.option(
    "--remove-files-without-vectors",
    "without_vectors",
    is_flag=True,
    help="Also removes files that are there, if their deletion vectors are not. All of their rows are lost.",
)
@click.option("--yes", "-y", is_flag=True, help="Does not ask.")
@click.pass_context
def repair(ctx: click.Context, path: str, dry_run: bool, without_vectors: bool, yes: bool) -> None:
    """Removes the files that are not there from the log of the table at PATH. Their rows are lost.

    It does what FSCK REPAIR TABLE does, and needs no Spark. Restore the files from a copy if you have one.
    The exit code of a dry run is 3 if files are missing.
    """
    output: Output = ctx.obj
    with output.progress() as progress:
        progress("the table's files", 0, None)
        found = repair_table(path, {}, dry_run=True)
    _show(output, found)
    lost = f"{found.num_rows} files are missing or lack their deletion vectors, with {_rows(found)}."
    if not dry_run and found.num_rows:
        if not yes:
            click.confirm(f"{lost} Remove them from {path}?", abort=True, err=True)
        removed = repair_table(path, {}, dry_run=False, removes_files_without_vectors=without_vectors)
        output.say(f"Removed {removed.num_rows} files, and lost {_rows(removed)}.")
        return
    output.say(lost if found.num_rows else "Nothing is missing.")
    if found.num_rows:
        ctx.exit(FOUND)


def _show(output: Output, found: pa.Table) -> None:
    for batch in found.to_batches(_ROWS_AT_ONCE):
        for row in batch.to_pylist():
            if output.as_json:
                output.json([row])
            else:
                what = "" if row["dataFileMissing"] else ": its deletion vector is missing"
                click.echo(text("", row["dataFilePath"]) + what)


def _rows(found: pa.Table) -> str:
    unknown = found["numRows"].null_count
    more = f", and those of {unknown} files that the log has not counted" if unknown else ""
    return f"{pc.sum(found['numRows'], min_count=0).as_py()} rows{more}"
