"""The one object that Spark's JVM calls: it finds the Python function for a method name.

Requests and answers are JSON objects, each with a class of its own (see `Message`). An answer with bulk data
is the bytes of an Arrow stream. Errors are answers, too, which the Java side throws on Spark's thread. What
Python keeps between two calls, such as an open write or source, has an integer handle that the JVM chose.
An error of Spark that passed through Python goes back as the Java exception that it was.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

import msgspec
from py4j.java_gateway import JavaObject
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException

from deltaflow.errors import DeltaError, DeltaIllegalStateException
from deltaflow.spark.bridge.messages import ErrorAnswer, ErrorDescription, Message, NoFields

_LOG = logging.getLogger(__name__)

Answer = Message | bytes | None
Handler = Callable[[Any], Answer]
_AnyHandler = TypeVar("_AnyHandler", bound=Handler)

# An abort may overtake the call that opens what it aborts. There are never so many of them at once.
_REMEMBERED_RELEASES = 1_000
# Exceptions are kept for the caller of a batch operation. Spark may throw the same exception again, and shows
# only the message of a stream's exception, so that no exception is known to be unneeded: the oldest ones are
# dropped.
_KEPT_ERRORS = 64
_NO_KIND = "INTERNAL_ERROR", "XX000"


class Dispatcher:
    """Answers the JVM's calls; thread-safe, since every stream calls from threads of its own."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._decoders: dict[str, msgspec.json.Decoder[Any]] = {}
        self._errors: OrderedDict[int, BaseException] = OrderedDict()
        self._error_ids = itertools.count(1)
        self._lock = threading.Lock()
        self._handles: dict[int, Any] = {}
        self._released_early: OrderedDict[int, None] = OrderedDict()

    def handle(self, method: str) -> Callable[[_AnyHandler], _AnyHandler]:
        """Decorator: the function answers calls of `method`, whose requests have its parameter's type."""

        def add(function: _AnyHandler) -> _AnyHandler:
            self.answer(method, function, request_type(function))
            return function

        return add

    def answer(self, method: str, function: Handler, request: Any) -> None:
        """Registers the function for calls of `method`, whose requests have the type `request`."""
        self._handlers[method] = function
        self._decoders[method] = msgspec.json.Decoder(request)

    @property
    def request_types(self) -> dict[str, Any]:
        """The type of the requests of every method."""
        return {method: decoder.type for method, decoder in self._decoders.items()}

    def keep(self, handle: int, value: Any) -> None:
        """Keeps `value` under the JVM's `handle` until its release; not at all if the release came first."""
        with self._lock:
            if handle in self._released_early:
                del self._released_early[handle]
            else:
                self._handles[handle] = value

    def find(self, handle: int) -> Any | None:
        """The value that is kept under `handle`; None if the handle was released."""
        return self._handles.get(handle)

    def release(self, handle: int) -> Any | None:
        """Forgets `handle` and returns its value; None if nothing is kept under it, now or yet."""
        with self._lock:
            if handle not in self._handles:
                self._released_early[handle] = None
                while len(self._released_early) > _REMEMBERED_RELEASES:
                    self._released_early.popitem(last=False)
            return self._handles.pop(handle, None)

    @property
    def open_handles(self) -> int:
        """The number of handles that are kept, for tests."""
        return len(self._handles)

    def apply(self, method: str, request: str) -> str | bytes | JavaObject:
        """BiFunction.apply, called by the JVM. Raises nothing, since py4j would lose the exception."""
        try:
            answer = self._handlers[method](self._decoded(method, request))
            if isinstance(answer, bytes):
                return answer
            return msgspec.json.encode(NoFields() if answer is None else answer).decode()
        except BaseException as error:  # KeyboardInterrupt included: it goes to the caller as it is
            return _error_of_spark(error) or self._error_answer(error)

    def _decoded(self, method: str, request: str) -> Any:
        decoder = self._decoders[method]
        try:
            return decoder.decode(request)
        except msgspec.ValidationError as error:
            raise DeltaIllegalStateException(
                error_class="DELTA_MALFORMED_REQUEST", method=method, fault=str(error)
            ) from error

    def _error_answer(self, error: BaseException) -> str:
        if not isinstance(error, DeltaError):
            _LOG.debug("callback failed", exc_info=error)
        with self._lock:
            error_id = next(self._error_ids)
            self._errors[error_id] = error
            while len(self._errors) > _KEPT_ERRORS:
                self._errors.popitem(last=False)
        condition, sql_state = _condition(error)
        described = ErrorDescription(
            id=error_id,
            message=_message(error),
            condition=condition,
            sql_state=sql_state,
            error_name=error.name if isinstance(error, DeltaError) else None,
        )
        return msgspec.json.encode(ErrorAnswer(error=described)).decode()

    def find_error(self, error_id: int) -> BaseException | None:
        """The exception behind a DeltaFlowException; None if it has been dropped."""
        with self._lock:
            return self._errors.get(error_id)

    class Java:
        implements = ("java.util.function.BiFunction",)


def request_type(function: Callable[..., Any]) -> Any:
    """The type of a function's one parameter."""
    hints = get_type_hints(function)
    hints.pop("return")
    (request,) = hints.values()
    return request


def _error_of_spark(error: BaseException) -> JavaObject | None:
    """The Java exception that PySpark has made the error of, if Spark knows it by a condition; else None.

    Clients of Spark Connect know its class, which a DeltaFlowException would hide.
    """
    if not isinstance(error, CapturedException) or error._origin is None:
        return None
    return error._origin if error.getCondition() and error.getSqlState() else None


def _condition(error: BaseException) -> tuple[str, str]:
    """The condition and SQLSTATE by which a handler of an SQL script knows the error.

    Spark's scripts fail on an error that lacks one of them: it gets those of Spark for errors of no kind.
    """
    if not isinstance(error, DeltaError | PySparkException):
        return _NO_KIND
    return error.getCondition() or _NO_KIND[0], error.getSqlState() or _NO_KIND[1]


def _message(error: BaseException) -> str:
    """The message of any exception as text that JSON can encode."""
    try:
        message = str(error)
    except Exception as failure:  # an exception's own __str__ may fail
        message = f"{type(error).__name__} (its message cannot be shown: {failure!r})"
    return (message or type(error).__name__).encode("utf-8", "replace").decode()


dispatcher = Dispatcher()
"""The dispatcher of this process. Handlers are added when `batch` and `streaming` are imported."""
