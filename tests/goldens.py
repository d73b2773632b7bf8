"""Real tables of other writers, with the rows that a reader must find in them.

They are not part of the repository: the folder is $DELTAFLOW_GOLDENS, by default shared/goldens beside it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deltaflow.log.protocol.schema import READS_SHREDDED_VARIANTS

GOLDENS = Path(
    os.environ.get("DELTAFLOW_GOLDENS", Path(__file__).parents[1].parent / "shared" / "goldens")
).resolve()
MANIFEST = GOLDENS / "manifest.json"
FEATURES = "features"
"""The folder, in that of the others, of the tables of newer features; it has a manifest of its own."""
SUPPORTED = frozenset(
    (
        "columnMapping",
        "deletionVectors",
        "typeWidening",
        "typeWidening-preview",
        "variantType",
        "variantType-preview",
        *(("variantShredding", "variantShredding-preview") if READS_SHREDDED_VARIANTS else ()),
    )
)
"""What the manifests call unsupported, and deltaflow reads."""


def missing_features(entry: dict[str, Any]) -> set[str]:
    """The features for which a reader may refuse an unsupported table, named as in its error."""
    kind, _, names = entry["expect"].partition(":")
    return (
        set(names.replace("minReaderVersion=", "reader version ").split(","))
        if kind == "unsupported"
        else {kind}
    )


def _entries() -> Iterator[dict[str, Any]]:
    for folder in (GOLDENS, GOLDENS / FEATURES):
        manifest = folder / MANIFEST.name
        for entry in json.loads(manifest.read_text()) if manifest.is_file() else ():
            if missing_features(entry) <= SUPPORTED:
                # The rows of variants are texts there (tests/batch/test_variants.py).
                is_compared = entry["rows_when_supported"] and "variant_columns" not in entry
                entry["expected"] = entry["rows_when_supported"] if is_compared else None
                entry["expect"] = "rows" if entry["expected"] else "opens"
            for key in ("path", "expected", "rows_when_supported"):
                if entry[key] is not None:
                    entry[key] = str((folder / entry[key]).relative_to(GOLDENS))
            entry["versions"] = {
                int(version): str((folder / file).relative_to(GOLDENS))
                for version, file in entry["versions"].items()
            }
            yield entry


ENTRIES = list(_entries())
needed = pytest.mark.skipif(not ENTRIES, reason=f"{MANIFEST} is not there: set DELTAFLOW_GOLDENS")


def entries(*kinds: str) -> list[Any]:
    chosen = [entry for entry in ENTRIES if entry["expect"].partition(":")[0] in kinds]
    return [pytest.param(entry, id=entry["name"]) for entry in chosen]


def opened(entry: dict[str, Any], folder: Path) -> str:
    """The path of a table: where it is, or a copy in `folder`, if its log has absolute paths."""
    fill = entry.get("fill")
    if fill is None:
        return str(GOLDENS / entry["path"])
    for table in (GOLDENS / FEATURES / "tables").glob(f"{entry['name']}*"):
        shutil.copytree(table, folder / "tables" / table.name)
    for file in fill["files"]:
        copy = folder / file
        copy.write_text(copy.read_text().replace(fill["mark"], str(folder)))
    return str(folder / Path(entry["path"]).relative_to(FEATURES))


def text(value: Any) -> str:
    """The same for equal values; maps (lists of pairs) in any order."""
    if isinstance(value, dict):
        return str({name: text(item) for name, item in sorted(value.items())})
    if isinstance(value, list) and value and all(isinstance(item, tuple) for item in value):
        return str(sorted(map(text, value)))
    if isinstance(value, list | tuple):
        return str([text(item) for item in value])
    return repr(value)
