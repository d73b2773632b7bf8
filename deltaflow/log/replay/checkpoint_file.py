"""A Parquet file of a checkpoint, as it is opened and as it fails."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from deltaflow.errors import CorruptLogError
from deltaflow.log.files.column_chunks import FOOTER_BYTES, ColumnChunks, length_of_footer

_BUFFER_BYTES: Final = 1 << 20


@contextmanager
def part_of_checkpoint(path: str) -> Iterator[None]:
    """While a file of a checkpoint is read: a CorruptLogError if it is missing or broken."""
    try:
        yield
    except FileNotFoundError as error:
        raise CorruptLogError(f"{path}, a part of a checkpoint, is missing.", file=path) from error
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError) as error:
        raise CorruptLogError(
            f"{path}, a part of a checkpoint, cannot be read: {error}", file=path
        ) from error


class CheckpointFile:
    """An open file. Its footer is read once, for pyarrow and for what pyarrow does not survive."""

    def __init__(self, stream: BinaryIO) -> None:
        self.size = stream.seek(0, io.SEEK_END)
        self._end = _end(stream, min(self.size, FOOTER_BYTES))
        length = length_of_footer(self._end)
        if len(self._end) < length <= self.size:
            self._end = _end(stream, length)
        # Without pre-buffering, which would keep the bytes of all row groups.
        self.parquet = pq.ParquetFile(
            stream,
            metadata=pq.read_metadata(pa.BufferReader(self._end)),
            buffer_size=_BUFFER_BYTES,
            pre_buffer=False,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
        )

    def batches(
        self,
        columns: Sequence[str],
        *,
        size: int = 65_536,
        groups: Sequence[int] | None = None,
        use_threads: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of row groups, of all by default, at most `size` at once. ArrowInvalid if they are not as
        many as the footer says: a damaged page may end a column early, and the table would lose files without
        a word."""
        wanted = list(range(self.parquet.num_row_groups) if groups is None else groups)
        missing = sum(self.parquet.metadata.row_group(group).num_rows for group in wanted)
        for batch in self.parquet.iter_batches(
            size, row_groups=wanted, columns=list(columns), use_threads=use_threads
        ):
            missing -= batch.num_rows
            yield batch
        if missing:
            raise pa.ArrowInvalid(f"{missing} rows are missing of those that the footer counts")

    @cached_property
    def chunks(self) -> ColumnChunks:
        return ColumnChunks(self._end, self.parquet.metadata.schema)


def _end(stream: BinaryIO, size: int) -> bytes:
    stream.seek(-size, io.SEEK_END)
    return stream.read(size)
