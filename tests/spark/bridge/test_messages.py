"""Requests and answers have types: what does not fit one is an error that names the method and the field."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import deltaflow.batch
import deltaflow.streaming  # noqa: F401 - with batch, all functions that answer the JVM
from deltaflow.errors import DeltaIllegalStateException
from deltaflow.spark.bridge.dispatcher import Dispatcher
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
