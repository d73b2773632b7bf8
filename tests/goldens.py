"""Real tables of other writers, with the rows that a reader must find in them.

They are not part of the repository: the folder is $DELTAFLOW_GOLDENS, by default shared/goldens beside it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

GOLDENS = Path(
    os.environ.get("DELTAFLOW_GOLDENS", Path(__file__).parents[1].parent / "shared" / "goldens")
).resolve()
MANIFEST = GOLDENS / "manifest.json"
ENTRIES: list[dict[str, Any]] = json.loads(MANIFEST.read_text()) if MANIFEST.is_file() else []
needed = pytest.mark.skipif(not ENTRIES, reason=f"{MANIFEST} is not there: set DELTAFLOW_GOLDENS")


def entries(*kinds: str) -> list[Any]:
    chosen = [entry for entry in ENTRIES if entry["expect"].partition(":")[0] in kinds]
    return [pytest.param(entry, id=entry["name"]) for entry in chosen]


def text(value: Any) -> str:
    """The same for equal values; maps (lists of pairs) in any order."""
    if isinstance(value, dict):
        return str({name: text(item) for name, item in sorted(value.items())})
    if isinstance(value, list) and value and all(isinstance(item, tuple) for item in value):
        return str(sorted(map(text, value)))
    if isinstance(value, list | tuple):
        return str([text(item) for item in value])
    return repr(value)
