"""How numbers and reports are shown to people."""

from __future__ import annotations

from io import StringIO

from rich.console import Console, ConsoleRenderable, RichCast

_WIDTH = 120
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def text_of(report: ConsoleRenderable | RichCast) -> str:
    """A report as plain text."""
    written = StringIO()
    Console(
        file=written,
        width=_WIDTH,
        # In a notebook, and where the environment asks for colors, a console would show more than text.
        force_jupyter=False,
        force_terminal=False,
        color_system=None,
        highlight=False,
        markup=False,
        emoji=False,
    ).print(report)
    return written.getvalue().rstrip()


def amount(number: int | None) -> str:
    """A number, or "?"."""
    return "?" if number is None else f"{number:,}"


def size(number: int | None) -> str:
    """A number of bytes with a unit, or "?"."""
    if number is None:
        return "?"
    value, units = float(number), ["B", "kB", "MB", "GB", "TB", "PB"]
    while value >= 1_000 and len(units) > 1:
        value /= 1_000
        del units[0]
    return f"{number} B" if units[0] == "B" else f"{value:.3g} {units[0]}"


def duration(seconds: float) -> str:
    """A time in its two largest units."""
    left = int(seconds)
    parts = []
    for length, unit in _UNITS:
        if left >= length:
            parts.append(f"{left // length} {unit}")
            left %= length
    return " ".join(parts[:2]) or "0 s"
