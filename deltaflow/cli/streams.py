"""`deltaflow lag` and `deltaflow restart-plan`: how a stream is, and what its next start will do."""

from __future__ import annotations

from collections.abc import Sequence

import click

from deltaflow.cli.exit_codes import FOUND
from deltaflow.cli.output import Output
from deltaflow.streaming import lag as lag_of
from deltaflow.streaming import plan_restart

_table = click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="PATH",
    help="A table that the stream reads, if its checkpoint does not name it. May be given several times.",
)
_option = click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of readStream in the next start, in place of recorded ones. May be given several times.",
)


@click.command()
@click.argument("checkpoint")
@_table
@_option
@click.pass_context
def lag(ctx: click.Context, checkpoint: str, tables: Sequence[str], options: Sequence[str]) -> None:
    """Shows how far the stream of CHECKPOINT is behind its tables, and how long until it is too late.

    The exit code is 3 if a source cannot be measured, or if what it has still to read is gone.
    """
    output: Output = ctx.obj
    with output.progress() as progress:
        progress("the tables", 0, None)
        found = lag_of(checkpoint, tables=tables, options=_parsed(options))
    if output.as_json:
        output.json([found])
    output.say(str(found))
    if any(source.error or any(room.is_gone for room in source.headroom) for source in found.sources):
        ctx.exit(FOUND)


@click.command("restart-plan")
@click.argument("checkpoint")
@_table
@click.option("--sink", metavar="PATH", help="The table that it writes, if the checkpoint does not name it.")
@_option
@click.option("--app-id", metavar="ID", help="The txnAppId of a foreachBatch that writes with one.")
@click.pass_context
def restart_plan(
    ctx: click.Context,
    checkpoint: str,
    tables: Sequence[str],
    sink: str | None,
    options: Sequence[str],
    app_id: str | None,
) -> None:
    """Shows what the next start of the stream of CHECKPOINT will do, and what will stop it.

    Nothing runs. The exit code is 3 if there is an obstacle.
    """
    output: Output = ctx.obj
    with output.progress() as progress:
        progress("the tables", 0, None)
        found = plan_restart(checkpoint, tables=tables, sink=sink, options=_parsed(options), app_id=app_id)
    if output.as_json:
        output.json([found])
    output.say(str(found))
    if found.obstacles:
        ctx.exit(FOUND)


def _parsed(options: Sequence[str]) -> dict[str, str]:
    parsed = {}
    for option in options:
        name, separator, value = option.partition("=")
        if not separator or not name:
            raise click.BadParameter(f"{option!r} is not NAME=VALUE.", param_hint="--option")
        parsed[name] = value
    return parsed
