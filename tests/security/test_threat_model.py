"""Every line of SECURITY.md that says what cannot happen names tests, and they are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line.startswith("| ")]


def test_every_line_has_a_test_that_is_there() -> None:
    lines = [line for line in LINES if not line.startswith(("| what ", "| ---"))]
    assert len(lines) > 15
    for line in lines:
        tests = re.findall(r"\[`(\w+)`\]\(([\w/.]+)\)", line)
        assert tests, line
        for name, file in tests:
            assert f"def {name}(" in (ROOT / file).read_text(), f"{file} has no {name}"
