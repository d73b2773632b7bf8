"""Deletes the files of a vacuum plan, in parallel rounds, with a progress bar on a terminal."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
from rich.console import Console
from rich.progress import Progress

from deltaflow.errors import StoreError
from deltaflow.log import DeltaLog
from deltaflow.log.maintenance.vacuum_plan import VacuumPlan, files_outside, files_within
from deltaflow.store import DataDirectory

_THREADS = 8
_FILES_OF_A_TASK = 250
_FILES_OF_A_ROUND = _THREADS * _FILES_OF_A_TASK
_KEPT_FAILURES = 100


@dataclass(slots=True)
class Deletion:
    """The progress of a deletion."""

    number: int = 0
    """The number of deleted files and directories."""
    num_failures: int = 0
    failures: list[StoreError] = field(default_factory=list)
    """The first failures."""
    is_complete: bool = False
    """Whether everything has been tried."""
    lost: list[str] = field(default_factory=list)
    """Files that were deleted, and that a commit has brought back in the same moment."""

    def failed(self, failures: list[StoreError]) -> None:
        """Counts failures, and keeps the first ones."""
        self.num_failures += len(failures)
        self.failures += failures[: _KEPT_FAILURES - len(self.failures)]


def delete_planned(log: DeltaLog, plan: VacuumPlan, deletion: Deletion) -> None:
    """Deletes the files of a plan, and the directories that are empty then. Records its progress in
    `deletion`.

    A file that cannot be deleted is recorded as a failure, and the deletion goes on. The log is read before
    every round: a file that a commit has added since the plan was made stays. It is read at the end, too: a
    commit may have added files of a round while they were deleted.
    """
    console = Console(stderr=True)
    emptied: set[str] = set()
    deleted: list[pa.Table] = []
    newest, added = plan.version, [pa.array([], pa.string())]
    with (
        ThreadPoolExecutor(_THREADS, "deltaflow-vacuum") as pool,
        Progress(console=console, disable=not console.is_terminal, transient=True) as progress,
    ):
        bar = progress.add_task("Deleting", total=plan.files.num_rows)
        for files in _rounds(plan.files):
            newest, paths = log.paths_added_since(newest)
            added += plan.places.of_each(paths)
            deleted.append(files_outside(files, added))
            doomed = deleted[-1]["path"].to_pylist()
            tasks = [_by_directory(names) for names in _slices(doomed, _FILES_OF_A_TASK)]
            for number, failures in pool.map(lambda task: _delete_files(plan.directory, task), tasks):
                deletion.number += number
                deletion.failed(failures)
            emptied.update(posixpath.dirname(path) for path in doomed)
            progress.advance(bar, files.num_rows)
    _delete_directories(plan.directory, {*emptied, *plan.empty_directories}, deletion)
    if deleted:
        added += plan.places.of_each(log.paths_added_since(newest)[1])
        deletion.lost = files_within(pa.concat_tables(deleted), added)["path"].to_pylist()
    deletion.is_complete = True


def _rounds(files: pa.Table) -> Iterator[pa.Table]:
    """The files in slices, one for each round."""
    for start in range(0, files.num_rows, _FILES_OF_A_ROUND):
        yield files.slice(start, _FILES_OF_A_ROUND)


def _slices(paths: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(paths), size):
        yield paths[start : start + size]


def _by_directory(paths: Iterable[str]) -> dict[str, list[str]]:
    names: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        directory, name = posixpath.split(path)
        names[directory].append(name)
    return names


def _delete_files(root: DataDirectory, task: dict[str, list[str]]) -> tuple[int, list[StoreError]]:
    deleted, failures = 0, []
    for directory, names in task.items():
        number, failed = root.delete(directory, names)
        deleted += number
        failures += failed
    return deleted, failures


def _delete_directories(root: DataDirectory, directories: set[str], deletion: Deletion) -> None:
    """Deletes the empty ones of the directories, and the directories above them that become empty."""
    # The inner ones first. The table's own, "", is not one of them.
    todo = sorted((directory for directory in directories if directory), reverse=True)
    for directory in todo:
        while directory:
            try:
                if not root.delete_if_empty(directory):
                    break
            except StoreError as failure:
                deletion.failed([failure])
                break
            deletion.number += 1
            directory = posixpath.dirname(directory)
