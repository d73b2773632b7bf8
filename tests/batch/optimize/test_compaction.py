"""Which files are chosen to be rewritten together, on generated lists of files; without Spark."""

from __future__ import annotations

import math
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from deltaflow.batch.optimize.compaction import bins_after_commit, bins_of_table, files_to_compact
from deltaflow.log import FILES_SCHEMA
from deltaflow.log.files.file_statistics import FileStatistics

MIN_NUM_FILES = 50
TARGET = 1_000_000


def snapshot_files(sizes: dict[str, int], partitions: dict[str, dict[str, Any]] | None = None) -> pa.Table:
    """Files of a snapshot by name and size."""
    rows = [
        {
            "path": path,
            "partition_values": list((partitions or {}).get(path, {}).items()),
            "size": size,
            "modification_time": 0,
        }
        for path, size in sizes.items()
    ]
    return pa.Table.from_pylist(rows, FILES_SCHEMA)


def after_commit(
    table: pa.Table, changed: list[dict[str, Any]] | None = None, **options: Any
) -> list[list[str]]:
    """The names in each bin. By default the commit has changed a table without partitions."""
    bins = bins_after_commit(
        table,
        options.pop("columns", ()),
        {frozenset(values.items()) for values in changed or [{}]},
        **{"min_num_files": MIN_NUM_FILES, "smaller_than": TARGET, "target_size": TARGET, **options},
    )
    return [chosen["path"].to_pylist() for chosen in bins]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), largest=st.sampled_from([2_000, 50_000, 900_000, 3_000_000]))
@pytest.mark.long
def test_a_partition_never_has_more_files_than_the_bound(seed: int, largest: int) -> None:
    """Each batch adds one file of any size, and a rewrite may compress it in any way."""
    chance = random.Random(seed)
    active: dict[str, int] = {}
    for batch in range(400):
        active[f"b{batch}"] = chance.randint(500, largest)
        assert len(active) <= MIN_NUM_FILES + math.ceil(sum(active.values()) / TARGET)
        for number, names in enumerate(after_commit(snapshot_files(active))):
            total = sum(active.pop(name) for name in names)
            active[f"c{batch}-{number}"] = max(500, int(total * chance.uniform(0.3, 1)))
        small = [size for size in active.values() if size < TARGET]
        assert len(small) < MIN_NUM_FILES


def test_rows_are_rewritten_seldom() -> None:
    """2,000 batches: every row is rewritten about as often as its file doubles, not once for 50 batches."""
    active: dict[str, int] = {}
    rewritten = 0
    for batch in range(2_000):
        active[f"b{batch}"] = 400
        for number, names in enumerate(
            after_commit(snapshot_files(active), target_size=10**9, smaller_than=10**9)
        ):
            total = sum(active.pop(name) for name in names)
            active[f"c{batch}-{number}"] = total
            rewritten += total
    assert rewritten / (2_000 * 400) < 5


def test_a_new_file_is_as_large_as_asked_for() -> None:
    sizes = {f"f{i}": 100_000 for i in range(55)}
    assert [len(names) for names in after_commit(snapshot_files(sizes))] == [10, 10, 10, 10, 10, 5]


@pytest.mark.parametrize(("count", "rewritten"), [(49, 0), (50, 50)])
def test_it_waits_for_enough_small_files(count: int, rewritten: int) -> None:
    sizes = {f"f{i}": 1_000 for i in range(count)} | {f"large{i}": TARGET for i in range(60)}
    assert sum(len(names) for names in after_commit(snapshot_files(sizes))) == rewritten


def test_files_much_larger_than_the_rest_stay() -> None:
    sizes = {f"f{i}": 1_000 for i in range(49)} | {"large": 49_001}
    [names] = after_commit(snapshot_files(sizes))
    assert sorted(names) == sorted(sizes.keys() - {"large"})


def test_bins_are_of_one_partition_that_was_changed() -> None:
    values = [{"p": "a", "q": None}, {"p": "a", "q": "1"}, {"p": "b", "q": "1"}, {"p": "b", "q": "2"}]
    partitions = {f"{i}-{j}": values[i] for i in range(4) for j in range(60 if i < 3 else 10)}
    table = snapshot_files(dict.fromkeys(partitions, 1_000), partitions)
    bins = after_commit(table, [values[0], values[2], values[3]], columns=("p", "q"))
    assert sorted({name[0] for name in names} for names in bins) == [{"0"}, {"2"}]
    assert all(len(names) == 60 for names in bins)


def test_one_commit_is_followed_by_a_rewrite_of_128_partitions() -> None:
    partitions = {f"{i}-{j}": {"p": str(i)} for i in range(130) for j in range(3 if i else 9)}
    table = snapshot_files(dict.fromkeys(partitions, 1_000), partitions)
    changed = [{"p": str(i)} for i in range(130)]
    bins = after_commit(table, changed, columns=("p",), min_num_files=3)
    assert len(bins) == 128
    assert len(bins[0]) == 9


def test_a_partition_that_spark_cannot_write_stays() -> None:
    """Spark's writer takes this string for null."""
    partitions = {f"f{i}": {"p": "__HIVE_DEFAULT_PARTITION__"} for i in range(60)}
    table = snapshot_files(dict.fromkeys(partitions, 1_000), partitions)
    assert after_commit(table, [{"p": "__HIVE_DEFAULT_PARTITION__"}], columns=("p",)) == []
    assert bins_of_table(table, ("p",), max_size=TARGET) == []


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, TARGET * 2), max_size=80))
def test_bins_of_optimize(sizes: list[int]) -> None:
    """Each small file is in one bin, and a bin has two or more files of a partition and at most the asked
    size."""
    by_name = {f"f{i}": size for i, size in enumerate(sizes)}
    partition = {f"f{i}": {"p": str(i % 3)} for i in range(len(sizes))}
    files = snapshot_files(by_name, partition)
    small = files_to_compact(
        files, FileStatistics(files, StructType()), smaller_than=TARGET, max_deleted_ratio=0.05
    )
    bins = bins_of_table(small, ("p",), max_size=TARGET)
    names = [chosen["path"].to_pylist() for chosen in bins]
    chosen = [name for group in names for name in group]
    assert len(chosen) == len(set(chosen))
    for group in names:
        assert len(group) > 1
        assert sum(by_name[name] for name in group) <= TARGET
        assert all(by_name[name] < TARGET for name in group)
        assert all(partition[name] == partition[group[0]] for name in group)
    for value in ("0", "1", "2"):
        of_partition = [name for name in by_name if partition[name]["p"] == value and name not in chosen]
        left = sorted(by_name[name] for name in of_partition if by_name[name] < TARGET)
        assert len(left) < 2 or sum(left[:2]) > TARGET
