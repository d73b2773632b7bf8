"""JSON of a table's directory or of a stream's checkpoint: anybody may have written it."""

from __future__ import annotations

from typing import Any, TypeVar, overload

import msgspec

_T = TypeVar("_T")


@overload
def decode_json(json: bytes | str | msgspec.Raw) -> Any: ...


@overload
def decode_json(json: bytes | str | msgspec.Raw, as_type: type[_T]) -> _T: ...


def decode_json(json: bytes | str | msgspec.Raw, as_type: Any = Any) -> Any:
    """As `msgspec.json.decode`; msgspec.DecodeError also for values too deep within others, and for text that
    is no UTF-8."""
    try:
        return msgspec.json.decode(json, type=as_type)
    except (RecursionError, UnicodeError) as error:
        raise msgspec.DecodeError(str(error)) from error
