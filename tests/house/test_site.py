"""The site of the documentation: every page is in it, and it builds without a warning."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]


def listed(entries: Any) -> Iterator[str]:
    """The pages of a navigation, by their paths in docs/."""
    for entry in entries if isinstance(entries, list) else entries.values():
        if isinstance(entry, str):
            yield entry
        else:
            yield from listed(entry)


def test_every_page_is_listed() -> None:
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert set(listed(PROJECT["nav"])) == pages


def test_the_site_builds_without_a_warning() -> None:
    pytest.importorskip("zensical", reason="the extra docs is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    reference = (ROOT / "site" / "api" / "session" / "index.html").read_text()
    assert "A SparkSession that knows the format" in reference
