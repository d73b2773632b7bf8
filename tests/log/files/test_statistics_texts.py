"""Values in the texts of statistics: those that are certain, whatever the other texts are like."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltaflow.log.files.statistics_texts import StatisticsTexts

INT, DOUBLE, FLOAT, STRING = pa.int64(), pa.float64(), pa.float32(), pa.string()
NAMES = ["i", "n", "numRecords", "minValues", "a.b", "x/y", 'say "i"', "back\\slash", "é", "tab\t", " ", ""]
GROUPS = ["minValues", "maxValues", "nullCount"]


def saying(value: Any) -> str:
    """The text of statistics with this bound."""
    return f'{{"numRecords":3,"minValues":{{"i":{value}}}}}'


SOUND = saying(1)


def read(texts: list[str | None], leaves: dict[tuple[str, ...], pa.DataType]) -> list[list[Any]]:
    """The values of each text."""
    found = StatisticsTexts(leaves).values(pa.array(texts, STRING))
    assert [values.type for values in found] == list(leaves.values())
    return [list(values) for values in zip(*(each.to_pylist() for each in found), strict=True)]


def value_of(text: str | None, path: tuple[str, ...], arrow_type: pa.DataType) -> Any:
    """As the standard library reads a text without doubts."""
    value = None if text is None else json.loads(text)
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if arrow_type == INT:
        return value if type(value) is int else None
    if arrow_type == STRING:
        return value if isinstance(value, str) else None
    return float(value) if type(value) in (int, float) else None


values = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
    st.sampled_from([None, True, "NaN", "Infinity", "i", '"i"', ',"i":1}', "}\n{", []]),
)


@st.composite
def documents(draw: st.DrawFn) -> tuple[list[str | None], dict[tuple[str, ...], pa.DataType]]:
    """Texts, and paths in them."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    arrow_type = draw(st.sampled_from([INT, DOUBLE, STRING]))
    inside = draw(st.sampled_from([(), (), ("s",), (names[-1],)]))
    fits = {INT: st.integers(-9, 9), DOUBLE: st.floats(-9, 9), STRING: st.sampled_from(["a", "é", '"', "i"])}

    def an_object(of: st.SearchStrategy[Any]) -> dict[str, Any]:
        likely = st.one_of(of, of, of, values) if draw(st.booleans()) else of
        chosen = draw(st.lists(st.sampled_from(names), unique=True))
        return {name: draw(likely) for name in chosen}

    def a_text() -> str | None:
        if draw(st.integers(0, 9)) == 0:
            return None
        said: dict[str, Any] = {"numRecords": draw(st.integers(0, 9))}
        for group in draw(st.permutations(GROUPS)):
            of = st.integers(0, 9) if group == "nullCount" else fits[arrow_type]
            said[group] = an_object(of)
            if inside and draw(st.booleans()):
                said[group][inside[0]] = an_object(of)
        indent = draw(st.sampled_from([None, None, None, 1]))
        return json.dumps(said, ensure_ascii=draw(st.booleans()), indent=indent)

    leaves = {("numRecords",): INT}
    for group in GROUPS:
        leaves[group, *inside, draw(st.sampled_from(names))] = INT if group == "nullCount" else arrow_type
    return [a_text() for _ in range(draw(st.integers(0, 4)))], leaves


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents())
def test_every_value_is_the_one_that_its_text_has(
    drawn: tuple[list[str | None], dict[tuple[str, ...], pa.DataType]],
) -> None:
    texts, leaves = drawn
    expected = [[value_of(text, path, leaves[path]) for path in leaves] for text in texts]
    assert read(texts, leaves) == expected


