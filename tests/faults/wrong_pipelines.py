"""Pipelines with a fault of their own, which a kill at the right step shows."""

from __future__ import annotations

from pathlib import Path

from deltaflow.log import DeltaLog
from tests.faults.log_pipelines import append


def twice(folder: str) -> None:
    """Appends without `txn`, and looks only at the end of its work whether it has been done."""
    done = Path(folder, "done")
    for number in range(2):
        if not Path(f"{done}-{number}").exists():
            append(f"{folder}/table", number, {}, marked=False)
            DeltaLog.for_table(f"{folder}/table").checkpoint()
            Path(f"{done}-{number}").touch()


def lost(folder: str) -> None:
    """Says that its work is done before it is."""
    for number in range(2):
        done = Path(folder, f"done-{number}")
        if not done.exists():
            done.touch()
            append(f"{folder}/table", number, {})


def detour(folder: str) -> None:
    """Begins its second half with a table that it empties of the first half for a moment, after a restart."""
    path, begun = f"{folder}/table", Path(folder, "begun")
    append(path, 0, {})
    if begun.exists() and DeltaLog.for_table(path).latest_version() == 0:
        append(path, 7, {}, replaces=True, marked=False)
        append(path, 0, {}, replaces=True, marked=False)
    begun.touch()
    append(path, 1, {})
