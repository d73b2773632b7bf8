"""Values in the JSON texts of file statistics: many texts are read at once, and those in doubt one by one.

A value is null where it is not certain: where the text has none, or one of another type. Of several values
with the same key the last one counts, as for Spark's from_json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

Path = tuple[str, ...]
_TEXTS_AT_ONCE: Final = 4_096
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)  # UTF-8 errors are ValueErrors
# As Spark and others write the numbers that JSON lacks.
_NO_NUMBER = Literal["NaN", "Infinity", "+Infinity", "-Infinity"]
_PYTHON_TYPES: Final[dict[pa.DataType, Any]] = {
    pa.int64(): int | None,
    pa.float32(): float | _NO_NUMBER | None,
    pa.float64(): float | _NO_NUMBER | None,
    pa.string(): str | None,
}


class StatisticsTexts:
    """The values at the paths `leaves` in texts, of the types int64, float32, float64 or string."""

    def __init__(self, leaves: Mapping[Path, pa.DataType]) -> None:
        self._leaves = leaves
        self._getters: dict[Path, attrgetter[Any]] = {}
        self._decoder: msgspec.json.Decoder[Any] | None = None
        if all(map(_is_plain, leaves)):
            tree: dict[str, Any] = {}
            for *parents, name in leaves:
                inner = tree
                for parent in parents:
                    inner = inner.setdefault(parent, {})
                inner[name] = None
            self._decoder = msgspec.json.Decoder(self._struct(tree, (), ()))

    def values(self, texts: pa.StringArray) -> list[pa.Array]:
        """One value for each text, at each of the leaves in their order."""
        starts = range(0, len(texts), _TEXTS_AT_ONCE)
        parts = [self._part(texts.slice(start, _TEXTS_AT_ONCE)) for start in starts]
        return [
            pa.concat_arrays([pa.array([], arrow_type), *(part[index] for part in parts)])
            for index, arrow_type in enumerate(self._leaves.values())
        ]

    def _part(self, texts: pa.StringArray) -> list[pa.Array]:
        found = self._read_at_once(texts)
        return self._read_each(texts) if found is None else found

    # ------------------------------------------------------------------------------------ all of them at once

    def _struct(self, tree: Mapping[str, Any], path: Path, attributes: Path) -> type[msgspec.Struct]:
        """The class of the objects at this path, which has these attributes."""
        fields: list[tuple[str, Any, Any]] = []
        for number, (name, inner) in enumerate(tree.items()):
            there, getter = (*path, name), (*attributes, f"f{number}")
            if inner is None:
                self._getters[there] = attrgetter(".".join(getter))
                fields.append((getter[-1], _PYTHON_TYPES[self._leaves[there]], None))
            else:
                of_objects = self._struct(inner, there, getter)
                fields.append((getter[-1], of_objects, of_objects()))
        names = {field[0]: name for field, name in zip(fields, tree, strict=True)}
        return msgspec.defstruct("Object", fields, rename=names, frozen=True, eq=False, gc=False)

    def _read_at_once(self, texts: pa.StringArray) -> list[pa.Array] | None:
        """The values; None if there is any doubt about them."""
        if texts.null_count:
            texts = pc.coalesce(texts, pa.scalar("{}", pa.string()))
        are_objects = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
        if self._decoder is None or not pc.all(are_objects).as_py():
            return None
        try:
            rows = self._decoder.decode_lines(_lines(texts))
        except _UNREADABLE:
            return None
        # No JSON value has "}\n{" in it, which is between two texts: if there are as many values as texts,
        # each text is one.
        if len(rows) != len(texts):
            return None
        try:
            return [
                _array(list(map(self._getters[path], rows)), arrow_type)
                for path, arrow_type in self._leaves.items()
            ]
        except OverflowError:
            return None

    # --------------------------------------------------------------------------------------------- one by one

    def _read_each(self, texts: pa.StringArray) -> list[pa.Array]:
        objects = [_decoded(text) for text in texts.to_pylist()]
        return [
            _array([_value(each, path, arrow_type) for each in objects], arrow_type)
            for path, arrow_type in self._leaves.items()
        ]


def _is_plain(path: Path) -> bool:
    """Whether JSON needs no escapes for the names."""
    return all(len(msgspec.json.encode(name)) == len(name.encode()) + 2 for name in path)


def _lines(texts: pa.StringArray) -> memoryview:
    """The texts, with a line break after each."""
    lines = pc.binary_join_element_wise(texts, "\n", "")
    offsets = memoryview(lines.buffers()[1]).cast("i")[lines.offset : lines.offset + len(lines) + 1]
    return memoryview(lines.buffers()[2])[offsets[0] : offsets[-1]]


def _array(values: Sequence[Any], arrow_type: pa.DataType) -> pa.Array:
    """The values as an array of the type.

    What is no finite number is null. So is a float that may have been rounded twice: as its text became a
    double, and as that became a float.
    """
    if not pa.types.is_floating(arrow_type):
        return pa.array(values, arrow_type)
    try:
        found = pa.array(values, pa.float64())
    except pa.ArrowInvalid:
        found = pa.array([None if isinstance(value, str) else value for value in values], pa.float64())
    is_certain = pc.is_finite(found)
    if pa.types.is_float32(arrow_type):
        doubles, found = found, found.cast(pa.float32(), safe=False)
        rounded = found.cast(pa.float64())
        # It is rounded by as much as another float is away on the other side.
        other = pc.add(doubles, pc.subtract(doubles, rounded))
        is_tie = pc.and_(
            pc.not_equal(doubles, rounded),
            pc.equal(other, other.cast(pa.float32(), safe=False).cast(pa.float64())),
        )
        is_certain = pc.and_(pc.is_finite(found), pc.invert(is_tie))
    if pc.all(is_certain).as_py() is False:
        found = pc.if_else(is_certain, found, pa.scalar(None, arrow_type))
    return found


_PRECISE_DECODER: Final = json.JSONDecoder(parse_constant=lambda constant: None)


def _decoded(text: str | None) -> Any:
    try:
        return None if text is None else _PRECISE_DECODER.decode(text)
    except _UNREADABLE:
        return None


def _value(value: Any, path: Path, arrow_type: pa.DataType) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if pa.types.is_floating(arrow_type):
        return _float(value) if type(value) in (int, float) else None
    if pa.types.is_string(arrow_type):
        return value if type(value) is str and _is_unicode(value) else None
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


def _float(value: int | float) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
