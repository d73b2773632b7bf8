"""JSON objects as structs: each text alone says what its struct is, whatever the other texts are like."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from deltaflow.log.files.json_text import structs_from_json, structs_of_fitting_fields

TYPE = pa.struct([("n", pa.int64()), ("s", pa.struct([("t", pa.string())]))])
SOUND = '{"n":1,"s":{"t":"}\\n{"}}'
OF_SOUND = {"n": 1, "s": {"t": "}\n{"}}


def structs(texts: list[str | None], offset: int = 0) -> list[Any]:
    found = [
        convert(pa.array(texts, pa.string()).slice(offset), TYPE).to_pylist()
        for convert in (structs_from_json, structs_of_fitting_fields)
    ]
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize(
    "text",
    ["", " ", "null", "{} null", "[]", "1", '"s"', "{}{}", "{", "}", "{}\0", "{}\0}", "\ufeff{}"],
)
def test_what_is_not_one_object_is_null(text: str) -> None:
    assert structs([text]) == [None]
    assert structs([SOUND, text, None, SOUND]) == [OF_SOUND, None, None, OF_SOUND]
    assert structs([text, SOUND, SOUND], offset=1) == [OF_SOUND, OF_SOUND]


def test_objects_of_one_text_become_no_other_texts() -> None:
    """Together these are as many objects as texts."""
    for first, second in (("{}" + SOUND, ""), ('{"s":{}', ',"n":2}'), (SOUND + "{}", "{}\0}")):
        assert structs([first, second, SOUND]) == [None, None, OF_SOUND]


@pytest.mark.parametrize("space", [" ", "\n", "\r\n\t"])
def test_white_space(space: str) -> None:
    text = f'{space}{{{space}"n"{space}:{space}1}}{space}'
    assert structs([text, SOUND]) == [{"n": 1, "s": None}, OF_SOUND]
