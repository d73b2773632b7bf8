"""Statistics of files as JSON text or in columns, wherever they are: in memory, or in a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import CorruptLogError
from deltaflow.log.files.conversion import converted
from deltaflow.log.files.file_rows import STATS

Path = tuple[str, ...]


class StatisticsSource(Protocol):
    """Where the statistics are of files whose `stats_row` is not null."""

    is_gone: bool
    """Whether they were found to be gone."""

    def read(self, rows: pa.Array, leaves: Sequence[Path] | None) -> Iterator[pa.Array]:
        """The statistics at these places, which ascend, a piece at a time.

        A piece is JSON texts, or structs that have the `leaves`, paths in the statistics; without `leaves` it
        is always texts. CorruptLogError if they cannot be read, or are not those of the snapshot any more.
        """


class StoredStatistics(Protocol):
    """The same for one version of the table."""

    def read(self, rows: pa.Array, leaves: Sequence[Path] | None) -> Iterator[pa.Array]:
        """As of StatisticsSource."""

    def elsewhere(self, files: pa.Table, error: CorruptLogError) -> tuple[pa.Table, StoredStatistics | None]:
        """After `error`: the same files of the version, read anew from other files of the log, and where
        their statistics are. `error` again if the log has the version no more."""


def gather(
    files: pa.Table,
    stored: StoredStatistics | None,
    leaves: Sequence[Path] | None,
    convert: Callable[[pa.Array], pa.Table],
) -> pa.Table:
    """What `convert` makes of the statistics of files, row by row; it gets pieces as of StatisticsSource.

    `files` has the column stats, or the columns stats_text, stats_row, path and deletion_vector of rows of a
    snapshot's `files`. CorruptLogError if statistics cannot be read any more.
    """
    if "stats" in files.column_names:
        return _concatenated(map(convert, files["stats"].chunks), convert)
    rows = _combined(files["stats_row"])
    in_memory = files["stats_text"]
    if rows.null_count == len(rows):
        return _concatenated(map(convert, in_memory.chunks), convert)
    if stored is None:
        raise RuntimeError("the statistics of these files are in a checkpoint")
    order = None if _is_ordered(rows) else pc.sort_indices(rows)
    places = (rows if order is None else rows.take(order)).drop_null()
    try:
        pieces = list(converted(stored.read(places, leaves), convert))
    except CorruptLogError as error:
        files, stored = stored.elsewhere(files, error)
        return gather(files, stored, leaves, convert)
    # Sorting is stable and puts nulls last: what is in memory follows, in its order.
    texts = in_memory.filter(rows.is_null()) if rows.null_count else in_memory.slice(0, 0)
    found = _concatenated([*pieces, *map(convert, texts.chunks)], convert)
    return found if order is None else found.take(pc.sort_indices(order))


def texts_of(files: pa.Table, stored: StoredStatistics | None) -> pa.ChunkedArray:
    """The statistics of files as JSON text; `files` as in `gather`."""
    schema = pa.schema([STATS])
    return gather(files, stored, None, lambda texts: pa.table([texts], schema))[0]


def with_texts(files: pa.Table, stored: StoredStatistics | None) -> pa.Table:
    """Rows of a snapshot's `files` with a column stats, JSON texts, instead of the places of statistics."""
    place = files.column_names.index("stats_text")
    return files.add_column(place, STATS, texts_of(files, stored)).drop_columns(["stats_text", "stats_row"])


def _concatenated(tables: Iterable[pa.Table], convert: Callable[[pa.Array], pa.Table]) -> pa.Table:
    found = [table for table in tables if table.num_rows]
    return pa.concat_tables(found) if found else convert(pa.array([], STATS.type))


def _is_ordered(rows: pa.Array) -> bool:
    """Whether the places ascend, and nulls follow."""
    places = rows.slice(0, len(rows) - rows.null_count)
    return places.null_count == 0 and (
        len(places) < 2 or bool(pc.all(pc.greater(places[1:], places[:-1])).as_py())
    )


def _combined(values: pa.ChunkedArray) -> pa.Array:
    combined = values.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined
