from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from deltaflow.log.file_state import FileState
from tests.log.tables import HandWrittenTable, add, remove

FILES = st.sampled_from(["a", "b", "c", "d", "p=%2520/e", "ü"])
ACTIONS = st.lists(
    st.one_of(
        st.builds(lambda path, size: add(path, size=size), FILES, st.integers(0, 9)),
        st.builds(remove, FILES),
        st.builds(
            lambda app, version: {"txn": {"appId": app, "version": version}},
            st.sampled_from(["x", "y"]),
            st.integers(0, 9),
        ),
    ),
    max_size=6,
)


def naive_replay(history: list[list[dict[str, Any]]]) -> tuple[dict[str, int], dict[str, int]]:
    files: dict[str, int] = {}
    transactions: dict[str, int] = {}
    for action in (action for commit in history for action in commit):
        match action:
            case {"add": {"path": path, "size": size}}:
                files[path] = size
            case {"remove": {"path": path}}:
                files.pop(path, None)
            case {"txn": {"appId": app, "version": version}}:
                transactions[app] = version
    return files, transactions


@settings(max_examples=60, deadline=None)
@given(
    history=st.lists(ACTIONS, min_size=1, max_size=8),
    looked_at=st.sets(st.integers(0, 7)),
)
def test_a_snapshot_equals_a_naive_replay(history: list[list[dict[str, Any]]], looked_at: set[int]) -> None:
    """However often the log is followed on the way, and whenever its files are asked for."""
    with tempfile.TemporaryDirectory() as directory:
        table = HandWrittenTable(Path(directory) / "t")
        table.first_commit()
        log = table.log()
        for version, actions in enumerate(history, start=1):
            table.commit(version, *actions)
            if version in looked_at:
                snapshot = log.snapshot()
                if version % 2:
                    assert snapshot.num_files == len(naive_replay(history[:version])[0])
        for snapshot in (log.snapshot(), table.log().snapshot()):
            files, transactions = naive_replay(history)
            rows = zip(snapshot.files["path"].to_pylist(), snapshot.files["size"].to_pylist(), strict=True)
            assert sorted(rows) == sorted(files.items())
            assert {app: txn.version for app, txn in snapshot.transactions.items()} == transactions


def test_a_long_tail_is_folded_without_being_asked(table: HandWrittenTable) -> None:
    table.first_commit()
    log = table.log()
    for version in range(1, 4):
        table.commit(version, *(add(f"{version}-{number}") for number in range(3_000)))
        log.snapshot()
    snapshot = log.snapshot()
    assert isinstance(snapshot._state.file_state, FileState)
    assert sum(batch.num_rows for batch in snapshot._state.file_state._parts.files) >= 6_000
    assert snapshot.num_files == 9_000