LEAVES = {("numRecords",): INT, ("minValues", "i"): INT}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, [None, None]),
        ("", [None, None]),
        ("null", [None, None]),
        ("{}null", [None, None]),
        ("[]", [None, None]),
        ("{}{}", [None, None]),
        (SOUND + "\n" + SOUND, [None, None]),
        (SOUND + ",", [None, None]),
        (SOUND[:-1], [None, None]),
        ("\ufeff" + SOUND, [None, None]),
        (SOUND + "\0", [None, None]),
        ("[" * 100_000, [None, None]),
        ('{"numRecords":3,"other":' + "[" * 100_000 + "]" * 100_000 + "}", [None, None]),
        ('{"numRecords":' + "1" * 5_000 + ',"minValues":{"i":1}}', [None, None]),
        (f" \r\n{SOUND}\t", [3, 1]),
        ('{\n"numRecords" : 3 ,\r\n"minValues" : { "i" : 1 } }', [3, 1]),
        ('{"num\\u0052ecords":3,"minValues":{"\\u0069":1}}', [3, 1]),
        ('{"numRecords":3,"minValues":{"i":1,"i":2}}', [3, 2]),
        ('{"numRecords":3,"minValues":{"i":1,"\\u0069":2}}', [3, 2]),
        ('{"numRecords":3,"minValues":{"i":1,"i" :"x"}}', [3, None]),
        ('{"numRecords":3,"minValues":{"i":"x","i":2}}', [3, 2]),
        ('{"numRecords":3,"minValues":{"i":1},"minValues":{"i":2}}', [3, 2]),
        ('{"numRecords":3,"minValues":{"i":1},"minValues":{}}', [3, None]),
        ('{"numRecords":3,"minValues":{"i":1},"minValues":null}', [3, None]),
        ('{"numRecords":3,"minValues":null,"minValues":{"i":1}}', [3, 1]),
        ('{"numRecords":3,"minValues":{"i":{"i":1}}}', [3, None]),
        ('{"numRecords":2,"numRecords":3,"minValues":{"i":1}}', [3, 1]),
        ('{"numRecords":3,"minValues":{"i":1},"other":{"i":2},"more":"i"}', [3, 1]),
        ('{"numRecords":3,"minValues":{"i":1,"s":"\\"i\\":2"}}', [3, 1]),
        ('{"numRecords":3,"minValues":{"i":1,"d":NaN}}', [3, 1]),
        ('{"numRecords":3,"minValues":{"i":1,"d":1e999,"d":2}}', [3, 1]),
        ('{"numRecords":3,"minValues":{"i":1,"s":"\ud7ff\\ud800"}}', [3, 1]),
        ('{"numRecords":3,"minValues":[]}', [3, None]),
        ('{"numRecords":3,"minValues":{"I":1}}', [3, None]),
        *(
            (saying(value), [3, None])
            for value in (
                "null",
                "true",
                '"1"',
                "1.0",
                "1e2",
                "[1]",
                "{}",
                str(2**63),
                str(-(2**63) - 1),
                "NaN",
            )
        ),
        *((saying(value), [3, int(value)]) for value in ("-0", str(2**63 - 1), str(-(2**63)))),
        *(
            (saying(value), [None, None])
            for value in ("01", "+1", "1.", "tru", "'1'", '"\\q"', '"\1"', "1,", "")
        ),
    ],
)
def test_odd_texts_change_nothing_for_others(text: str | None, expected: list[Any]) -> None:
    assert read([text], LEAVES) == [expected]
    assert read([SOUND, text, None, SOUND], LEAVES) == [[3, 1], expected, [None, None], [3, 1]]


def test_texts_that_only_together_are_as_many_values_as_texts() -> None:
    """The values of a file must not become another file's."""
    for first, second in (
        ('{"minValues":{"i":1}', ',"numRecords":3}'),
        ('{"minValues":{"i":1},"s":[{}', "{}]}"),
        ('{"s":"}', '{"}'),
        ('{"s":"}', '{","numRecords":3}'),
    ):
        found = read([first, second, SOUND + SOUND, "{}" + SOUND, "", SOUND], LEAVES)
        assert found == [[None, None]] * 5 + [[3, 1]]


def test_many_texts_of_which_some_are_odd() -> None:
    texts: list[Any] = [saying(n) for n in range(10_000)]
    expected: list[Any] = [[3, n] for n in range(10_000)]
    for n in (0, 4_095, 4_096, 7_000, 9_999):
        texts[n], expected[n] = "{", [None, None]
    assert read(texts, LEAVES) == expected
    assert [each.to_pylist() for each in StatisticsTexts(LEAVES).values(pa.array(texts).slice(9_998))] == [
        [3, None],
        [9_998, None],
    ]


@pytest.mark.parametrize("arrow_type", [DOUBLE, FLOAT])
def test_numbers_with_fractions(arrow_type: pa.DataType) -> None:
    leaves = {("d",): arrow_type}
    sound = {"0": 0.0, "-0.0": 0.0, "1.5": 1.5, "2": 2.0, "1E2": 100.0, "-25e-2": -0.25, "1e-999": 0.0}
    assert read([f'{{"d":{text}}}' for text in sound], leaves) == [[value] for value in sound.values()]
    for text in (
        "NaN",
        "-Infinity",
        '"NaN"',
        '"+Infinity"',
        "1e999",
        "9" * 400,
        '"1.5"',
        "true",
        "null",
        "[]",
    ):
        assert read([f'{{"d":{text}}}', '{"d":1.5}'], leaves) == [[None], [1.5]]


def test_floats_are_the_nearest_ones_to_their_texts() -> None:
    leaves = {("d",): FLOAT}
    tenth = pa.array([0.1], FLOAT).to_pylist()
    assert read(['{"d":0.1}', '{"d":0.10000000149011612}', '{"d":3.5e38}'], leaves) == [tenth, tenth, [None]]
    # The double next to it lies halfway between two floats, and would become the lower one.
    assert read(['{"d":1.00000005960464477540}', '{"d":1.0000001}'], leaves) == [[None], [1.0000001192092896]]
