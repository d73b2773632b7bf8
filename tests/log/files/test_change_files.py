"""The files with the change rows of a commit, as its actions tell them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from deltaflow.errors import CorruptLogError
from deltaflow.log.files.change_files import ChangeFiles, change_files
from deltaflow.log.files.deletion_vectors import read_deletion_vectors
from deltaflow.log.protocol.actions import (
    AddCDCFile,
    AddFile,
    AnyAction,
    CommitInfo,
    DeletionVectorDescriptor,
    RemoveFile,
)
from deltaflow.log.protocol.commit import to_commit
from tests.deletion_vectors import inline

TABLE = "/table"
TIME_MS = 1_700_000_000_123
STATS = '{"numRecords":10}'


def vector(*rows: int) -> DeletionVectorDescriptor | None:
    if not rows:
        return None
    found = inline(rows)
    return DeletionVectorDescriptor(
        storage_type="i",
        path_or_inline_dv=found["pathOrInlineDv"],
        size_in_bytes=found["sizeInBytes"],
        cardinality=len(rows),
    )


def add(path: str, *deleted: int, **fields: Any) -> AddFile:
    given: dict[str, Any] = {"stats": STATS, "data_change": True, "partition_values": {"p": "x"}, **fields}
    return AddFile(path=path, size=7, modification_time=1, deletion_vector=vector(*deleted), **given)


def remove(path: str, *deleted: int, **fields: Any) -> RemoveFile:
    given: dict[str, Any] = {"data_change": True, "partition_values": {"p": "x"}, "size": 7, **fields}
    return RemoveFile(path=path, deletion_vector=vector(*deleted), **given)


def changes(*actions: AnyAction) -> ChangeFiles:
    return change_files(to_commit(3, 0, actions, "3.json"), TIME_MS, TABLE)


def listed(files: pa.Table) -> dict[str, list[int] | None]:
    """The positions that are left out of each file."""
    left_out = [found and list(found.rows) for found in read_deletion_vectors(files, TABLE, 3)]
    return dict(zip(files["path"].to_pylist(), left_out, strict=True))


def test_files_of_cdc_actions_are_all_that_counts() -> None:
    recorded = AddCDCFile(path="_change_data/c", partition_values={"p": "x"}, size=5, data_change=False)
    found = changes(add("a"), remove("b"), recorded)
    assert (found.added.num_rows, found.removed.num_rows) == (0, 0)
    [row] = found.recorded.to_pylist()
    assert (row["path"], row["size"]) == ("_change_data/c", 5)
    values = {"p": "x", "_commit_version": "3", "_commit_timestamp": "2023-11-14T22:13:20.123000Z"}
    assert dict(row["partition_values"]) == values


def test_added_files_are_inserts_and_removed_ones_deletes_of_their_live_rows() -> None:
    found = changes(
        add("new"),
        add("restored", 1, 2),
        remove("old", 5),
        add("compacted", data_change=False),
        remove("small", data_change=False),
    )
    assert listed(found.added) == {"new": None, "restored": [1, 2]}
    assert listed(found.removed) == {"old": [5]}
    assert dict(found.added["partition_values"][0].as_py())["_change_type"] == "insert"
    assert dict(found.removed["partition_values"][0].as_py())["_change_type"] == "delete"


@pytest.mark.parametrize(
    ("before", "after", "deleted", "restored"),
    [
        ([], [1, 2], [1, 2], None),
        ([1, 2], [], None, [1, 2]),
        ([1], [1, 4], [4], None),
        ([1, 2], [2, 3], [3], [1]),
        ([1], [1], None, None),
    ],
)
def test_vectors_of_one_file_give_their_difference(
    before: list[int], after: list[int], deleted: list[int] | None, restored: list[int] | None
) -> None:
    # The two actions may write one path in two ways.
    found = changes(remove("a%20b", *before), add(f"file:{TABLE}/a%20b", *after))
    for files, rows in ((found.removed, deleted), (found.added, restored)):
        expected = None if rows is None else [i for i in range(10) if i not in rows]
        assert list(listed(files).values()) == ([] if rows is None else [expected])


def test_without_a_number_of_rows_a_vector_leaves_out_all_that_may_be_there() -> None:
    found = changes(remove("a"), add("a", 3, stats=None))
    [kept] = [one for one in read_deletion_vectors(found.removed, TABLE, 3) if one is not None]
    assert 3 not in kept.rows
    assert len(kept.rows) == (1 << 32) - 1


@pytest.mark.parametrize("without", ["{}", "", None])
def test_either_action_may_have_the_number_of_rows(without: str | None) -> None:
    for old, new in ((STATS, without), (without, STATS)):
        found = changes(remove("a", 1, stats=old), add("a", 3, stats=new))
        assert listed(found.removed) == {"a": [i for i in range(10) if i != 3]}
        assert listed(found.added) == {"a": [i for i in range(10) if i != 1]}


def test_a_merge_that_changed_nothing_has_no_change_rows() -> None:
    metrics = dict.fromkeys(("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"), "0")
    info = CommitInfo(operation="MERGE", operation_metrics=metrics)
    found = changes(info, add("a"), remove("b"))
    assert found.added.num_rows + found.removed.num_rows == 0
    metrics["numTargetRowsDeleted"] = "1"
    assert changes(info, add("a"), remove("b")).removed.num_rows == 1


@pytest.mark.parametrize("missing", ["partition_values", "size"])
def test_a_removed_file_without_its_metadata_is_refused(missing: str) -> None:
    with pytest.raises(CorruptLogError, match="DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA"):
        changes(remove("b", **{missing: None}))
