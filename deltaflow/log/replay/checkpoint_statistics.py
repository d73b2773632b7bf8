"""The statistics of files that a checkpoint holds: they are read from it when somebody asks for them."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltaflow.errors import CorruptLogError
from deltaflow.log.files.column_chunks import ColumnChunks
from deltaflow.log.files.json_column import field_of, json_column
from deltaflow.log.files.stored_statistics import Path
from deltaflow.log.replay.checkpoint_budget import CheckpointBudget
from deltaflow.log.replay.checkpoint_file import CheckpointFile, part_of_checkpoint
from deltaflow.log.replay.listing import Checkpoint
from deltaflow.log.replay.log_files import LogFiles

_ROWS_PER_PIECE = 32_768
# Places of different checkpoints differ: a file of another snapshot never gets the statistics of this one's.
_MOST_ROWS = 1 << 40
_checkpoints = itertools.count(1)


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    first_row: int
    groups: tuple[tuple[int, int], ...]
    """The rows and bytes of its row groups."""


class CheckpointStatistics:
    """The statistics in the Parquet files of one checkpoint: a place is the number of a row.

    The checkpoint may be deleted while a snapshot lives, or another writer may put another one under its
    name, with its rows in another order. Both raise a CorruptLogError.
    """

    def __init__(self, log: LogFiles, checkpoint: Checkpoint) -> None:
        self.log = log
        self.checkpoint = checkpoint
        self._etags = {f"{log.directory}/{status.name}": status.etag for status in checkpoint.files}
        self._files: list[_File] = []
        self._begin = self._end = next(_checkpoints) * _MOST_ROWS
        self.is_gone = False
        """Whether the checkpoint was found to be gone: the next snapshot had better use another one."""

    def add_file(self, path: str, parquet: pq.ParquetFile) -> int:
        """The place of the first row of the checkpoint's next file."""
        self._files.append(_File(path, self._end, _groups(parquet)))
        self._end += parquet.metadata.num_rows
        return self._files[-1].first_row

    def check(self) -> None:
        """Reads all statistics; CorruptLogError if some cannot be read."""
        for file in self._files:
            number = sum(rows for rows, _ in file.groups)
            for _ in self._read_file(file, pa.array(range(file.first_row, file.first_row + number)), None):
                pass

    def read(self, rows: pa.Array, leaves: Sequence[Path] | None) -> Iterator[pa.Array]:
        """As of StatisticsSource. Reads only the row groups that have these rows, and of statistics in
        columns only the leaves."""
        if len(rows) and not self._begin <= rows[0].as_py() <= rows[-1].as_py() < self._end:
            raise RuntimeError("these files are not of this snapshot")
        start = 0
        for file in self._files:
            end = _position(rows, file.first_row + sum(number for number, _ in file.groups), start)
            if start < end:
                yield from self._read_file(file, rows.slice(start, end - start), leaves)
            start = end

    def _read_file(self, file: _File, rows: pa.Array, leaves: Sequence[Path] | None) -> Iterator[pa.Array]:
        try:
            with part_of_checkpoint(file.path), self.log.store.open(file.path) as stream:
                opened = CheckpointFile(stream)
                if _groups(opened.parquet) != file.groups:
                    raise self._replaced(file)
                budget = CheckpointBudget(opened, file.path)
                yield from _pieces(opened, pc.subtract(rows, file.first_row), leaves, budget)
                etag = self._etags.get(file.path)
                # Asked last: what was read before is then of the file that this was all the time.
                if etag is not None and self.log.store.status(file.path).etag != etag:
                    raise self._replaced(file)
        except CorruptLogError as error:
            self.is_gone = self.is_gone or isinstance(error.__cause__, FileNotFoundError)
            raise

    def _replaced(self, file: _File) -> CorruptLogError:
        self.is_gone = True
        return CorruptLogError(f"{file.path}, a part of a checkpoint, was replaced.", file=file.path)


def _groups(parquet: pq.ParquetFile) -> tuple[tuple[int, int], ...]:
    groups = map(parquet.metadata.row_group, range(parquet.num_row_groups))
    return tuple((group.num_rows, group.total_byte_size) for group in groups)


def _position(rows: pa.Array, bound: int, start: int) -> int:
    """The number of ascending rows before `bound`, of which the first `start` are."""
    return bisect_left(range(len(rows)), bound, lo=start, key=lambda index: rows[index].as_py())


def _pieces(
    file: CheckpointFile, rows: pa.Array, leaves: Sequence[Path] | None, budget: CheckpointBudget
) -> Iterator[pa.Array]:
    """The statistics in these rows of the file, ascending, of a row group or a part of it each."""
    parquet = file.parquet
    names, convert = _plan(file, leaves)
    start = first = 0
    for group in range(parquet.num_row_groups):
        number = parquet.metadata.row_group(group).num_rows
        end = _position(rows, first + number, start)
        if start == end or not names:
            if start < end:
                yield pa.nulls(end - start, pa.string())
            start, first = end, first + number
            continue
        for batch in file.batches(names, size=_ROWS_PER_PIECE, groups=[group]):
            budget.spend(batch.nbytes)
            end = _position(rows, first + batch.num_rows, start)
            if start < end:
                adds = with_plain_types(batch.column("add"))
                if end - start < len(adds):
                    adds = adds.take(pc.subtract(rows.slice(start, end - start), first))
                piece = convert(adds)
                # Damaged pages may decode to invalid UTF-8, which would crash its first reader.
                piece.validate(full=True)
                yield piece
            start, first = end, first + batch.num_rows
        pa.default_memory_pool().release_unused()


