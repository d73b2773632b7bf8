"""JSON text to Arrow columns, whole columns at a time: the way back from `json_column`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from deltaflow.log.files.text_casts import MAY_BE_TOO_FINE, cast_or_null, is_too_fine

_DECODER = msgspec.json.Decoder(float_hook=Decimal)
_FEW = 256
_NULL_AFTER_OBJECT = re.compile(rb"\}\s*null")
"""Where pyarrow 26 ends the process, if the null is not in an object; at one before all objects, too."""


def structs_from_json(texts: pa.StringArray, struct_type: pa.StructType) -> pa.StructArray:
    """A struct for each JSON object, null for null; fields that `struct_type` lacks are left out.

    Dates and timestamps are strings in the texts. A text that is not an object of this type gives null.
    """
    return _structs(texts, struct_type, fitting=False)


def structs_of_fitting_fields(texts: pa.StringArray, struct_type: pa.StructType) -> pa.StructArray:
    """As `structs_from_json`, but a value that does not fit its field is null alone, and the others stay."""
    return _structs(texts, struct_type, fitting=True)


def _structs(texts: pa.StringArray, struct_type: pa.StructType, *, fitting: bool) -> pa.StructArray:
    if len(texts) == 0:
        return pa.array([], struct_type)
    return pa.concat_arrays(list(_parsed(texts, struct_type, fitting=fitting)))


def struct_type_of(texts: Iterable[pa.StringArray], known: pa.StructType) -> pa.StructType:
    """The struct type that all of these JSON objects fit: the fields of `known`, and those that they add.

    pyarrow.ArrowInvalid or ArrowTypeError if a field has values of several types.
    """
    found = pa.schema(list(known))
    for part in texts:
        inferred = _inferred(part.drop_null(), pa.schema(list(known)))
        found = pa.unify_schemas([found, inferred], promote_options="permissive")
    return pa.struct(list(found))


def _parsed(texts: pa.StringArray, struct_type: pa.StructType, *, fitting: bool) -> Iterable[pa.StructArray]:
    schema = pa.schema(list(_with_times_as_strings(struct_type)))
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        if _has_decimals(struct_type):
            _check_decimals(texts)
        fields = _read(texts, options)
        columns = [fields[field.name].combine_chunks().cast(field.type) for field in struct_type]
        parsed = pa.StructArray.from_arrays(columns, fields=list(struct_type), mask=texts.is_null())
    except pa.ArrowInvalid:
        # Texts that cannot be parsed are searched by halves.
        if fitting and len(texts) <= _FEW:
            yield _fitting([_object(text) for text in texts.to_pylist()], struct_type)
        elif len(texts) == 1:
            yield pa.nulls(1, struct_type)
        else:
            middle = len(texts) // 2
            yield from _parsed(texts.slice(0, middle), struct_type, fitting=fitting)
            yield from _parsed(texts.slice(middle), struct_type, fitting=fitting)
    else:
        yield parsed


def _has_decimals(arrow_type: pa.DataType) -> bool:
    return pa.types.is_decimal(arrow_type) or any(
        _has_decimals(arrow_type.field(index).type) for index in range(arrow_type.num_fields)
    )


def _check_decimals(texts: pa.StringArray) -> None:
    """Raises pyarrow.ArrowInvalid for a number, in quotes or not, of which Arrow must make no decimal (see
    MAY_BE_TOO_FINE)."""
    for text in texts.filter(pc.match_substring_regex(texts, MAY_BE_TOO_FINE)).to_pylist():
        found = _object(text)
        if found is None or any(map(is_too_fine, _numbers_and_texts_in(found))):
            raise pa.ArrowInvalid("a number has more digits after the point than a decimal")


def _numbers_and_texts_in(value: Any) -> Iterator[Decimal | str]:
    left = [value]
    while left:
        match left.pop():
            case dict() as found:
                left += found.values()
            case list() as found:
                left += found
            case Decimal() | str() as found:
                yield found


def _object(text: str | None) -> Any:
    try:
        return None if text is None else _DECODER.decode(text)
    except (msgspec.DecodeError, RecursionError, InvalidOperation):
        return None


def _fitting(values: Sequence[Any], arrow_type: pa.DataType) -> pa.Array:
    """JSON values as an array of the type; null for a value that does not fit it."""
    if pa.types.is_struct(arrow_type):
        objects = [value if isinstance(value, dict) else None for value in values]
        fields = [
            _fitting([None if each is None else each.get(field.name) for each in objects], field.type)
            for field in arrow_type
        ]
        mask = pa.array([each is None for each in objects])
        return pa.StructArray.from_arrays(fields, fields=list(arrow_type), mask=mask)
    if pa.types.is_string(arrow_type) or pa.types.is_temporal(arrow_type):
        texts = pa.array([value if isinstance(value, str) else None for value in values], pa.string())
        return cast_or_null(texts, arrow_type)
    return pa.array([_fitting_value(value, arrow_type) for value in values], arrow_type)


def _fitting_value(value: Any, arrow_type: pa.DataType) -> Any:
    if pa.types.is_decimal(arrow_type) and isinstance(value, str):
        return cast_or_null(pa.array([value], pa.string()), arrow_type)[0].as_py()
    if (
        value is None
        or isinstance(value, str | dict | list)
        or isinstance(value, bool) is not pa.types.is_boolean(arrow_type)
        or (isinstance(value, Decimal) and pa.types.is_decimal(arrow_type) and is_too_fine(value))
    ):
        return None
    try:
        found = pa.scalar(float(value) if pa.types.is_floating(arrow_type) else value, arrow_type).as_py()
    except (pa.ArrowException, OverflowError, ValueError):
        return None
    return None if isinstance(found, float) and not math.isfinite(found) else found


def _read(texts: pa.StringArray, options: pj.ParseOptions) -> pa.Table:
    """A row for each text, by these options; one without values for null.

    pyarrow.ArrowInvalid if a text is not one JSON object, or has a value that does not fit.
    """
    if texts.null_count:
        texts = pc.coalesce(texts, pa.scalar("{}"))
    content = bytes(_content(texts))
    if b"\0" in content:  # pyarrow takes it for the end of all texts
        raise pa.ArrowInvalid("a text has a character that no JSON has")
    # Else a text could have two objects, and another one none.
    is_plain = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
    has_breaks = b"\n" in content or b"\r" in content
    if has_breaks:  # none of them may be in a string
        is_plain = pc.and_not(is_plain, pc.match_substring_regex(texts, r"[\r\n]"))
    if _NULL_AFTER_OBJECT.search(content):
        is_plain = pc.and_not(is_plain, pc.match_substring_regex(texts, _NULL_AFTER_OBJECT.pattern))
    if not all(isinstance(_object(text), dict) for text in texts.filter(pc.invert(is_plain)).to_pylist()):
        raise pa.ArrowInvalid("a text is not one JSON object")
    if has_breaks:
        texts = pc.replace_substring_regex(texts, r"[\r\n]", " ")
    lines = _content(pc.binary_join_element_wise(texts, "\n", ""))
    # One block: Arrow does not unify the types that it infers from several.
    reading = pj.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    fields = pj.read_json(pa.BufferReader(lines), reading, options)
    if fields.num_rows != len(texts):
        raise pa.ArrowInvalid("a text is not one JSON object")
    # pyarrow makes decimals of integers with too many digits.
    fields.validate(full=True)
    if not all(map(_is_finite, fields.columns)):
        raise pa.ArrowInvalid("a number is none that JSON has")
    return fields


def _is_finite(values: pa.ChunkedArray) -> bool:
    """Whether no float is NaN or infinite."""
    if pa.types.is_struct(values.type):
        return all(map(_is_finite, values.flatten()))
    return not pa.types.is_floating(values.type) or pc.all(pc.is_finite(values)).as_py() is not False


def _content(texts: pa.StringArray) -> memoryview:
    """The bytes of all texts, one after the other."""
    _, starts, content = texts.buffers()
    offsets = memoryview(starts).cast("i")[texts.offset : texts.offset + len(texts) + 1]
    return memoryview(content or b"")[offsets[0] : offsets[-1]]


def _inferred(texts: pa.StringArray, known: pa.Schema) -> pa.Schema:
    if len(texts) == 0:
        return known
    schema = _read(texts, pj.ParseOptions(explicit_schema=known)).schema
    as_text = pa.schema([field.with_type(_without_instants(field.type)) for field in schema])
    if as_text == schema:
        return schema
    # Arrow takes texts that look like timestamps for such; here they stay texts.
    return _read(texts, pj.ParseOptions(explicit_schema=as_text)).schema


def _without_instants(arrow_type: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(arrow_type):
        return pa.string()
    if pa.types.is_struct(arrow_type):
        return pa.struct([field.with_type(_without_instants(field.type)) for field in arrow_type])
    if pa.types.is_list(arrow_type):
        return pa.list_(_without_instants(arrow_type.value_type))
    return arrow_type


def _with_times_as_strings(arrow_type: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(arrow_type):
        return pa.string()
    if pa.types.is_struct(arrow_type):
        return pa.struct([field.with_type(_with_times_as_strings(field.type)) for field in arrow_type])
    return arrow_type
