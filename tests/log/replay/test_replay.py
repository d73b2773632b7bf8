from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from deltaflow.log import Snapshot
from deltaflow.log.files.file_state import FileState
from tests.log.checkpoints import CHECKPOINT_LAYOUTS, write_checkpoint, write_compaction, write_hint
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol, remove

FILES = st.sampled_from(["a", "b", "c", "d", "p=%2520/e", "ü", "file:/elsewhere/f"])
VECTORS = st.sampled_from(
    [{}, {}, {"deletionVector": {"storageType": "u", "pathOrInlineDv": "v", "offset": 1}}]
)
NAMES = st.sampled_from(["x", "y"])


def vector(fields: dict[str, Any]) -> dict[str, Any]:
    """Complete the deletion vector of a file action's fields."""
    return {name: value | {"sizeInBytes": 1, "cardinality": 1} for name, value in fields.items()}


ACTIONS = st.lists(
    st.one_of(
        st.builds(
            lambda path, size, dv: add(path, size=size, **vector(dv)), FILES, st.integers(0, 9), VECTORS
        ),
        st.builds(
            lambda path, time, dv: remove(path, deletionTimestamp=time, **vector(dv)),
            FILES,
            st.integers(1, 9),
            VECTORS,
        ),
        st.builds(lambda app, version: {"txn": {"appId": app, "version": version}}, NAMES, st.integers(0, 9)),
        st.builds(
            lambda name, value, removed: {
                "domainMetadata": {"domain": name, "configuration": str(value), "removed": removed}
            },
            NAMES,
            st.integers(0, 9),
            st.booleans(),
        ),
    ),
    max_size=6,
    unique_by=lambda action: str(
        {**action.get("add", {}), **action.get("remove", {})}.get("path", id(action))
    ),
)
HISTORIES = st.lists(ACTIONS, min_size=1, max_size=8)


def naive_replay(history: list[list[dict[str, Any]]]) -> dict[Any, dict[str, Any]]:
    """The newest action of each thing that actions are about."""
    state: dict[Any, dict[str, Any]] = {}
    for action in (action for commit in history for action in commit):
        ((action_name, fields),) = action.items()
        name = fields.get("path") or fields.get("appId") or fields.get("domain")
        thing = "file" if action_name in ("add", "remove") else action_name
        state[thing, name, "deletionVector" in fields] = action
    return {
        key: action for key, action in state.items() if not action.get("domainMetadata", {}).get("removed")
    }


def check(snapshot: Snapshot, history: list[list[dict[str, Any]]]) -> None:
    state = list(naive_replay(history).values())
    files = zip(
        *(snapshot.files[name].to_pylist() for name in ("path", "size", "deletion_vector")), strict=True
    )
    assert sorted((path, size, vector is not None) for path, size, vector in files) == sorted(
        (fields["path"], fields["size"], "deletionVector" in fields) for fields in of_action(state, "add")
    )
    columns = ("path", "deletion_timestamp", "deletion_vector")
    tombstones = zip(*(snapshot.tombstones[name].to_pylist() for name in columns), strict=True)
    assert sorted((path, time, vector is not None) for path, time, vector in tombstones) == sorted(
        (fields["path"], fields["deletionTimestamp"], "deletionVector" in fields)
        for fields in of_action(state, "remove")
    )
    assert {(txn.app_id, txn.version) for txn in snapshot.transactions.values()} == {
        (fields["appId"], fields["version"]) for fields in of_action(state, "txn")
    }
    assert {(domain.domain, domain.configuration) for domain in snapshot.domains.values()} == {
        (fields["domain"], fields["configuration"]) for fields in of_action(state, "domainMetadata")
    }


def of_action(actions: list[dict[str, Any]], name: str) -> Iterator[dict[str, Any]]:
    return (action[name] for action in actions if name in action)


# Deletion vectors are no business of this test but as a part of a file's identity.
READABLE = protocol(1, 7, writerFeatures=["domainMetadata"])


