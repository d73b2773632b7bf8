"""A picture of a query's progress: how far behind, rows per second, batch time, files to read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator, MultipleLocator

from deltaflow.streaming.operating.progress import Progress
from deltaflow.streaming.operating.progress_listener import QueryHistory
from deltaflow.streaming.operating.text import duration

_BLUE, _ORANGE, _GREEN, _GREY, _PURPLE = "#2a6fbb", "#e07b39", "#3a9b6f", "#9aa0a6", "#8e6bbf"
_INK, _LINES = "#30343b", "#e3e6ea"
_SECONDS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 172_800)
"""Steps of an axis of times."""
_MOST_TICKS = 6
_PHASES = {
    "plan": (_BLUE, ("latestOffset", "getOffset", "getBatch", "queryPlanning")),
    "write": (_ORANGE, ("addBatch",)),
    "commit": (_GREEN, ("walCommit", "commitBatch", "commitOffsets")),
}


class ProgressPlot:
    """A figure of matplotlib, which a notebook shows as a picture."""

    def __init__(self, query: QueryHistory) -> None:
        self.figure = _draw(query)
        """The figure, to be changed or shown by other means."""

    def save(self, path: str, dpi: int = 120) -> None:
        """Writes the picture to a local file, in the format of its suffix: png, svg, pdf, …"""
        self.figure.savefig(path, dpi=dpi)

    def _repr_png_(self) -> bytes:
        content = BytesIO()
        self.figure.savefig(content, format="png", dpi=100)
        return content.getvalue()


def _draw(query: QueryHistory) -> Figure:
    progresses = list(query.progresses)
    figure = Figure(figsize=(11, 6.6), facecolor="white")
    figure.text(0.02, 0.955, _title(query, progresses), color=_INK, fontsize=13)
    places = {"left": 0.075, "right": 0.945, "top": 0.87, "bottom": 0.075, "wspace": 0.3, "hspace": 0.32}
    panels = figure.subplots(2, 2, sharex=True, gridspec_kw=places)
    times = [datetime.fromtimestamp(progress.timestamp_ms / 1_000, UTC) for progress in progresses]
    if progresses:
        # The last figures hold until the end of the last batch, so that a single batch can be seen, too.
        times.append(times[-1] + timedelta(seconds=progresses[-1].seconds))
        progresses.append(progresses[-1])
    titles = ("Unread versions", "Rows per second", "Time of a batch", "Waiting to be read")
    for panel, title, draw in zip(panels.flat, titles, (_behind, _rates, _batch_time, _files), strict=True):
        draw(panel, times, progresses)
        _style(panel, title)
    return figure


def _title(query: QueryHistory, progresses: Sequence[Progress]) -> str:
    if not progresses:
        return f"{query.label}: no batch has ended yet"
    state = "running" if query.running else "failed" if query.error else "stopped"
    first, last = progresses[0].batch_id, progresses[-1].batch_id
    batches = f"batch {last}" if first == last else f"batches {first} to {last}"
    return f"{query.label} ({state}): {batches}, {query.input_rows:,} rows read"


def _behind(panel: Any, times: list[datetime], progresses: Sequence[Progress]) -> None:
    seconds = _numbers(progresses, lambda progress: progress.most("seconds_behind"))
    versions = _numbers(progresses, lambda progress: progress.most("versions_behind"))
    panel.plot(times, seconds, color=_BLUE, label="age of the oldest")
    panel.fill_between(times, seconds, color=_BLUE, alpha=0.12, linewidth=0)
    most = max([number for number in seconds if number == number], default=0)
    step = next((step for step in _SECONDS if most / step <= _MOST_TICKS), None)
    panel.yaxis.set_major_locator(MaxNLocator(_MOST_TICKS) if step is None else MultipleLocator(step))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    _second(panel, times, versions, "versions", _GREY)


def _rates(panel: Any, times: list[datetime], progresses: Sequence[Progress]) -> None:
    for label, color, name in (
        ("arriving", _GREY, "input_rows_per_second"),
        ("processed", _ORANGE, "processed_rows_per_second"),
    ):
        panel.plot(times, [getattr(progress, name) for progress in progresses], color=color, label=label)
    panel.yaxis.set_major_formatter(EngFormatter(sep=""))


def _batch_time(panel: Any, times: list[datetime], progresses: Sequence[Progress]) -> None:
    layers = {
        label: [sum(progress.phases.get(name, 0.0) for name in names) for progress in progresses]
        for label, (_, names) in _PHASES.items()
    }
    known = [sum(layer[i] for layer in layers.values()) for i in range(len(progresses))]
    layers["other"] = [max(0.0, p.seconds - part) for p, part in zip(progresses, known, strict=True)]
    colors = [color for color, _ in _PHASES.values()] + [_GREY]
    panel.stackplot(
        times, *layers.values(), labels=list(layers), colors=colors, alpha=0.85, linewidth=0, step="post"
    )
    panel.yaxis.set_major_formatter(EngFormatter(unit="s"))


def _files(panel: Any, times: list[datetime], progresses: Sequence[Progress]) -> None:
    files = _numbers(progresses, lambda progress: progress.total("files_outstanding"))
    size = _numbers(progresses, lambda progress: progress.total("bytes_outstanding"))
    panel.plot(times, files, color=_PURPLE, label="files")
    panel.fill_between(times, files, color=_PURPLE, alpha=0.12, linewidth=0)
    panel.yaxis.set_major_locator(MaxNLocator(integer=True))
    _second(panel, times, size, "bytes", _GREY).yaxis.set_major_formatter(EngFormatter(unit="B"))


def _second(panel: Any, times: list[datetime], numbers: list[float], label: str, color: str) -> Any:
    """Draws numbers against an axis of their own on the right."""
    right = panel.twinx()
    right.plot(times, numbers, color=color, linestyle="--", linewidth=1.2)
    panel.plot([], [], color=color, linestyle="--", linewidth=1.2, label=f"{label} (right)")
    right.yaxis.set_major_locator(MaxNLocator(integer=True))
    _from_zero(right)
    right.tick_params(colors=color, labelsize=9, length=0)
    right.spines[:].set_visible(False)
    return right


def _from_zero(panel: Any) -> None:
    """An axis from 0 on, which has a height also where all is 0."""
    panel.set_ylim(0, panel.get_ylim()[1] if panel.dataLim.y1 > 0 else 1)


def _style(panel: Any, title: str) -> None:
    panel.set_title(title, loc="left", color=_INK, fontsize=10.5, fontweight="bold", pad=8)
    _from_zero(panel)
    panel.margins(x=0.01)
    panel.grid(axis="y", color=_LINES)
    panel.set_axisbelow(True)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.spines["bottom"].set_color(_LINES)
    panel.tick_params(colors=_INK, labelsize=9, length=0)
    panel.tick_params(axis="x", pad=7)
    locator = AutoDateLocator()
    panel.xaxis.set_major_locator(locator)
    panel.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))
    panel.legend(
        loc="lower right",
        bbox_to_anchor=(1.01, 0.99),
        ncols=4,
        fontsize=8.5,
        frameon=False,
        labelcolor=_INK,
        handlelength=1.3,
        columnspacing=1.0,
        handletextpad=0.5,
    )


def _numbers(progresses: Sequence[Progress], number: Callable[[Progress], int | None]) -> list[float]:
    """A number of each progress; where it is not known the line has a gap."""
    return [math.nan if (found := number(progress)) is None else float(found) for progress in progresses]
