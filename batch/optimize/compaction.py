"""Chooses the files to rewrite together: bins, each of files of one partition that become one new file.

The plan is made on Arrow columns of a snapshot's files; only partitions and bins are visited one by one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Set
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import DeltaUnsupportedOperationException
from deltaflow.log.files.file_statistics import FileStatistics
from deltaflow.log.files.partition_values import NULL_FOLDER
from deltaflow.spark.scan.file_index import partitions_of

PartitionValues = frozenset[tuple[str, str | None]]
"""The items of an add action's partition values."""
_MAX_PARTITIONS_AFTER_COMMIT = 128
"""Bounds the rewrite that follows one commit, as autoCompact.maxNumModifiedPartitions does in delta-spark."""


class _Partition(NamedTuple):
    rows: pa.Array
    """The numbers of its rows in the files, smallest file first."""
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
    """The bins to rewrite in the `changed` partitions that have at least `min_num_files` small files.

    After the rewrite such a partition has fewer small files, and a new file that has reached `target_size` is
    not rewritten again. `files` are rows of a snapshot's `files`, `partition_columns` their physical names.
    """
    bins: list[pa.Array] = []
    at_least = max(min_num_files, 2)
    small = pc.indices_nonzero(pc.less(files["size"], smaller_than))
    of_small = files.select(["partition_values", "size"]).take(small)
    for partition in _partitions(of_small, partition_columns, at_least, changed):
        count = _count_in_lower_tiers(partition.sizes, max(at_least // 2, 2))
        for start, end in _bins(partition.sizes.slice(0, count), target_size, to_the_full=True):
            bins.append(small.take(partition.rows.slice(start, end - start)))
    return _taken(files, bins)


def files_to_compact(
    files: pa.Table, statistics: FileStatistics, *, smaller_than: int, max_deleted_ratio: float
) -> pa.Table:
    """The files that OPTIMIZE rewrites together: small ones, and those whose deletion vector deletes a larger
    part of their rows, or a part that the log does not tell. `statistics` are those of the files."""
    chosen = pc.less(files["size"], smaller_than)
    vectors = files["deletion_vector"]
    if vectors.null_count < files.num_rows:
        records = statistics.num_records
        deleted = pc.struct_field(vectors, "cardinality").combine_chunks()
        is_above = pc.greater(deleted.cast(pa.float64()), pc.multiply(records, max_deleted_ratio))
        chosen = pc.or_(chosen, pc.and_(vectors.is_valid(), pc.fill_null(is_above, True)))
    return files.filter(chosen)


def bins_of_table(
    files: pa.Table, partition_columns: tuple[str, ...], *, max_size: int, at_least: int = 2
) -> list[pa.Table]:
    """The bins of OPTIMIZE: these files, `at_least` so many together, in bins of at most `max_size`."""
    bins = [
        partition.rows.slice(start, end - start)
        for partition in _partitions(files, partition_columns, at_least)
        for start, end in _bins(partition.sizes, max_size, to_the_full=False, at_least=at_least)
    ]
    return _taken(files, bins)


def whole_partitions(files: pa.Table, partition_columns: tuple[str, ...]) -> list[pa.Table]:
    """One bin for each partition, with all of its files."""
    return _taken(files, [partition.rows for partition in _partitions(files, partition_columns, 1)])


def check_all_are_in(bins: list[pa.Table], files: pa.Table, table: str) -> None:
    """DeltaUnsupportedOperationException if the bins lack some of the files, all of which have to be
    rewritten."""
    if sum(of_bin.num_rows for of_bin in bins) < files.num_rows:
        raise DeltaUnsupportedOperationException(
            f"{table} has a partition whose value Spark's writer takes for null, so that its files cannot "
            "be written again. Delete or update the rows of this partition first.",
            table=table,
        )


def _taken(files: pa.Table, bins: list[pa.Array]) -> list[pa.Table]:
    """The files of each bin, by the numbers of their rows."""
    if not bins:
        return []
    # In one go, since each call joins the chunks of all files.
    taken = files.take(pa.concat_arrays(bins))
    ends = accumulate(map(len, bins))
    return [taken.slice(end - len(rows), len(rows)) for rows, end in zip(bins, ends, strict=True)]


def _partitions(
    files: pa.Table,
    columns: tuple[str, ...],
    at_least: int,
    among: Set[PartitionValues] | None = None,
) -> Iterator[_Partition]:
    """The partitions with `at_least` so many files, those with the most first; of `among`, if given."""
    if files.num_rows < at_least:
        return
    values, numbers = partitions_of(files, {name: name for name in columns})
    keys = pa.table({"partition": numbers, "size": files["size"]})
    order = pc.sort_indices(keys, sort_keys=[("partition", "ascending"), ("size", "ascending")])
    runs = pc.value_counts(keys["partition"].take(order))
    counts = runs.field("counts")
    partitions = pa.table(
        {
            "partition": runs.field("values"),
            "start": pc.subtract(pc.cumulative_sum(counts), counts),
            "count": counts,
        }
    )
    partitions = partitions.filter(pc.greater_equal(counts, at_least)).sort_by([("count", "descending")])
    left = _MAX_PARTITIONS_AFTER_COMMIT if among is not None else partitions.num_rows
    for partition in partitions.to_pylist():
        values_of_partition = values.slice(partition["partition"], 1).to_pylist()[0] if columns else {}
        if left == 0 or not _is_wanted(values_of_partition, among):
            continue
        left -= 1
        chosen = order.slice(partition["start"], partition["count"])
        yield _Partition(chosen, files["size"].take(chosen).combine_chunks())


def _is_wanted(values: dict[str, Any], among: Set[PartitionValues] | None) -> bool:
    # Spark's writer would write null for this value, so such a partition cannot be rewritten.
    if NULL_FOLDER in values.values():
        return False
    return among is None or frozenset(values.items()) in among


def _count_in_lower_tiers(sizes: pa.Array, at_least: int) -> int:
    """How many of the ascending sizes to take: `at_least`, then up to one that exceeds the sum before it.

    So a file is rewritten only together with at least as many bytes of smaller files. The number of times
    that a row is rewritten grows with the logarithm of its file's size, and not with every small file that
    comes.
    """
    before = pc.subtract(pc.cumulative_sum(sizes), sizes)
    larger = pc.index(pc.greater(sizes, before).slice(at_least), True).as_py()
    return len(sizes) if larger < 0 else at_least + larger


def _bins(sizes: pa.Array, size: int, *, to_the_full: bool, at_least: int = 2) -> Iterator[tuple[int, int]]:
    """Ranges of `at_least` sizes whose sum is at most `size` or, `to_the_full`, has just reached it."""
    ends = pc.cumulative_sum(sizes)
    start = before = 0
    while start < len(sizes):
        if to_the_full:
            end = bisect_left(ends, before + size, start, key=_as_int) + 1
        else:
            end = bisect_right(ends, before + size, start, key=_as_int)
        end = min(max(end, start + 1), len(sizes))
        if end - start >= at_least:
            yield start, end
        start, before = end, ends[end - 1].as_py()


def _as_int(scalar: pa.Int64Scalar) -> int:
    number: int = scalar.as_py()
    return number
