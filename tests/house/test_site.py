"""The site of the documentation: every page is in it, and it builds without a warning."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deltaflow.errors
import deltaflow.log
import deltaflow.streaming.cdc
import deltaflow.tables
from deltaflow.errors import DeltaError

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]


def is_error(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, DeltaError)


PUBLIC = {
    "session": {"session", "register"},
    "tables": set(deltaflow.tables.__all__),
    "streaming": {*deltaflow.streaming.__all__, *deltaflow.streaming.cdc.__all__},
    "log": set(deltaflow.log.__all__)
    - {"LOG_DIRECTORY", "Observer", "commit_name", "observe", "set_observer"},
    "errors": {kind.__name__ for kind in vars(deltaflow.errors).values() if is_error(kind)},
}
"""The public names that each page of the reference describes; those that are left out are for our own use."""


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


@pytest.mark.long
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
    for page, names in PUBLIC.items():
        reference = (ROOT / "site" / "api" / page / "index.html").read_text()
        described = set(re.findall(r'<h\d id="[\w.]*\.(\w+)"', reference))
        assert names - described == set(), page
