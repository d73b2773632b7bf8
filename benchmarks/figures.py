"""Prints what a benchmark has measured, and keeps it for `benchmarks/run`.

Where the environment names a file in DELTAFLOW_FIGURES, each figure is also written there, as a line of JSON.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

FILE = "DELTAFLOW_FIGURES"


@dataclass(frozen=True)
class Figure:
    """A value, or the ratio of two, and what it may be."""

    program: str
    name: str
    value: float
    unit: str
    other: float | None = None
    other_name: str | None = None
    bound: float | None = None
    """Of the ratio, if there is another value; None where nothing is promised."""
    extra: float | None = None
    """What is allowed beyond the other value, in its unit."""
    about: str = ""
    """What several figures of the program are about."""

    @property
    def full_name(self) -> str:
        return f"{self.about}: {self.name}" if self.about else self.name

    @property
    def ratio(self) -> float | None:
        return None if self.other is None else self.value / self.other

    @property
    def limit(self) -> float | None:
        """The greatest value that is allowed."""
        if self.bound is None and self.extra is None:
            return None
        if self.other is None:
            return self.bound
        return self.other * (1.0 if self.bound is None else self.bound) + (self.extra or 0.0)

    @property
    def is_met(self) -> bool:
        return self.limit is None or self.value <= self.limit

    @property
    def promise(self) -> str:
        """The bound in words."""
        if self.limit is None:
            return ""
        parts = [f"{self.bound:g}"] if self.bound is not None else []
        return " ".join([*parts, *([f"+ {self.extra:g} {self.unit}"] if self.extra else [])])

    def __str__(self) -> str:
        text = f"{self.name:<52} {self.value:9.2f} {self.unit:<2}"
        if self.other is not None:
            text += f"  {self.other_name} {self.other:9.2f} {self.unit:<2}  ratio {self.ratio:5.2f}"
        if self.limit is not None:
            text += f"  (bound {self.promise})  {'ok' if self.is_met else 'ABOVE THE BOUND'}"
        return text


def show(figure: Figure) -> None:
    """Prints a figure, and keeps it."""
    print(figure, flush=True)
    if FILE in os.environ:
        with Path(os.environ[FILE]).open("a") as file:
            file.write(json.dumps(asdict(figure)) + "\n")


class Report:
    """Prints figures, and notes whether one exceeds its bound."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._about = ""
        self.failed = False

    def begin(self, about: str) -> None:
        """What the figures that follow are about."""
        print(f"\n{about}")
        self._about = about

    def ratio(
        self, name: str, ours: float, other: float, unit: str, bound: float | None, other_name: str = "other"
    ) -> None:
        self.add(Figure(self._program, name, ours, unit, other, other_name, bound))

    def difference(
        self, name: str, ours: float, other: float, other_name: str, unit: str, extra: float
    ) -> None:
        """A value that may be that much greater than another."""
        self.add(Figure(self._program, name, ours, unit, other, other_name, extra=extra))

    def value(self, name: str, value: float, unit: str, bound: float | None) -> None:
        self.add(Figure(self._program, name, value, unit, bound=bound))

    def add(self, figure: Figure) -> None:
        self.failed |= not figure.is_met
        show(replace(figure, about=self._about))
