"""The group of all commands. It imports the module of a command only when that command is run."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import click
import msgspec

from deltaflow.cli.exit_codes import INTERRUPTED
from deltaflow.cli.output import Output
from deltaflow.errors import DeltaError


class _Entry(NamedTuple):
    """Where a command is (module:attribute), and what the list of commands says of it."""

    place: str
    short_help: str


_COMMANDS = {
    "log": _Entry("deltaflow.cli.log:log", "Shows the transaction log of a table."),
    "doctor": _Entry("deltaflow.cli.doctor:doctor", "Checks a table, and proposes repairs."),
    "repair": _Entry("deltaflow.cli.repair:repair", "Removes files that are not there from a table's log."),
    "vacuum": _Entry("deltaflow.cli.vacuum:vacuum", "Deletes files that no version needs, or lists them."),
    "lag": _Entry("deltaflow.cli.streams:lag", "Shows how far a stream is behind its tables."),
    "restart-plan": _Entry(
        "deltaflow.cli.streams:restart_plan", "Shows what a stream will do when it starts."
    ),
    "offsets": _Entry("deltaflow.cli.offsets:offsets", "Shows and changes how far a stream has read."),
    "connect-server": _Entry("deltaflow.connect_server:connect_server", "Serves clients of Spark Connect."),
    "completion": _Entry("deltaflow.cli.completion:completion", "Prints the script that completes commands."),
}


_json = click.Option(
    ["--json"], is_flag=True, expose_value=False, help="JSON for programs, an object a line. Goes anywhere."
)


class _Failure(click.ClickException):
    """A DeltaError as a message, with --json as an object."""

    def __init__(self, error: DeltaError, *, as_json: bool) -> None:
        super().__init__(str(error))
        self._error, self._as_json = error, as_json

    def show(self, file: Any = None) -> None:
        if not self._as_json:
            super().show(file)
            return
        error = self._error
        places = {"table": error.table, "version": error.version, "file": error.file, "column": error.column}
        found = {name: value for name, value in places.items() if value is not None}
        fields = {"error": error.error_class, "message": error.message, **found}
        click.echo(msgspec.json.encode(fields), err=True)


class _Root(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Anywhere on the line, also after the arguments of groups, where click takes no options.
        end = args.index("--") if "--" in args else len(args)
        rest = [arg for arg in args[:end] if arg != "--json"]
        ctx.obj = Output(as_json=len(rest) < end)
        return super().parse_args(ctx, [*rest, *args[end:]])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The name and the help of a command alone: enough for lists and completion."""
        entry = _COMMANDS.get(cmd_name)
        return None if entry is None else click.Command(cmd_name, short_help=entry.short_help)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        entry = _COMMANDS.get(args[0])
        if entry is None:
            return super().resolve_command(ctx, args)
        module, _, attribute = entry.place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        _show_json(command)
        return args[0], command, args[1:]

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DeltaError as error:
            raise _Failure(error, as_json=ctx.obj.as_json) from error
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)


def _show_json(command: click.Command) -> None:
    """Let the help and the completion of a command, and of those in it, have --json."""
    if _json not in command.params:
        command.params.append(_json)
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _show_json(inner)


@click.group(cls=_Root, params=[_json], context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="deltaflow", prog_name="deltaflow")
def main() -> None:
    """Looks after Delta tables and streams, without Spark and Java.

    Exit codes: 0 all is well, 1 an error, 2 a wrong command line, 3 something was found, 130 interrupted.
    """
