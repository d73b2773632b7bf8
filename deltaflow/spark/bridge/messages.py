"""The base of what the JVM and Python say to each other, and the messages that every call may need.

Each room declares the requests and answers of its own calls beside the functions that answer them.
"""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A request or an answer: plain values, whose names are in camelCase in JSON.

    A request has no defaults: the JVM gives every field, null where there is nothing to say.
    """


class NoFields(Message, frozen=True):
    """A request that its method's name says all of."""


class HandleRequest(Message, frozen=True):
    """A request about what is kept under a handle."""

    handle: int


class ErrorDescription(Message, frozen=True):
    """An exception as Spark shows it, and the number by which Python finds it again."""

    id: int
    message: str
    condition: str | None
    sql_state: str | None


class ErrorAnswer(Message, frozen=True):
    """The answer of a call that raised."""

    error: ErrorDescription
