"""JSON text to Arrow columns, whole columns at a time: the way back from `json_column`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from deltaflow.log.files.text_casts import cast_or_null

_DECODER = msgspec.json.Decoder(float_hook=Decimal)
_FEW = 256


def structs_of(texts: pa.StringArray, kind: pa.StructType) -> pa.StructArray:
    """A struct for each JSON object, null for null; fields that `kind` lacks are left out.

    Dates and timestamps are strings in the texts. A text that is no object of this kind gives null.
    """
    return _structs(texts, kind, fitting=False)


def fitting_fields_of(texts: pa.StringArray, kind: pa.StructType) -> pa.StructArray:
    """As `structs_of`, but a value that does not fit its field is null alone, and the others stay."""
    return _structs(texts, kind, fitting=True)


def _structs(texts: pa.StringArray, kind: pa.StructType, *, fitting: bool) -> pa.StructArray:
    if len(texts) == 0:
        return pa.array([], kind)
    return pa.concat_arrays(list(_parsed(texts, kind, fitting=fitting)))


def kind_of(texts: Iterable[pa.StringArray], known: pa.StructType) -> pa.StructType:
    """The kind of struct that all of these JSON objects fit: of `known`, and of fields beyond it.

    pyarrow.ArrowInvalid or ArrowTypeError if a field has values of several kinds.
    """
    found = pa.schema(list(known))
    for part in texts:
        inferred = _inferred(part.drop_null(), pa.schema(list(known)))
        found = pa.unify_schemas([found, inferred], promote_options="permissive")
    return pa.struct(list(found))


def _parsed(texts: pa.StringArray, kind: pa.StructType, *, fitting: bool) -> Iterable[pa.StructArray]:
    schema = pa.schema(list(_with_times_as_strings(kind)))
    options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        table = _read(texts, options)
        columns = [table[field.name].combine_chunks().cast(field.type) for field in kind]
        parsed = pa.StructArray.from_arrays(columns, fields=list(kind), mask=texts.is_null())
    except pa.ArrowInvalid:
        # The texts that spoil the others are looked for by halves.
        if fitting and len(texts) <= _FEW:
            yield _fitting([_object(text) for text in texts.to_pylist()], kind)
        elif len(texts) == 1:
            yield pa.nulls(1, kind)
        else:
            middle = len(texts) // 2
            yield from _parsed(texts.slice(0, middle), kind, fitting=fitting)
            yield from _parsed(texts.slice(middle), kind, fitting=fitting)
    else:
        yield parsed


def _object(text: str | None) -> Any:
    try:
        return None if text is None else _DECODER.decode(text)
    except msgspec.DecodeError:
        return None


def _fitting(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """JSON values as an array of the type, null for one that is none of it."""
    if pa.types.is_struct(kind):
        objects = [value if isinstance(value, dict) else None for value in values]
        fields = [
            _fitting([None if each is None else each.get(field.name) for each in objects], field.type)
            for field in kind
        ]
        mask = pa.array([each is None for each in objects])
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=mask)
    if pa.types.is_string(kind) or pa.types.is_temporal(kind):
        texts = pa.array([value if isinstance(value, str) else None for value in values], pa.string())
        return cast_or_null(texts, kind)
    return pa.array([_fitting_value(value, kind) for value in values], kind)


def _fitting_value(value: Any, kind: pa.DataType) -> Any:
    if value is None or isinstance(value, str) or isinstance(value, bool) is not pa.types.is_boolean(kind):
        return None
    try:
        return pa.scalar(float(value) if pa.types.is_floating(kind) else value, kind).as_py()
    except (pa.ArrowException, OverflowError, ValueError):
        return None


def _read(texts: pa.StringArray, options: pj.ParseOptions) -> pa.Table:
    lines = pc.replace_substring_regex(pc.coalesce(texts, pa.scalar("{}")), r"[\r\n]", " ")
    lines = pc.binary_join_element_wise(lines, "\n", "")
    size: int = pc.sum(pc.binary_length(lines)).as_py()
    content = lines.buffers()[2].slice(0, size)
    # One block: the kinds of several are not unified.
    reading = pj.ReadOptions(use_threads=False, block_size=size + 1)
    table = pj.read_json(pa.BufferReader(content), reading, options)
    if table.num_rows != len(texts):
        raise pa.ArrowInvalid("a text is not one JSON object")
    return table


def _inferred(texts: pa.StringArray, known: pa.Schema) -> pa.Schema:
    if len(texts) == 0:
        return known
    schema = _read(texts, pj.ParseOptions(explicit_schema=known)).schema
    as_text = pa.schema([field.with_type(_without_instants(field.type)) for field in schema])
    if as_text == schema:
        return schema
    # Text that looks like an instant is text all the same.
    return _read(texts, pj.ParseOptions(explicit_schema=as_text)).schema


def _without_instants(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_instants(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_without_instants(kind.value_type))
    return kind


def _with_times_as_strings(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_times_as_strings(field.type)) for field in kind])
    return kind
