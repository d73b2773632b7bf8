"""Parquet's SizeStatistics, which pyarrow does not expose: how many values have which definition level.

They are in the footer, which is encoded in Thrift's compact protocol; only what Parquet uses of it is
decoded.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

# Numbers of fields in parquet.thrift.
_ROW_GROUPS, _COLUMNS, _META_DATA, _SIZE_STATISTICS, _DEFINITION_LEVELS = 4, 1, 3, 16, 3
# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS: Final = (4, 5, 6)


Levels: TypeAlias = list[list[list[int] | None]]
"""By row group and leaf: how many entries have each definition level, lowest first; None if not counted."""


def definition_levels(footer: bytes) -> Levels:
    """The definition levels of a file by its footer; ValueError where it cannot be understood."""
    try:
        found = _Reader(footer).struct()
        return [
            [chunk[_META_DATA].get(_SIZE_STATISTICS, {}).get(_DEFINITION_LEVELS) for chunk in group[_COLUMNS]]
            for group in found[_ROW_GROUPS]
        ]
    except (LookupError, AttributeError, TypeError) as error:
        raise ValueError(f"The footer cannot be understood: {error!r}") from error


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