def with_plain_types(values: pa.Array) -> pa.Array:
    """The values with plain texts. Writers that are made with Arrow store the Arrow types of their columns in
    the file. Texts may be views there, or in dictionaries: Arrow's functions have no kernels for the former,
    and `json_column` has none for the latter."""
    plain = _plain(values.type)
    return values if plain == values.type else values.cast(plain)


def _plain(arrow_type: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(arrow_type):
        return pa.struct([field.with_type(_plain(field.type)) for field in arrow_type])
    if pa.types.is_map(arrow_type):
        key, item = arrow_type.key_field, arrow_type.item_field
        return pa.map_(key.with_type(_plain(key.type)), item.with_type(_plain(item.type)))
    if pa.types.is_list(arrow_type):
        return pa.list_(arrow_type.value_field.with_type(_plain(arrow_type.value_type)))
    if pa.types.is_dictionary(arrow_type):
        return _plain(arrow_type.value_type)
    if pa.types.is_string_view(arrow_type):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(arrow_type) else arrow_type


def _plan(
    file: CheckpointFile, leaves: Sequence[Path] | None
) -> tuple[list[str], Callable[[pa.StructArray], pa.Array]]:
    """The columns to be read, and what makes statistics of values of `add`; no columns if there are none."""
    columns = [file.parquet.schema.column(index) for index in range(len(file.parquet.schema))]
    paths = [column.path for column in columns]
    own = [path for path in paths if path.startswith("add.stats_parsed.")]
    has_text = "add.stats" in paths
    if not own:
        return (["add.stats"] if has_text else []), lambda adds: field_of(adds, "stats").cast(pa.string())
    naive_is_utc = any(column.physical_type == "INT96" for column in columns)
    chunks = file.chunks if has_text else None
    if leaves is not None and (chunks is None or _has_all_parsed(chunks, paths)):
        wanted = [".".join(("add", "stats_parsed", *path)) for path in leaves]
        found = [name for name in wanted if name in own]
        if len(found) == len(wanted) or chunks is None:
            return found, lambda adds: _struct(field_of(adds, "stats_parsed"), leaves, naive_is_utc)
    if chunks is not None and not _has_only_parsed(chunks, paths):
        return ["add.stats"], lambda adds: field_of(adds, "stats").cast(pa.string())

    def texts(adds: pa.StructArray) -> pa.Array:
        rebuilt = json_column(field_of(adds, "stats_parsed"), naive_is_utc=naive_is_utc)
        return pc.coalesce(field_of(adds, "stats").cast(pa.string()), rebuilt) if has_text else rebuilt

    return (["add.stats", *own] if has_text else own), texts


def _struct(values: pa.StructArray, leaves: Sequence[Path], naive_is_utc: bool) -> pa.StructArray:
    """Structs of the leaves alone, null where the values lack them."""
    tree: dict[str, Any] = {}
    for path in leaves:
        inner = tree
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = None
    return _of_tree(values, tree, naive_is_utc)


def _of_tree(values: pa.Array, tree: dict[str, Any] | None, naive_is_utc: bool) -> pa.Array:
    if tree is None:
        is_naive = pa.types.is_timestamp(values.type) and values.type.tz is None
        return values.cast(pa.timestamp("us", "UTC")) if is_naive and naive_is_utc else values
    names = [child.name for child in values.type] if pa.types.is_struct(values.type) else []
    children = [
        _of_tree(field_of(values, name), inner, naive_is_utc)
        if name in names
        else _of_tree(pa.nulls(len(values)), inner, naive_is_utc)
        for name, inner in tree.items()
    ]
    return pa.StructArray.from_arrays(children, names=list(tree))


def _has_all_parsed(chunks: ColumnChunks, paths: Sequence[str]) -> bool:
    """Whether certainly every file with statistics has them in `stats_parsed`."""
    if "add.stats_parsed.numRecords" not in paths:
        return False
    text, parsed = paths.index("add.stats"), paths.index("add.stats_parsed.numRecords")
    for group in range(chunks.num_row_groups):
        counts = [chunks.null_count(group, leaf) for leaf in (text, parsed)]
        if counts[0] is None or counts[1] is None or counts[1] > counts[0]:
            return False
    return True


def _has_only_parsed(chunks: ColumnChunks, paths: Sequence[str]) -> bool:
    """Whether some file's statistics may be in `stats_parsed` alone (writeStatsAsJson is off)."""
    path, stats = paths.index("add.path"), paths.index("add.stats")
    for group in range(chunks.num_row_groups):
        counts = [chunks.null_count(group, leaf) for leaf in (path, stats)]
        if counts[0] is None or counts[1] is None or counts[0] < counts[1]:
            return True
    return False
