"""The base class of the messages between the JVM and Python, and the messages that all rooms use.

Each room declares the requests and answers of its own calls.
"""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A request or an answer, whose fields have names in camelCase in JSON.

    A request has no defaults: the JVM sends every field, which may be null.
    """


class NoFields(Message, frozen=True):
    """A request without fields."""


class HandleRequest(Message, frozen=True):
    """A request with nothing but a handle."""

    handle: int


class ErrorDescription(Message, frozen=True):
    """An exception as Spark shows it, and the number under which Python keeps it."""

    id: int
    message: str
    condition: str
    sql_state: str
    error_name: str | None
    """The name of its class in deltaflow.errors; None for any other exception."""


class ErrorAnswer(Message, frozen=True):
    """The answer of a call that raised."""

    error: ErrorDescription
