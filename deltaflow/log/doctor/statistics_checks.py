"""Checks of what the log says of its files' rows: the footers of the files know better.

Only what a footer proves to be wrong counts. A bound of the log may be wider than the values are; one that is
narrower hides rows from queries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from deltaflow.errors import StoreError
from deltaflow.log.doctor.finding import NAMED_FILES, Finding, Severity
from deltaflow.log.files.data_path import sized_paths
from deltaflow.log.files.file_statistics import FLOAT_DOUBT, ColumnPath, FileStatistics
from deltaflow.log.files.footers import collect_statistics
from deltaflow.log.progress import Progress
from deltaflow.log.protocol.column_mapping import physical_indexed_leaves
from deltaflow.log.protocol.indexed_columns import indexed_leaves
from deltaflow.log.protocol.properties import DATA_SKIPPING_NUM_INDEXED_COLS, DATA_SKIPPING_STATS_COLUMNS
from deltaflow.log.protocol.type_widening import was_float
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.snapshot import Snapshot

_FILES_AT_ONCE = 1_000
_WHOLE_STRING = 1 << 20
_MAYBE_CUT = 32
"""A string of so many bytes in a footer may be a part of the value: some writers cut them."""
_MILLISECOND_US = 1_000
_DECIMAL_DOUBT = 2.0**-48
_REPAIR = (
    "Write these rows anew, which collects their statistics: spark.read.format('delta').load(path).write."
    "format('delta').mode('overwrite').option('dataChange', 'false').save(path), with replaceWhere for some "
    "partitions. Tell whoever runs the writer of these files."
)


@dataclass(slots=True)
class _Lies:
    """Files about which the log is wrong in one way."""

    count: int = 0
    files: list[str] = field(default_factory=list)

    def add(self, paths: pa.Array) -> None:
        self.count += len(paths)
        self.files += paths[: NAMED_FILES - len(self.files)].to_pylist()


def check_statistics(
    log: LogFiles, snapshot: Snapshot, files: pa.Table, progress: Progress
) -> Iterator[Finding]:
    """Numbers of rows and nulls, and bounds, of some of the snapshot's files that their footers disprove."""
    every = {DATA_SKIPPING_NUM_INDEXED_COLS.name: "-1"}
    configuration = {
        name: value
        for name, value in snapshot.metadata.configuration.items()
        if name != DATA_SKIPPING_STATS_COLUMNS.name
    }
    metadata = msgspec.structs.replace(snapshot.metadata, configuration=configuration | every)
    columns = [path for path, _ in indexed_leaves(metadata, snapshot.path)]
    leaves = physical_indexed_leaves(metadata, snapshot.path)
    lies: defaultdict[tuple[str, str], _Lies] = defaultdict(_Lies)
    for start in range(0, files.num_rows, _FILES_AT_ONCE):
        progress("footers of files", start, files.num_rows)
        some = snapshot.with_stats(files.slice(start, _FILES_AT_ONCE))
        found = list(_collected(sized_paths(log.path, some), leaves))
        is_read = pa.array([text is not None for text in found], pa.bool_())
        if not pc.all(is_read).as_py():
            lies["footer", ""].add(some["path"].combine_chunks().filter(pc.invert(is_read)))
        by_footer = pa.chunked_array([pa.array(found, pa.string()).filter(is_read)])
        _compare(some.filter(is_read), by_footer, snapshot.schema, columns, lies)
    yield from (_finding(what, column, each, snapshot.version) for (what, column), each in lies.items())


def _collected(
    files: Sequence[tuple[str, int]], leaves: Sequence[tuple[ColumnPath, T.DataType]]
) -> Iterator[str | None]:
    """The statistics of each file by its footer; None where that cannot be read."""
    try:
        yield from collect_statistics(files, leaves, _WHOLE_STRING)
    except StoreError:
        # One of them cannot be read: halves find it in few attempts.
        if len(files) == 1:
            yield None
            return
        middle = len(files) // 2
        yield from _collected(files[:middle], leaves)
        yield from _collected(files[middle:], leaves)


