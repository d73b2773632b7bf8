"""Requests and answers have types: what does not fit one is an error that names the method and the field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

import deltaflow.batch
import deltaflow.streaming  # noqa: F401 - with batch, all functions that answer the JVM
from deltaflow.errors import DeltaIllegalStateException
from deltaflow.spark.bridge.dispatcher import Dispatcher, dispatcher
from deltaflow.spark.bridge.messages import Message

JAVA = Path(__file__).parents[3] / "deltaflow/spark/java"


class Inner(Message, frozen=True):
    at: int


class Asked(Message, frozen=True):
    handle: int
    time_zone: str | None
    inner: list[Inner]


class Answered(Message, frozen=True):
    is_known: bool


@pytest.fixture
def own() -> Dispatcher:
    own = Dispatcher()

    @own.handle("x.ask")
    def ask(request: Asked) -> Answered:
        return Answered(is_known=request.handle == 1 and request.time_zone is None)

    @own.handle("x.tell")
    def tell(request: Asked) -> None:
        return None

    @own.handle("x.bytes")
    def give(request: Asked) -> bytes:
        return b"arrow"

    return own


REQUEST: dict[str, Any] = {"handle": 1, "timeZone": None, "inner": [{"at": 3}]}


def test_names_are_in_camel_case(own: Dispatcher) -> None:
    assert own.apply("x.ask", json.dumps(REQUEST)) == '{"isKnown":true}'
    assert own.apply("x.tell", json.dumps(REQUEST)) == "{}"
    assert own.apply("x.bytes", json.dumps(REQUEST)) == b"arrow"


@pytest.mark.parametrize(
    ("request_", "fault"),
    [
        ({"handle": 1, "inner": []}, "missing required field `timeZone`"),
        (REQUEST | {"time_zone": None}, "unknown field `time_zone`"),
        (REQUEST | {"handle": "1"}, r"Expected `int`, got `str` - at `\$.handle`"),
        (REQUEST | {"inner": [{}]}, r"missing required field `at` - at `\$.inner\[0\]`"),
    ],
    ids=["missing", "too much", "another type", "within"],
)
def test_what_does_not_fit_is_named(own: Dispatcher, request_: dict[str, Any], fault: str) -> None:
    answer = json.loads(own.apply("x.ask", json.dumps(request_)))["error"]
    assert answer["condition"] == "DELTA_MALFORMED_REQUEST"
    assert answer["sqlState"] == "XX000"
    assert "x.ask" in answer["message"]
    assert re.search(fault, answer["message"])
    error = own.find_error(answer["id"])
    assert type(error) is DeltaIllegalStateException
    assert error.parameters["method"] == "x.ask"


# What Java sends and reads


def calls() -> dict[str, set[Path]]:
    """The files that call each method."""
    found: dict[str, set[Path]] = {}
    for file in JAVA.rglob("*.java"):
        for method in re.findall(r'Python\.call\w*\(\s*"([\w.]+)"', file.read_text()):
            found.setdefault(method, set()).add(file)
    return found


def field_names(type_: Any) -> set[str]:
    """The names, in JSON, of the fields of a message and of those within it."""
    return _names(msgspec.inspect.type_info(type_))


def _names(info: msgspec.inspect.Type) -> set[str]:
    match info:
        case msgspec.inspect.StructType(fields=fields):
            return {field.encode_name for field in fields}.union(*(_names(field.type) for field in fields))
        case msgspec.inspect.UnionType(types=types):
            return set[str]().union(*map(_names, types))
        case msgspec.inspect.ListType(item_type=item):
            return _names(item)
        case msgspec.inspect.DictType(value_type=value):
            return _names(value)
    return set()


def is_typed(method: str) -> bool:
    request = dispatcher.request_types[method]
    return isinstance(request, type) and issubclass(request, Message)


TYPED = sorted(filter(is_typed, dispatcher.request_types))
# Where a part of a request is put together that another class sends.
PARTS = {
    "source.start": ["scan/SourceFilter.java"],
    "statement.output": ["sql/TableNames.java"],
    "statement.run": ["sql/TableNames.java"],
}


def java(files: set[Path]) -> str:
    return "\n".join(file.read_text() for file in sorted(files))


def names_put(text: str) -> set[str]:
    return set(re.findall(r'\.put\("(\w+)"', text))


def test_java_calls_the_methods_that_python_answers_and_no_others() -> None:
    assert calls().keys() == dispatcher.request_types.keys()


@pytest.mark.parametrize("method", TYPED)
def test_java_sends_the_fields_of_the_type(method: str) -> None:
    files = calls()[method] | {JAVA / part for part in PARTS.get(method, [])}
    assert field_names(dispatcher.request_types[method]) - names_put(java(files)) == set()


def senders() -> Iterator[tuple[Path, set[str]]]:
    """The classes that send typed requests alone, and the methods that they call."""
    methods: dict[Path, set[str]] = {}
    for method, files in calls().items():
        for file in files:
            methods.setdefault(file, set()).add(method)
    for file, called in sorted(methods.items()):
        if "TableWrite.run(" not in file.read_text() and called <= set(TYPED):
            yield file, called


@pytest.mark.parametrize(("file", "called"), [*senders()], ids=lambda value: getattr(value, "stem", ""))
def test_java_sends_no_other_fields(file: Path, called: set[str]) -> None:
    sent = set(re.findall(r'\brequest\.put\("(\w+)"', file.read_text()))
    assert sent <= set[str]().union(*(field_names(dispatcher.request_types[method]) for method in called))


@pytest.mark.parametrize("method", TYPED)
def test_java_reads_the_fields_of_the_answer(method: str) -> None:
    answer = get_type_hints(dispatcher._handlers[method])["return"]
    if answer in (bytes, type(None)):
        return
    read = set(re.findall(r'"(\w+)"', java(set(JAVA.rglob("*.java")))))
    assert field_names(answer) - read == set()
