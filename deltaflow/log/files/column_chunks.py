"""What a Parquet footer says of its column chunks, decoded without pyarrow's ColumnChunkMetaData.

pyarrow shows no SizeStatistics, and ends the process, without an exception, when it is asked for a chunk that
contradicts the schema: a histogram with too many levels, a bound with too few bytes, another type.
The footer is encoded in Thrift's compact protocol; only what Parquet uses of it is decoded. That takes about
30 us a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pyarrow.parquet as pq

FOOTER_BYTES: Final = 64 * 1024
"""What is read of the end of a file at first: most footers are smaller."""
# The length of the footer, four bytes, and Parquet's name.
_TRAILER_BYTES: Final = 8
# Numbers of fields in parquet.thrift.
_ROW_GROUPS, _COLUMNS, _META_DATA, _ENCRYPTION = 4, 1, 3, 8
_TYPE, _STATISTICS, _SIZE_STATISTICS = 1, 12, 16
_BOUNDS, _NULL_COUNT = (1, 2, 5, 6), 3
_UNENCODED_BYTES, _REPETITION_LEVELS, _DEFINITION_LEVELS = 1, 2, 3
# What the lists among the fields hold.
_LISTS_OF_FOOTER: Final = {2: dict, _ROW_GROUPS: dict, 5: dict, 7: dict}
_LISTS_OF_GROUP: Final = {_COLUMNS: dict, 4: dict}
_LISTS_OF_CHUNK: Final = {2: int, 3: bytes, 8: dict, 13: dict}
_LISTS_OF_SIZES: Final = {_REPETITION_LEVELS: int, _DEFINITION_LEVELS: int}
# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS: Final = (4, 5, 6)
_LARGEST_NUMBER: Final = 0x7FFF
# Parquet's physical types by their numbers, and the bytes of a value.
_PHYSICAL_TYPES: Final = {
    0: ("BOOLEAN", 1), 1: ("INT32", 4), 2: ("INT64", 8), 3: ("INT96", 12), 4: ("FLOAT", 4), 5: ("DOUBLE", 8),
    6: ("BYTE_ARRAY", 0), 7: ("FIXED_LEN_BYTE_ARRAY", 0),
}  # fmt: skip


def length_of_footer(end: bytes) -> int:
    """The length of a footer and of what comes after it, by the last bytes of the file."""
    return int.from_bytes(end[-_TRAILER_BYTES:-4], "little") + _TRAILER_BYTES


class ColumnChunks:
    """The chunks of a file, by row group and leaf of its schema."""

    def __init__(self, end: bytes, schema: pq.ParquetSchema) -> None:
        """`end`: the last bytes of the file, with the footer in it, of which pyarrow has read the schema.
        ValueError if the footer cannot be understood, or a row group has other columns than the schema."""
        self._leaves = [schema.column(index) for index in range(len(schema))]
        with _understood():
            footer = _with_lists(_Reader(end[-length_of_footer(end) :]).struct(), _LISTS_OF_FOOTER)
            self._groups = [_chunks(group) for group in footer.get(_ROW_GROUPS, [])]
        if any(len(group) != len(self._leaves) for group in self._groups):
            raise ValueError("its row groups do not have the columns of its schema")

    @property
    def num_row_groups(self) -> int:
        return len(self._groups)

    def null_count(self, group: int, leaf: int) -> int | None:
        """The nulls of a leaf in a row group; None if the footer does not say."""
        count = self._groups[group][leaf].get(_STATISTICS, {}).get(_NULL_COUNT)
        return count if isinstance(count, int) else None

    def definition_levels(self, leaf: int) -> list[list[int] | None]:
        """By row group: how many entries have each definition level, lowest first; None if not counted."""
        return [group[leaf].get(_SIZE_STATISTICS, {}).get(_DEFINITION_LEVELS) for group in self._groups]

    def check(self) -> None:
        """ValueError if a chunk contradicts the schema, so that pyarrow must not be asked for it."""
        for group in self._groups:
            for leaf, chunk in zip(self._leaves, group, strict=True):
                with _understood():
                    contradicts = _contradicts(leaf, chunk)
                if contradicts:
                    raise ValueError(f"what it says of the column {leaf.path} contradicts its schema")


@contextmanager
def _understood() -> Iterator[None]:
    try:
        yield
    except (LookupError, AttributeError, TypeError, RecursionError) as error:
        raise ValueError(f"it cannot be understood: {error!r}") from error


def _chunks(group: dict[int, Any]) -> list[dict[int, Any]]:
    """The ColumnMetaData of a row group, {} where it is encrypted."""
    chunks = _with_lists(group, _LISTS_OF_GROUP)[_COLUMNS]
    found = [{} if _ENCRYPTION in chunk else chunk.get(_META_DATA, {}) for chunk in chunks]
    for chunk in found:
        _with_lists(chunk, _LISTS_OF_CHUNK)
        _with_lists(chunk.get(_STATISTICS, {}), {})
        _with_lists(chunk.get(_SIZE_STATISTICS, {}), _LISTS_OF_SIZES)
    return found


def _with_lists(fields: dict[int, Any], items: Mapping[int, type]) -> dict[int, Any]:
    """The fields of a struct, if its lists hold such items: pyarrow does not look at what a list says of
    them, and would read on elsewhere than this module."""
    if type(fields) is not dict or any(
        type(item) is not of for number, of in items.items() for item in fields.get(number, ())
    ):
        raise TypeError(f"no struct with {items}")
    return fields


def _contradicts(leaf: pq.ColumnSchema, chunk: dict[int, Any]) -> bool:
    sizes, statistics = chunk.get(_SIZE_STATISTICS, {}), chunk.get(_STATISTICS, {})
    physical_type, size = _PHYSICAL_TYPES[chunk[_TYPE]]
    if physical_type == "FIXED_LEN_BYTE_ARRAY":
        size = leaf.length
    histograms = (
        (sizes.get(_REPETITION_LEVELS), leaf.max_repetition_level),
        (sizes.get(_DEFINITION_LEVELS), leaf.max_definition_level),
    )
    return (
        physical_type != leaf.physical_type
        or any(levels and len(levels) != highest + 1 for levels, highest in histograms)
        or any(bound in statistics and len(statistics[bound]) < size for bound in _BOUNDS)
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
            if number in fields or not 0 < number <= _LARGEST_NUMBER:  # pyarrow would take the two for one
                raise LookupError(f"field {number}")
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
        if thrift_type == _BINARY:
            return self._bytes(self._varint())
        if thrift_type in (_BYTE, _DOUBLE):
            return self._bytes(1 if thrift_type == _BYTE else 8)[0]
        raise LookupError(f"type {thrift_type}")

    def _bytes(self, length: int) -> bytes:
        self._position += length
        if self._position > len(self._data):
            raise LookupError("the footer ends")
        return self._data[self._position - length : self._position]

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