def _compare(
    files: pa.Table,
    by_footer: pa.ChunkedArray,
    schema: T.StructType,
    columns: Sequence[ColumnPath],
    lies: defaultdict[tuple[str, str], _Lies],
) -> None:
    paths = files["path"].combine_chunks()
    vectors = files["deletion_vector"]
    no_vectors = pa.nulls(files.num_rows, vectors.type)
    true = FileStatistics(pa.table({"stats": by_footer, "deletion_vector": no_vectors}), schema)
    said = FileStatistics(files, schema)
    # With a deletion vector nulls may be of all rows or of those that are left, and bounds are of the latter.
    is_whole = vectors.is_null().combine_chunks()
    said.load(columns)
    true.load(columns)

    def note(what: str, column: ColumnPath, is_wrong: pa.Array) -> None:
        wrong = paths.filter(pc.fill_null(is_wrong, False))
        if len(wrong):
            lies[what, ".".join(column)].add(wrong)

    note("rows", (), pc.not_equal(said.num_records, true.num_records))
    for column in columns:
        own, footer = said.column(column), true.column(column)
        if own is None or footer is None:
            continue
        note("nulls", column, pc.and_(is_whole, pc.not_equal(own.null_count, footer.null_count)))
        data_type = said.data_type(column)
        if pa.types.is_null(own.low.type) or data_type is None:
            continue
        low, high = _tolerant(footer.low, footer.high, data_type)
        if was_float(schema, column):
            low, high = _inwards(low, high, 2 * FLOAT_DOUBT)
        is_low, is_high = pc.greater(own.low, low), pc.less(own.high, high)
        if isinstance(data_type, T.StringType):
            is_low = pc.and_(is_low, _is_whole(footer.low))
            is_high = pc.and_(is_high, _is_whole(footer.high))
        note("bounds", column, pc.and_(is_whole, pc.or_kleene(is_low, is_high)))


def _tolerant(low: pa.Array, high: pa.Array, data_type: T.DataType) -> tuple[pa.Array, pa.Array]:
    """A footer's bounds, moved outwards already (FileStatistics), moved back inwards as far."""
    match data_type:
        case T.TimestampType() | T.TimestampNTZType():
            return pc.add(low, _MILLISECOND_US), pc.subtract(high, _MILLISECOND_US)
        case T.DecimalType():
            return _inwards(low, high, _DECIMAL_DOUBT)
    return low, high


def _inwards(low: pa.Array, high: pa.Array, relative_doubt: float) -> tuple[pa.Array, pa.Array]:
    doubts = (pc.multiply(pc.abs(each), relative_doubt) for each in (low, high))
    return pc.add(low, next(doubts)), pc.subtract(high, next(doubts))


def _is_whole(texts: pa.Array) -> pa.Array:
    return pc.less(pc.binary_length(texts), _MAYBE_CUT)


def _finding(what: str, column: str, lies: _Lies, version: int) -> Finding:
    sentences = {
        "rows": "The log has a wrong number of rows for {} files: counts and limits of queries are wrong.",
        "nulls": "The log has a wrong number of nulls in column {column} for {} files: queries may leave out "
        "rows.",
        "bounds": "The log has bounds of column {column} that are narrower than the values of {} files: "
        "queries leave out rows.",
        "footer": "The Parquet footers of {} files cannot be read: queries that read these files fail.",
    }
    is_footer = what == "footer"
    return Finding(
        check="footer-unreadable" if is_footer else f"statistics-{what}",
        severity=Severity.ERROR,
        what=sentences[what].format(lies.count, column=column),
        repair="Restore them from a copy." if is_footer else _REPAIR,
        version=version,
        files=lies.files,
        count=lies.count,
    )
