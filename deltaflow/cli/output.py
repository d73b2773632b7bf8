"""What commands print: tables for people, JSON for programs, progress on the terminal.

Rich is imported where it is used: `--help` and JSON do without it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import click
import msgspec

from deltaflow.log.progress import Progress

if TYPE_CHECKING:
    from rich.text import Text

Row: TypeAlias = dict[str, Any]
_UNTIL_PROGRESS_S = 2.0
_NUMBERS = ("version", "size_bytes", "added", "removed", "files", "rows", "count")


@dataclass(frozen=True, slots=True)
class Output:
    """Where a command's answer goes, and in which form."""

    as_json: bool

    def rows(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        """Rows as JSON with all their fields, or as a table of these columns."""
        if self.as_json:
            self.json(rows)
            return
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        grid = Table(box=box.SIMPLE_HEAD)
        for column in columns:
            justify: Any = "right" if column in _NUMBERS else "left"
            grid.add_column(_title(column), justify=justify, overflow="fold")
        for row in rows:
            grid.add_row(*(Text(text(column, row.get(column))) for column in columns))
        Console().print(grid)

    def record(self, row: Mapping[str, Any]) -> None:
        """One row: as JSON, or as a table with a line for each field that has a value."""
        if self.as_json:
            self.json([dict(row)])
            return
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        grid = Table(box=box.SIMPLE_HEAD, show_header=False)
        for name, value in row.items():
            if value not in (None, {}, []):
                grid.add_row(_title(name), Text(text(name, value)))
        Console().print(grid)

    def json(self, rows: Iterable[Any]) -> None:
        """One JSON text in each line."""
        for row in rows:
            click.echo(msgspec.json.encode(row))

    def say(self, message: str) -> None:
        """A line for people; nothing with --json."""
        if not self.as_json:
            click.echo(text("", message))

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Shows how far long work is, from its third second on, on stderr if that is a terminal."""
        if not sys.stderr.isatty():
            yield lambda step, done, total: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        bar = Bar(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
        task = bar.add_task("", total=None)
        later = threading.Timer(_UNTIL_PROGRESS_S, bar.start)
        later.daemon = True
        later.start()
        try:
            yield lambda step, done, total: bar.update(task, description=step, completed=done, total=total)
        finally:
            later.cancel()
            bar.stop()


def text(name: str, value: Any) -> str:
    """A value as readable text; the end of its field's name says its unit."""
    if value is None:
        return ""
    if name.endswith("_ms"):
        return _time(value)
    if name.endswith("_bytes"):
        return _bytes(value)
    if isinstance(value, dict):
        return "\n".join(f"{key}: {text('', inner)}" for key, inner in flat(value))
    if isinstance(value, list):
        return ", ".join(text("", item) for item in value)
    # Anybody may have written the log: its control characters must not reach the terminal.
    shown = str(value)
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in shown)


def flat(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values in nested objects, each with its dotted name."""
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from flat(inner, f"{prefix}{key}.")
        else:
            yield prefix + key, inner


def _title(name: str) -> Text:
    from rich.text import Text

    return Text(name.removesuffix("_ms").removesuffix("_bytes").replace("_", " "))


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
