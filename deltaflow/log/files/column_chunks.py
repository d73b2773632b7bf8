"""What a Parquet footer says of its column chunks, decoded without pyarrow's ColumnChunkMetaData.

pyarrow shows no SizeStatistics, and ends the process, without an exception, when it is asked for a chunk that
contradicts the schema: a histogram with too many levels, a bound with too few bytes, another type.
The footer is encoded in Thrift's compact protocol; only what Parquet uses of it is decoded. That takes about
30 us a chunk.
"""

from __future__ import annotations

import io
from typing import Any, Final

import pyarrow.parquet as pq

# Numbers of fields in parquet.thrift.
_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3
_TYPE, _STATISTICS, _SIZE_STATISTICS = 1, 12, 16
_BOUNDS, _NULL_COUNT = (1, 2, 5, 6), 3
_UNENCODED_BYTES, _REPETITION_LEVELS, _DEFINITION_LEVELS = 1, 2, 3
# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS: Final = (4, 5, 6)
# Parquet's physical types by their numbers, and the bytes of a value.
_PHYSICAL_TYPES: Final = (
    ("BOOLEAN", 1), ("INT32", 4), ("INT64", 8), ("INT96", 12), ("FLOAT", 4), ("DOUBLE", 8), ("BYTE_ARRAY", 0),
    ("FIXED_LEN_BYTE_ARRAY", 0),
)  # fmt: skip


class ColumnChunks:
    """The chunks of a file, by row group and leaf of its schema."""

    def __init__(self, metadata: pq.FileMetaData) -> None:
        """ValueError if a row group has other columns than the schema."""
        self._leaves = [metadata.schema.column(index) for index in range(len(metadata.schema))]
        footer = io.BytesIO()
        metadata.write_metadata_file(footer)
        groups = _Reader(footer.getvalue()[4:]).struct()[_ROW_GROUPS]
        if any(len(group[_COLUMNS]) != len(self._leaves) for group in groups):
            raise ValueError("its row groups do not have the columns of its schema")
        self._groups = [[chunk.get(_META_DATA, {}) for chunk in group[_COLUMNS]] for group in groups]

    @property
    def num_row_groups(self) -> int:
        return len(self._groups)

    def null_count(self, group: int, leaf: int) -> int | None:
        """The nulls of a leaf in a row group; None if the footer does not say."""
        count: int | None = self._groups[group][leaf].get(_STATISTICS, {}).get(_NULL_COUNT)
        return count

    def definition_levels(self, leaf: int) -> list[list[int] | None]:
        """By row group: how many entries have each definition level, lowest first; None if not counted."""
        return [group[leaf].get(_SIZE_STATISTICS, {}).get(_DEFINITION_LEVELS) for group in self._groups]

    def check(self) -> None:
        """ValueError if a chunk contradicts the schema, so that pyarrow must not be asked for it."""
        for group in self._groups:
            for leaf, chunk in zip(self._leaves, group, strict=True):
                if _contradicts(leaf, chunk):
                    raise ValueError(f"what it says of the column {leaf.path} contradicts its schema")


def _contradicts(leaf: pq.ColumnSchema, chunk: dict[int, Any]) -> bool:
    if _TYPE not in chunk:  # it is encrypted
        return True
    physical_type, size = _PHYSICAL_TYPES[chunk[_TYPE]]
    sizes, statistics = chunk.get(_SIZE_STATISTICS, {}), chunk.get(_STATISTICS, {})
    histograms = (
        (sizes.get(_REPETITION_LEVELS), leaf.max_repetition_level),
        (sizes.get(_DEFINITION_LEVELS), leaf.max_definition_level),
    )
    if physical_type == "FIXED_LEN_BYTE_ARRAY":
        size = leaf.length
    return (
        physical_type != leaf.physical_type
        or any(levels and len(levels) != highest + 1 for levels, highest in histograms)
        or any(0 < len(statistics.get(bound, b"")) < size for bound in _BOUNDS)
        or (_UNENCODED_BYTES in sizes and physical_type != "BYTE_ARRAY")
    )


class _Reader:
    """Decodes values of the compact protocol, one after the other; a struct is a dict by field number."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def struct(self) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while header := self._byte():
            number = number + (header >> 4) if header >> 4 else self._integer()
            fields[number] = self._value(header & 15)
        return fields

    def _value(self, thrift_type: int) -> Any:
        if thrift_type in (_TRUE, _FALSE):
            return thrift_type == _TRUE
        if thrift_type in _INTEGERS:
            return self._integer()
        if thrift_type == _STRUCT:
            return self.struct()
        if thrift_type in (_LIST, _SET):
            return self._list()
        if thrift_type in (_BYTE, _DOUBLE, _BINARY):
            length = {_BYTE: 1, _DOUBLE: 8}.get(thrift_type) or 0
            if thrift_type == _BINARY:
                length = self._varint()
            self._position += length
            return self._data[self._position - length : self._position]
        raise LookupError(f"type {thrift_type}")

    def _list(self) -> list[Any]:
        header = self._byte()
        length = header >> 4
        if length == 15:
            length = self._varint()
        thrift_type = header & 15
        if thrift_type in (_TRUE, _FALSE):  # in a list each takes a byte
            thrift_type = _BYTE
        return [self._value(thrift_type) for _ in range(length)]

    def _integer(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7

    def _byte(self) -> int:
        byte = self._data[self._position]
        self._position += 1
        return byte
