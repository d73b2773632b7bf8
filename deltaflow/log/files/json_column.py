"""Arrow columns as JSON text, whole columns at a time, and the fields of such columns."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

_NO_NUMBERS = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def field_of(values: Any, name: str) -> Any:
    """The field of this name of structs, an array or a chunked one: null where a struct is null.

    pyarrow.ArrowInvalid without such a field. pyarrow itself takes a name that begins with "." or "[" for a
    path, to the field of another name.
    """
    number = values.type.get_field_index(name)
    if number < 0:
        raise pa.ArrowInvalid(f"no field {name}")
    return pc.struct_field(values, number)


def json_column(values: pa.Array, *, naive_is_utc: bool = False) -> pa.Array:
    """One JSON text a row, null where the row is null.

    A struct is an object of its fields that are not null; a map is an object that keeps its nulls.
    Instants are ISO 8601 with "Z"; `naive_is_utc` says that timestamps without a zone are instants, too
    (Parquet's INT96). Numbers that JSON lacks are strings ("NaN"), as Spark writes them. What has no form in
    JSON (binary) is null.
    """
    return _texts(values, naive_is_utc)


def timestamp_texts(values: pa.Array, *, naive_is_utc: bool = False) -> pa.Array:
    """Timestamps as in JSON, without the quotes."""
    is_instant = values.type.tz is not None or naive_is_utc
    texts = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.timestamp("us")).cast(pa.string())
    return _wrapped("", pc.replace_substring(texts, " ", "T"), "Z" if is_instant else "")


def _texts(values: pa.Array, naive_is_utc: bool) -> pa.Array:
    arrow_type = values.type
    if pa.types.is_struct(arrow_type):
        return _objects(values, naive_is_utc)
    if pa.types.is_map(arrow_type):
        return _maps(values, naive_is_utc)
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        elements = pc.coalesce(_texts(values.values, naive_is_utc), pa.scalar("null"))
        return _wrapped("[", _joined(values, elements), "]")
    if pa.types.is_boolean(arrow_type) or pa.types.is_integer(arrow_type) or pa.types.is_decimal(arrow_type):
        return values.cast(pa.string())
    if pa.types.is_floating(arrow_type):
        texts = values.cast(pa.string())
        for name, text in _NO_NUMBERS.items():
            texts = pc.if_else(pc.equal(texts, name), text, texts)
        return texts
    if pa.types.is_timestamp(arrow_type):
        return _wrapped('"', timestamp_texts(values, naive_is_utc=naive_is_utc), '"')
    if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type):
        return _quoted(values.cast(pa.string()))
    if pa.types.is_date(arrow_type):
        return _wrapped('"', values.cast(pa.string()), '"')
    return pa.nulls(len(values), pa.string())


def _objects(values: pa.StructArray, naive_is_utc: bool) -> pa.Array:
    fields: list[Any] = []
    for field, child in zip(values.type, values.flatten(), strict=True):
        if child.null_count < len(child):
            name = f",{msgspec.json.encode(field.name).decode()}:"
            fields.append(pc.coalesce(_wrapped(name, _texts(child, naive_is_utc), ""), pa.scalar("")))
    if not fields:
        return pc.if_else(values.is_valid(), "{}", pa.scalar(None, pa.string()))
    joined = pc.binary_join_element_wise("{", *fields, "}", "")
    # Only the first of the object's own commas can follow its own brace.
    joined = pc.replace_substring(joined, "{,", "{", max_replacements=1)
    return pc.if_else(values.is_valid(), joined, pa.scalar(None, pa.string()))


def _maps(values: pa.MapArray, naive_is_utc: bool) -> pa.Array:
    items = pc.coalesce(_texts(values.items, naive_is_utc), pa.scalar("null"))
    entries = pc.binary_join_element_wise(_quoted(values.keys.cast(pa.string())), items, ":")
    return _wrapped("{", _joined(values, entries), "}")


def _joined(lists: pa.Array, texts: pa.Array) -> pa.Array:
    """The texts of the elements of each list, joined by commas; null where the list is null."""
    joined = pc.binary_join(pa.ListArray.from_arrays(lists.offsets.cast(pa.int32()), texts), ",")
    return pc.if_else(lists.is_valid(), joined, pa.scalar(None, pa.string()))


def _wrapped(before: str, texts: pa.Array, after: str) -> pa.Array:
    return pc.binary_join_element_wise(before, texts, after, "")


def _quoted(texts: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
        quoted = [None if text is None else msgspec.json.encode(text).decode() for text in texts.to_pylist()]
        return pa.array(quoted, pa.string())
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return _wrapped('"', escaped, '"')
