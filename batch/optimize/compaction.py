"""Which files of a table are worth rewriting together: bins, each of files of one partition for one new file.

Planned on the columns of a snapshot's files: what is looked at one by one are partitions and bins.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Set
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.log.files.partition_values import NULL_FOLDER
from deltaflow.spark.scan.file_index import partitions_of

PartitionValues = frozenset[tuple[str, str | None]]
"""The items of an add action's partition values."""
_MAX_PARTITIONS_AFTER_COMMIT = 128
"""As delta-spark's autoCompact.maxNumModifiedPartitions: so long may one commit be followed by a rewrite."""
_ANY_SIZE = (1 << 63) - 1


class _Partition(NamedTuple):
    rows: pa.Array
    """Positions in the table of files, smallest file first."""
    sizes: pa.Array


def bins_after_commit(
    files: pa.Table,
    partition_columns: tuple[str, ...],
    changed: Set[PartitionValues],
    *,
    min_num_files: int,
    smaller_than: int,
    target_size: int,
) -> list[pa.Table]:
    """The bins to rewrite in those of the `changed` partitions that have `min_num_files` small files.

    Such a partition keeps fewer small files than that, and every new file that has reached `target_size`
    is done with. `files` are rows of a snapshot's `files`.
    """
    bins: list[pa.Table] = []
    at_least = max(min_num_files, 2)
    for partition in _partitions(files, partition_columns, smaller_than, at_least, changed):
        count = _lower_tiers(partition.sizes, max(at_least // 2, 2))
        for start, end in _bins(partition.sizes.slice(0, count), target_size, to_the_full=True):
            bins.append(files.take(partition.rows.slice(start, end - start)))
    return bins


def bins_of_table(
    files: pa.Table, partition_columns: tuple[str, ...], *, smaller_than: int, max_size: int
) -> list[pa.Table]:
    """The bins of OPTIMIZE: all small files, in bins of at most `max_size`."""
    return [
        files.take(partition.rows.slice(start, end - start))
        for partition in _partitions(files, partition_columns, smaller_than, 2)
        for start, end in _bins(partition.sizes, max_size, to_the_full=False)
    ]


def whole_partitions(files: pa.Table, partition_columns: tuple[str, ...]) -> list[pa.Table]:
    """One bin a partition, with all of its files."""
    return [files.take(partition.rows) for partition in _partitions(files, partition_columns, _ANY_SIZE, 1)]


def _partitions(
    files: pa.Table,
    columns: tuple[str, ...],
    smaller_than: int,
    at_least: int,
    among: Set[PartitionValues] | None = None,
) -> Iterator[_Partition]:
    """The partitions with that many small files; of a set of them, those with the most files at first."""
    small = pc.indices_nonzero(pc.less(files["size"], smaller_than))
    if len(small) < at_least:
        return
    candidates = files.select(["partition_values", "size"]).take(small)
    values, numbers = partitions_of(candidates, columns)
    keys = pa.table({"partition": numbers, "size": candidates["size"]})
    order = pc.sort_indices(keys, sort_keys=[("partition", "ascending"), ("size", "ascending")])
    runs = pc.value_counts(keys["partition"].take(order))
    counts = runs.field("counts")
    table = pa.table(
        {
            "partition": runs.field("values"),
            "start": pc.subtract(pc.cumulative_sum(counts), counts),
            "count": counts,
        }
    )
    table = table.filter(pc.greater_equal(counts, at_least)).sort_by([("count", "descending")])
    left = _MAX_PARTITIONS_AFTER_COMMIT if among is not None else table.num_rows
    for run in table.to_pylist():
        of_partition = values.slice(run["partition"], 1).to_pylist()[0] if columns else {}
        if left == 0 or not _is_wanted(of_partition, among):
            continue
        left -= 1
        chosen = order.slice(run["start"], run["count"])
        yield _Partition(small.take(chosen), candidates["size"].take(chosen).combine_chunks())


def _is_wanted(values: dict[str, Any], among: Set[PartitionValues] | None) -> bool:
    # Spark's writer takes this value for null, so such a partition cannot be rewritten.
    if NULL_FOLDER in values.values():
        return False
    return among is None or frozenset(values.items()) in among


def _lower_tiers(sizes: pa.Array, at_least: int) -> int:
    """How many of the ascending sizes to take: up to one, after `at_least`, larger than all before together.

    What joins is then no larger than what it joins, so that a row is rewritten a number of times that grows
    with the logarithm of its file's size, and not each time that small files come in.
    """
    before = pc.subtract(pc.cumulative_sum(sizes), sizes)
    larger = pc.index(pc.greater(sizes, before).slice(at_least), True).as_py()
    return len(sizes) if larger < 0 else at_least + larger


def _bins(sizes: pa.Array, size: int, *, to_the_full: bool) -> Iterator[tuple[int, int]]:
    """Ranges of two or more of the sizes, with sums within `size`; to the full: that have just reached it."""
    ends = pc.cumulative_sum(sizes)
    start = before = 0
    while start < len(sizes):
        if to_the_full:
            end = bisect_left(ends, before + size, start, key=_as_int) + 1
        else:
            end = bisect_right(ends, before + size, start, key=_as_int)
        end = min(max(end, start + 1), len(sizes))
        if end - start > 1:
            yield start, end
        start, before = end, ends[end - 1].as_py()


def _as_int(scalar: pa.Int64Scalar) -> int:
    number: int = scalar.as_py()
    return number
