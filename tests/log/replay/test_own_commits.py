"""A writer whose commit another one replaced notices it when it looks at the log again."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from deltaflow.errors import CommitReplacedError
from deltaflow.log import DeltaLog, commit_name
from deltaflow.store import LocalLogStore
from tests.log.hand_written import add, append, create, paths

RIVAL = {"commitInfo": {"operation": "MERGE", "engineInfo": "Apache-Spark/3.5", "txnId": "of-the-rival"}}


def replace(log: DeltaLog, version: int, *actions: dict[str, object]) -> None:
    """Puts a commit under the name of one that is there, as a rename may do."""
    file = Path(log.path, "_delta_log", commit_name(version))
    lines = "".join(json.dumps(action) + "\n" for action in (RIVAL, *actions))
    file.with_name("rival").write_text(lines)
    os.replace(file.with_name("rival"), file)


def own_transaction(log: DeltaLog, version: int) -> str:
    (commit,) = DeltaLog(LocalLogStore(), log.path).commits(version, version)
    assert commit.commit_info is not None
    assert commit.commit_info.txn_id is not None
    return commit.commit_info.txn_id


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """A table of three commits of this process."""
    log = DeltaLog(LocalLogStore(), str(tmp_path / "table"))
    create(log, "0")
    append(log, "1")
    append(log, "2")
    return log


@pytest.mark.parametrize("was_seen", [False, True])
@pytest.mark.parametrize("goes_on", [False, True])
def test_the_error_names_both_commits_once(log: DeltaLog, *, was_seen: bool, goes_on: bool) -> None:
    if was_seen:
        log.snapshot()
    own = own_transaction(log, 2)
    replace(log, 2, add("rival"))
    if goes_on:
        append(DeltaLog(LocalLogStore(), log.path), "3")
    with pytest.raises(CommitReplacedError) as raised:
        log.start_transaction()
    for part in (log.path, "version 2", "WRITE", own, "MERGE", "Apache-Spark/3.5", "of-the-rival"):
        assert part in str(raised.value)
    assert raised.value.version == 2
    append(log, "2")
    assert paths(log) == ["0", "1", "2", *(["3"] if goes_on else []), "rival"]


def test_a_reader_of_other_processes_is_told_nothing(log: DeltaLog) -> None:
    replace(log, 2, add("rival"))
    assert paths(DeltaLog(LocalLogStore(), log.path)) == ["0", "1", "rival"]


def test_a_table_that_was_made_anew_is_no_replaced_commit(log: DeltaLog) -> None:
    log.snapshot()
    shutil.rmtree(log.path)
    other = DeltaLog(LocalLogStore(), log.path)
    create(other, "a", id="table-2")
    for name in "bcd":
        append(other, name)
    assert paths(log) == ["a", "b", "c", "d"]
    append(log, "e")
    assert paths(log) == ["a", "b", "c", "d", "e"]


class ReadingTogether(LocalLogStore):
    """A store of which the log does not read back what it has just put."""

    files_read_together = 64


@pytest.mark.parametrize("was_seen", [False, True])
def test_a_table_that_was_made_anew_by_the_same_statements_is_read(tmp_path: Path, *, was_seen: bool) -> None:
    log = DeltaLog(ReadingTogether(), str(tmp_path / "table"))
    create(log, "0", id="table-1")
    append(log, "1")
    if was_seen:
        log.snapshot()
    directory = tmp_path / "table/_delta_log"
    sizes = [(directory / commit_name(version)).stat().st_size for version in (0, 1)]
    shutil.rmtree(log.path)
    another = DeltaLog(LocalLogStore(), log.path)
    create(another, "a", id="table-2")
    append(another, "b")
    assert [(directory / commit_name(version)).stat().st_size for version in (0, 1)] == sizes
    (commit,) = log.commits(1, 1)
    assert [file.path for file in commit.adds] == ["b"]
    assert paths(log) == ["a", "b"]
    assert log.snapshot().metadata.id == "table-2"
    assert paths(DeltaLog(log._files.store, log.path)) == ["a", "b"]


def test_the_own_commit_is_not_read_back(tmp_path: Path) -> None:
    read: list[str] = []

    class Counting(ReadingTogether):
        def read(self, path: str) -> bytes:
            read.append(path)
            return super().read(path)

    log = DeltaLog(Counting(), str(tmp_path / "table"))
    create(log, "0")
    append(log, "1")
    assert paths(log) == ["0", "1"]
    append(log, "2")
    assert paths(log) == ["0", "1", "2"]
    # But for the first one: no version before it says that the log is the same.
    assert [os.path.basename(path) for path in read if path.endswith(".json")] == [commit_name(0)]


def test_nothing_is_read_for_it(log: DeltaLog) -> None:
    """Its own commits are compared as the log is followed, each read once."""
    read: list[str] = []

    class Counting(LocalLogStore):
        def read(self, path: str) -> bytes:
            read.append(os.path.basename(path))
            return super().read(path)

    counting = DeltaLog(Counting(), log.path)
    for name in "345":
        append(counting, name)
        counting.snapshot()
    assert [name for name in read if name.endswith(".json")] == [commit_name(version) for version in range(6)]
