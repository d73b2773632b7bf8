"""Which columns an expression of a table may name."""

from __future__ import annotations

import pytest

from deltaflow.batch.rows.widened_schema import named_columns


@pytest.mark.parametrize(
    ("expression", "columns"),
    [
        ("c > 0", {("c",)}),
        ("1st > 0", {("1st",)}),
        ("s.2nd + `a``b`.x", {("s", "2nd"), ("a`b", "x")}),
        ("upper(name) <> 'c' AND x IN (1, 2)", {("name",), ("x",)}),
    ],
)
def test_the_names_in_an_expression(expression: str, columns: set[tuple[str, ...]]) -> None:
    found = set(named_columns(expression))
    assert columns <= found
    assert not {("upper",), ("1",), ("2",), ("c",)} & (found - columns)
