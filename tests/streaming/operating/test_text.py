"""How reports become text."""

import pytest
from rich import console
from rich.table import Table

from deltaflow.streaming.operating.text import text_of


def test_a_report_is_plain_text_in_a_notebook_and_where_colors_are_forced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "_is_jupyter", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    table = Table("a column")
    table.add_row("a value")
    lines = text_of(table).splitlines()
    assert [line.strip("┃│ ") for line in (lines[1], lines[3])] == ["a column", "a value"]
    assert capsys.readouterr().out == ""
