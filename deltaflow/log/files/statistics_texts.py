"""Values in the JSON texts of file statistics: many texts are read at once, and those in doubt one by one.

A value is null where it is not certain: where the text has none, one of another type, or several.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

Path = tuple[str, ...]
_TEXTS_AT_ONCE: Final = 1_024
_ESCAPED_KEY: Final = re.compile(rb'\\[u/][^"]*"\s*:')
"""In a key that may be another key than the one it looks like."""
_SEVERAL: Final = object()
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)  # UTF-8 errors are ValueErrors
# As Spark and others write the numbers that JSON lacks.
_NO_NUMBER = Literal["NaN", "Infinity", "+Infinity", "-Infinity"]
_PYTHON_TYPES: Final[dict[pa.DataType, Any]] = {
    pa.int64(): int | None,
    pa.float32(): float | _NO_NUMBER | None,
    pa.float64(): float | _NO_NUMBER | None,
    pa.string(): str | None,
}


@dataclass(frozen=True)
class _Node:
    """A value or an object in a text."""

    path: Path
    missing: Any
    """What `get` returns if a text lacks it."""
    get: attrgetter[Any]


class StatisticsTexts:
    """The values at the paths `leaves` in texts, of the types int64, float32, float64 or string."""

    def __init__(self, leaves: Mapping[Path, pa.DataType], columns: Iterable[Path] = ()) -> None:
        """Texts are read faster if `columns` has the paths of what else in them has the name of a leaf."""
        self._leaves = leaves
        self._keys = {path[-1]: f'"{path[-1]}"'.encode() for path in leaves}
        self._nodes: list[_Node] = []
        self._decoder: msgspec.json.Decoder[Any] | None = None
        if all(map(_is_plain, leaves)):
            tree: dict[str, Any] = {}
            others = [path for path in columns if path[-1] in self._keys and _is_plain(path)]
            for path in (*leaves, *sorted(others, key=len, reverse=True)):
                _grow(tree, path)
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
            missing = None
            field_type = _PYTHON_TYPES[self._leaves[there]] if there in self._leaves else msgspec.Raw
            if inner is not None:
                field_type = self._struct(inner, there, getter)
                missing = field_type()
            fields.append((getter[-1], field_type, missing))
            if name in self._keys:
                self._nodes.append(_Node(there, missing, attrgetter(".".join(getter))))
        names = {field[0]: name for field, name in zip(fields, tree, strict=True)}
        return msgspec.defstruct("Object", fields, rename=names, frozen=True, eq=False, gc=False)

    def _read_at_once(self, texts: pa.StringArray) -> list[pa.Array] | None:
        """The values; None if there is any doubt about them."""
        if texts.null_count:
            texts = pc.coalesce(texts, pa.scalar("{}", pa.string()))
        are_objects = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
        if self._decoder is None or not pc.all(are_objects).as_py():
            return None
        content = _lines(texts)
        try:
            rows = self._decoder.decode_lines(content)
        except _UNREADABLE:
            return None
        # No JSON value has "}\n{" in it, which is between two texts: if there are as many values as texts,
        # each text is one.
        if len(rows) != len(texts) or (b"\\" in content and _ESCAPED_KEY.search(content)):
            return None
        found: dict[Path, pa.Array] = {}
        numbers: Counter[str] = Counter()
        for node in self._nodes:
            values = list(map(node.get, rows))
            if node.path in self._leaves:
                try:
                    found[node.path], number = _array(values, self._leaves[node.path])
                except OverflowError:
                    return None
            else:
                number = len(values) - values.count(node.missing)
            numbers[node.path[-1]] += number
        # Of several values with one key the decoder takes the last one. Then the key is there more often than
        # the values; so it is where it is a string, too, or the key of something that is not known here.
        if any(content.count(key) != numbers[name] for name, key in self._keys.items()):
            return None
        return [found[path] for path in self._leaves]

    # --------------------------------------------------------------------------------------------- one by one

    def _read_each(self, texts: pa.StringArray) -> list[pa.Array]:
        objects = [_decoded(text) for text in texts.to_pylist()]
        return [
            _array([_value(each, path, arrow_type) for each in objects], arrow_type)[0]
            for path, arrow_type in self._leaves.items()
        ]


def _is_plain(path: Path) -> bool:
    """Whether JSON needs no escapes for the names."""
    return all(len(msgspec.json.encode(name)) == len(name.encode()) + 2 for name in path)


def _grow(tree: dict[str, Any], path: Path) -> None:
    """Add the path, unless one that leads to it is a leaf."""
    *parents, name = path
    for parent in parents:
        inner = tree.setdefault(parent, {})
        if inner is None:
            return
        tree = inner
    tree.setdefault(name, None)


def _lines(texts: pa.StringArray) -> bytes:
    """The texts, with a line break after each."""
    lines = pc.binary_join_element_wise(texts, "\n", "")
    offsets = memoryview(lines.buffers()[1]).cast("i")[lines.offset : lines.offset + len(lines) + 1]
    return bytes(memoryview(lines.buffers()[2])[offsets[0] : offsets[-1]])


def _array(values: Sequence[Any], arrow_type: pa.DataType) -> tuple[pa.Array, int]:
    """The values as an array of the type, and how many are not None.

    What is no finite number is null. So is a float that may have been rounded twice: as its text became a
    double, and as that became a float.
    """
    if not pa.types.is_floating(arrow_type):
        found = pa.array(values, arrow_type)
        return found, len(found) - found.null_count
    try:
        found = pa.array(values, pa.float64())
        number = len(found) - found.null_count
    except pa.ArrowInvalid:
        found = pa.array([None if isinstance(value, str) else value for value in values], pa.float64())
        number = sum(value is not None for value in values)
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
    return found, number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        found.clear()
        for name, value in pairs:
            found[name] = _both(found[name], value) if name in found else value
    return found


def _both(first: Any, second: Any) -> Any:
    """What two values with the same key say together."""
    if isinstance(first, dict) and isinstance(second, dict):
        return _object([*first.items(), *second.items()])
    return _SEVERAL


_PRECISE_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=lambda constant: None)


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
