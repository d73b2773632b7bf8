"""JSON objects as structs: each text alone says what its struct is, whatever the other texts are like."""

from __future__ import annotations

from decimal import Decimal
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


@pytest.mark.parametrize(
    ("arrow_type", "value", "expected"),
    [
        (pa.decimal128(10, 5), "54975581", None),
        (pa.decimal128(10, 2), "9999999999", None),
        (pa.decimal128(10, 2), "12345678.9", Decimal("12345678.90")),
        (pa.decimal128(10, 2), '"1.5"', Decimal("1.50")),
        (pa.decimal128(10, 2), '"one"', None),
        (pa.decimal128(38, 10), "1e-1000000000", None),
        (pa.decimal128(38, 10), '"1e-1000000000"', None),
        (pa.decimal128(38, 10), '["1e-1000000000"]', None),
        (pa.decimal128(38, 10), '"1e0xC0000000"', None),
        (pa.decimal128(38, 10), '"80000001e+-80000001"', None),
        (pa.decimal128(38, 10), '"an e-10 in a text"', None),
        (pa.float64(), "[]", None),
        (pa.float64(), '{"x":1}', None),
        (pa.float64(), "1e999", None),
        (pa.float32(), "1e39", None),
        (pa.string(), '"1e-1000000000"', "1e-1000000000"),
    ],
)
def test_values_at_the_ends_of_their_types(arrow_type: pa.DataType, value: str, expected: Any) -> None:
    struct_type = pa.struct([("n", pa.int64()), ("v", arrow_type)])
    text, sound, unsound = f'{{"n":1,"v":{value}}}', '{"n":2}', "no object"
    for texts in ([text], [sound, text, sound], [text, unsound]):
        found = structs_of_fitting_fields(pa.array(texts), struct_type)
        found.validate(full=True)
        assert found[texts.index(text)].as_py() == {"n": 1, "v": expected}


@pytest.mark.parametrize("text", ['{"s":{"t":"a\nb"}}', '{"s":{"t":"\r"}}', '{"n":1,"\n":2}', '{"n":NaN}'])
def test_texts_that_are_no_json_are_null_beside_any_others(text: str) -> None:
    for texts in ([text], [SOUND, text], [text, "{"]):
        assert structs([*texts])[texts.index(text)] is None
    struct_type = pa.struct([("n", pa.float64())])
    for texts in (['{"n":NaN}'], ['{"n":-Infinity}', '{"n":1}']):
        assert structs_of_fitting_fields(pa.array(texts), struct_type)[0].as_py() is None
