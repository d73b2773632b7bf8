"""Intervals as table properties give them (Spark's calendar intervals: "interval 1 week", "36 hours")."""

from __future__ import annotations

import re

_MICROSECONDS_PER_UNIT = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
_LONGEST = 2**63 - 1
"""In microseconds, which delta-spark counts in a long."""
_TERM = re.compile(
    r"(?P<sign>[+-]?)\s*(?P<number>\d+)(?:\.(?P<fraction>\d{0,9}))?\s+"
    r"(?P<unit>" + "|".join(_MICROSECONDS_PER_UNIT) + r")s?(?=\s|$)\s*",
    re.ASCII,
)


def interval_ms(text: str) -> int:
    """The milliseconds of an interval, rounded down; ValueError for another text, a negative interval or
    one of more than 292,000 years.

    Months and years are refused, since they have no fixed length. Only seconds have fractions.
    """
    rest = text.strip().lower()
    rest = rest.removeprefix("interval").lstrip() if rest.startswith("interval ") else rest
    if not rest:
        raise ValueError("the interval is empty")
    total = 0
    while rest:
        term = _TERM.match(rest)
        if term is None or (term["fraction"] is not None and term["unit"] != "second"):
            raise ValueError(f"{rest!r} is no number and unit")
        microseconds = int(term["number"]) * _MICROSECONDS_PER_UNIT[term["unit"]]
        microseconds += int((term["fraction"] or "").ljust(6, "0")[:6])
        total += -microseconds if term["sign"] == "-" else microseconds
        rest = rest[term.end() :]
    if not 0 <= total <= _LONGEST:
        raise ValueError("the interval is negative or too long")
    return total // 1_000
