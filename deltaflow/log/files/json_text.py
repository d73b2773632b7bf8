"""JSON text to Arrow columns, whole columns at a time: the way back from `json_column`."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj


def structs_of(texts: pa.StringArray, kind: pa.StructType) -> pa.StructArray:
    """A struct for each JSON object, null for null; fields that `kind` lacks are left out.

    Dates and instants are strings in the texts. A text that is no object of this kind gives null.
    """
    if len(texts) == 0:
        return pa.array([], kind)
    parsed_kind = _with_dates_as_strings(kind)
    options = pj.ParseOptions(
        explicit_schema=pa.schema(list(parsed_kind)), unexpected_field_behavior="ignore"
    )
    return pa.concat_arrays(list(_parsed(texts, kind, options)))


def kind_of(texts: Iterable[pa.StringArray], known: pa.StructType) -> pa.StructType:
    """The kind of struct that all of these JSON objects fit: of `known`, and of fields beyond it.

    pyarrow.ArrowInvalid or ArrowTypeError if a field has values of several kinds.
    """
    found = pa.schema(list(known))
    for part in texts:
        inferred = _inferred(part.drop_null(), pa.schema(list(known)))
        found = pa.unify_schemas([found, inferred], promote_options="permissive")
    return pa.struct(list(found))


def _parsed(texts: pa.StringArray, kind: pa.StructType, options: pj.ParseOptions) -> Iterable[pa.StructArray]:
    try:
        table = _read(texts, options)
        columns = [table[field.name].combine_chunks().cast(field.type) for field in kind]
        parsed = pa.StructArray.from_arrays(columns, fields=list(kind), mask=texts.is_null())
    except pa.ArrowInvalid:
        # The text that spoils the others is looked for by halves.
        if len(texts) == 1:
            yield pa.nulls(1, kind)
        else:
            middle = len(texts) // 2
            yield from _parsed(texts.slice(0, middle), kind, options)
            yield from _parsed(texts.slice(middle), kind, options)
    else:
        yield parsed


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


def _with_dates_as_strings(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_dates_as_strings(field.type)) for field in kind])
    return kind
