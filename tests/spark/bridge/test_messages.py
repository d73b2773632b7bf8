"""Requests and answers have types: what does not fit one is an error that names the method and the field."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

import deltaflow.batch  # with the next two, all functions that answer the JVM
import deltaflow.streaming.sink
import deltaflow.streaming.source
import deltaflow.streaming.source_start  # noqa: F401
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
    assert isinstance(error, DeltaIllegalStateException)
    assert error.parameters["method"] == "x.ask"


# What Java sends and reads

WRITE = "write/FileWrite.java"
GENERATED = "sql/GenerationExpressions.java"
# The other classes that put together parts of a request.
PARTS = {
    "catalog.check": [GENERATED],
    "catalog.commit": [GENERATED],
    "changes.load": ["DeltaProvider.java"],
    "read": ["DeltaProvider.java"],
    "source.start": ["scan/SourceFilter.java"],
    "statement.run": ["sql/TableNames.java"],
    "write.begin.batch": [WRITE],
    "write.begin.frame": [WRITE],
    "write.begin.stream": [WRITE],
    "write.begin.tableAsSelect": [WRITE, GENERATED, "sql/DeltaV1Write.java"],
}


def calls() -> dict[str, list[list[Path]]]:
    """For each method the classes that call it, each with its PARTS."""
    found: dict[str, list[list[Path]]] = {}
    for file in sorted(JAVA.rglob("*.java")):
        text = file.read_text()
        writes = re.findall(r'FileWrite\.run\([^;]*?, "(\w+)", \w+(?:, \w+)?\)', text)
        methods = re.findall(r'Python\.call\w*\(\s*"([\w.]+)",', text)
        for method in {*methods, *(f"write.begin.{name}" for name in writes)}:
            found.setdefault(method, []).append([file, *(JAVA / part for part in PARTS.get(method, []))])
    return found


def puts(variable: str, *files: Path) -> set[str]:
    """The names that classes put into maps."""
    return {name for file in files for name in re.findall(variable + r'\.put\(\s*"(\w+)"', file.read_text())}


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


METHODS = sorted(dispatcher.request_types)


def test_java_calls_the_methods_that_python_answers_and_no_others() -> None:
    assert sorted(calls()) == METHODS


@pytest.mark.parametrize("method", METHODS)
def test_every_request_and_answer_has_a_type(method: str) -> None:
    answer = get_type_hints(dispatcher._handlers[method])["return"]
    assert issubclass(dispatcher.request_types[method], Message)
    assert answer in (bytes, type(None)) or issubclass(answer, Message)


@pytest.mark.parametrize("method", METHODS)
def test_java_sends_the_fields_of_the_type(method: str) -> None:
    for files in calls()[method]:
        assert field_names(dispatcher.request_types[method]) - puts("", *files) == set()


def test_java_sends_no_other_fields() -> None:
    known: dict[Path, set[str]] = {}
    for method, callers in calls().items():
        for file in {file for files in callers for file in files}:
            known.setdefault(file, set()).update(field_names(dispatcher.request_types[method]))
    for file, fields in known.items():
        assert puts(r"\brequest", file) - fields == set(), file


@pytest.mark.parametrize("method", METHODS)
def test_java_reads_the_fields_of_the_answer(method: str) -> None:
    answer = get_type_hints(dispatcher._handlers[method])["return"]
    if answer in (bytes, type(None)):
        return
    texts = (file.read_text() for file in JAVA.rglob("*.java"))
    assert field_names(answer) - {name for text in texts for name in re.findall(r'"(\w+)"', text)} == set()