@settings(max_examples=40, deadline=None)
@given(history=HISTORIES, looked_at=st.sets(st.integers(0, 7)))
def test_a_snapshot_equals_a_naive_replay(history: list[list[dict[str, Any]]], looked_at: set[int]) -> None:
    """However often the log is followed on the way, and whenever its files are asked for."""
    with tempfile.TemporaryDirectory() as directory:
        table = HandWrittenTable(Path(directory) / "t")
        table.commit(0, READABLE, meta_data())
        log = table.log()
        for version, actions in enumerate(history, start=1):
            table.commit(version, *actions)
            if version in looked_at:
                snapshot = log.snapshot()
                if version % 2:
                    check(snapshot, history[:version])
        for snapshot in (log.snapshot(), table.log().snapshot()):
            check(snapshot, history)


@settings(max_examples=40, deadline=None)
@given(
    history=HISTORIES,
    checkpoints=st.dictionaries(st.integers(1, 8), st.sampled_from(CHECKPOINT_LAYOUTS), max_size=3),
    compaction=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    hint=st.one_of(st.none(), st.integers(0, 12)),
    looked_at=st.integers(0, 8),
    is_cleaned=st.booleans(),
)
def test_a_snapshot_through_checkpoints_equals_a_naive_replay(
    history: list[list[dict[str, Any]]],
    checkpoints: dict[int, str],
    compaction: tuple[int, int],
    hint: int | None,
    looked_at: int,
    is_cleaned: bool,
) -> None:
    """Of any layout, at any versions, with log compactions and a right or wrong hint, at every version."""
    with tempfile.TemporaryDirectory() as directory:
        table = HandWrittenTable(Path(directory) / "t")
        table.commit(0, READABLE, meta_data())
        log = table.log()
        for version, actions in enumerate(history, start=1):
            table.commit(version, *actions)
            if version in checkpoints:
                state = [READABLE, meta_data(), *naive_replay(history[:version]).values()]
                write_checkpoint(table, version, state, checkpoints[version])
            if version == looked_at:
                check(log.snapshot(), history[:version])
        first, last = compaction
        if first < last <= len(history):
            write_compaction(
                table, first, last, list(naive_replay_keeping_removed(history[first - 1 : last]))
            )
        if hint is not None:
            write_hint(table, hint)
        written = [version for version in checkpoints if version <= len(history)]
        earliest = 0
        if is_cleaned and written:
            earliest = max(written)
            for version in range(earliest):
                (table.log_directory / f"{version:020}.json").unlink()
        check(log.snapshot(), history)
        fresh = table.log()
        check(fresh.snapshot(), history)
        for version in range(max(earliest, 1), len(history) + 1):
            check(fresh.snapshot_at(version), history[:version])


def naive_replay_keeping_removed(history: list[list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """As `naive_replay`, with the removal of domains, which a log compaction must tell."""
    newest: dict[str, dict[str, Any]] = {}
    for commit in history:
        newest.update(
            (action["domainMetadata"]["domain"], action) for action in commit if "domainMetadata" in action
        )
    yield from (action for action in naive_replay(history).values() if "domainMetadata" not in action)
    yield from newest.values()


def test_a_long_tail_is_folded_without_being_asked(table: HandWrittenTable) -> None:
    table.first_commit()
    log = table.log()
    for version in range(1, 4):
        table.commit(version, *(add(f"{version}-{number}") for number in range(3_000)))
        log.snapshot()
    snapshot = log.snapshot()
    state = snapshot._state.file_state
    assert isinstance(state, FileState)
    assert sum(batch.num_rows for batch in state._parts.files) >= 6_000
    assert snapshot.num_files == 9_000


def test_folds_leave_few_batches_and_touch_none_that_does_not_change(table: HandWrittenTable) -> None:
    table.first_commit(*(add(f"old{number}") for number in range(20_000)))
    log = table.log()
    before = log.snapshot().files
    for version in range(1, 40):
        table.commit(version, add(f"new{version}"), remove(f"new{version - 1}"))
        assert log.snapshot().num_files == 20_001
    after = log.snapshot()._state.file_state._parts.files
    assert len(after) <= 4
    buffers = {column.chunk(0).buffers()[-1].address for column in [before["path"]]}
    assert buffers & {batch.column("path").buffers()[-1].address for batch in after}
