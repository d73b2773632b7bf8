"""Arguments of the Python API: their types, with the errors that users of `delta.tables` know."""

from __future__ import annotations

from typing import Any


def check_string(value: Any, name: str) -> str:
    """The value; ValueError unless it is a str."""
    return _checked(value, name, str, "a string")


def check_integer(value: Any, name: str) -> int:
    """The value; ValueError unless it is an int."""
    return _checked(value, name, int, "an int")


def check_boolean(value: Any, name: str) -> bool:
    """The value; ValueError unless it is a bool."""
    return _checked(value, name, bool, "a boolean")


def check_dictionary(value: Any, name: str) -> dict[Any, Any]:
    """The value; ValueError unless it is a dict."""
    return _checked(value, name, dict, "a dict")


def _checked(value: Any, name: str, expected: type, wanted: str) -> Any:
    if not isinstance(value, expected):
        raise ValueError(f"{name} needs to be {wanted} but got '{type(value)}'.")
    return value
