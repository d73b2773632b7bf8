"""Debezium's messages, for tests."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

Json = dict[str, Any]


def field(name: str, kind: str, logical: str | None = None, **parameters: object) -> Json:
    """A field of a schema part."""
    schema: Json = {"field": name, "type": kind, "optional": True}
    if logical is not None:
        schema |= {"name": logical, "version": 1}
    if parameters:
        schema["parameters"] = {key.replace("_", "."): str(value) for key, value in parameters.items()}
    return schema


def decimal(name: str, precision: int, scale: int) -> Json:
    """A field of decimals."""
    logical = "org.apache.kafka.connect.data.Decimal"
    return field(name, "bytes", logical, scale=scale, connect_decimal_precision=precision)


def array(name: str, element: Json) -> Json:
    """A field of arrays."""
    items = {key: value for key, value in element.items() if key != "field"}
    return {"field": name, "type": "array", "items": items, "optional": True}


def unscaled(text: str) -> str:
    """The base64 of a decimal's unscaled value, in as few bytes as Java takes."""
    sign, digits, _ = Decimal(text).as_tuple()
    value = int("".join(map(str, digits))) * (-1 if sign else 1)
    length = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return base64.b64encode(value.to_bytes(length, "big", signed=True)).decode()


def event(
    op: str,
    after: Json | None = None,
    before: Json | None = None,
    *,
    lsn: int = 100,
    commit_lsn: int | None = None,
    table: str = "people",
    **source: object,
) -> Json:
    """A change event of PostgreSQL."""
    place = {
        "connector": "postgresql",
        "db": "shop",
        "schema": "public",
        "table": table,
        "lsn": lsn,
        "sequence": json.dumps([None if commit_lsn is None else str(commit_lsn), str(lsn)]),
    }
    return {
        "before": before,
        "after": after,
        "source": place | source,
        "op": op,
        "ts_ms": 1,
        "transaction": None,
    }


def with_schema(columns: Sequence[Json], message: Mapping[str, Any]) -> str:
    """The event as a message with a schema part."""
    row = {"type": "struct", "fields": list(columns), "optional": True, "name": "shop.public.people.Value"}
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, field("op", "string")]
    schema = {"type": "struct", "fields": fields, "name": "shop.public.people.Envelope", "optional": False}
    return json.dumps({"schema": schema, "payload": message})
