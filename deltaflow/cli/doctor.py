"""`deltaflow doctor PATH` checks a table and proposes repairs. It only reads."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import click

from deltaflow.cli.exit_codes import FOUND
from deltaflow.cli.output import Output, text
from deltaflow.log.doctor.examination import examine
from deltaflow.log.doctor.finding import Finding, Severity

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.ADVICE: "cyan"}


@click.command()
@click.argument("path")
@click.pass_context
def doctor(ctx: click.Context, path: str) -> None:
    """Checks the table at PATH: its log, checkpoints, files and statistics.

    Each finding is an error (readers fail or see wrong rows), a warning (something is damaged) or advice, and
    says what repairs it. Nothing is changed. The exit code is 3 if there is an error or a warning.
    """
    output: Output = ctx.obj
    found: Counter[Severity] = Counter()
    with _errors_alone(), output.progress() as progress:
        for finding in examine(path, progress):
            found[finding.severity] += 1
            if output.as_json:
                output.json([finding])
            else:
                _show(finding)
    numbers = ", ".join(_counted(severity, found[severity]) for severity in Severity if found[severity])
    output.say(f"Found: {numbers}." if numbers else "Nothing was found.")
    if found[Severity.ERROR] or found[Severity.WARNING]:
        ctx.exit(FOUND)


def _counted(severity: Severity, number: int) -> str:
    return f"{number} {severity}{'' if number == 1 or severity is Severity.ADVICE else 's'}"


@contextmanager
def _errors_alone() -> Iterator[None]:
    """What the log core would warn of is among the findings."""
    logger = logging.getLogger("deltaflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _show(finding: Finding) -> None:
    title = click.style(finding.severity.upper(), fg=_COLOURS[finding.severity], bold=True)
    size = "" if finding.size_bytes is None else f" ({text('size_bytes', finding.size_bytes)})"
    click.echo(f"{title} {finding.check}: {text('', finding.what)}{size}")
    for file in finding.files:
        click.echo(f"    {text('', file)}")
    others = (finding.count or 0) - len(finding.files)
    if finding.files and others > 0:
        click.echo(f"    … and {others} more")
    click.echo(f"  Repair: {text('', finding.repair)}")
    click.echo()
