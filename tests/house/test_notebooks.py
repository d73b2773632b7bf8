"""The notebooks: each runs from top to bottom, and its page in docs/notebooks shows it as it is."""

from __future__ import annotations

import re

import pytest

jupytext = pytest.importorskip("jupytext", reason="the extra notebooks is not installed")

from notebooks import render  # noqa: E402

SHOWN = {"cdc": ["0 0"], "operating": ["130 rows, 130 orders"], "quickstart": ["6000", "6500"]}
"""What cells of each notebook print or return."""


def test_every_notebook_is_known_here() -> None:
    assert render.names() == sorted(SHOWN)


@pytest.mark.parametrize("name", render.names())
def test_the_page_of_a_notebook_has_its_text_and_code(name: str) -> None:
    """Otherwise run `python -m notebooks.render NAME`."""
    source, _ = render.page(name, jupytext.read(render.SOURCES / f"{name}.py"))
    page = (render.PAGES / f"{name}.md").read_text()
    shown = re.sub(r"(?ms)^```text\n.*?^```\n\n?|^!\[.*?\)\n\n?", "", page)
    assert shown.rstrip() == source.rstrip()
    for picture in re.findall(r"^!\[.*\]\((.*)\)$", page, flags=re.MULTILINE):
        assert (render.PAGES / picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("name", render.names())
def test_a_notebook_runs_from_top_to_bottom(name: str) -> None:
    text, pictures = render.page(name, render.run(name))
    printed = re.findall(r"(?ms)^```text\n(.*?)\n```$", text)
    assert [shown for shown in SHOWN[name] if shown not in printed] == []
    assert pictures
