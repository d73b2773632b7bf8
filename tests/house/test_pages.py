"""Every code block of README.md and of the pages in docs/ runs: page after page, in the session of all tests.

A page runs from top to bottom in one namespace, in which `spark` is the session. Its tables by name are in a
database of its own, and the folders `/data` and `/checkpoints` that it names are in the folder of the test.
What a reader need not see is in HTML comments of the page:

    <!-- python          <!-- not run: the reason -->
    code to run          before a block that cannot run here
    -->

A block `text` after another one is what that one prints, in which `…` stands for anything.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from markdown_it import MarkdownIt

from deltaflow.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "docs" / "notebooks"
"""Notebooks with their outputs; test_notebooks runs them."""
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent != NOTEBOOKS),
]
RUN = {"python", "sql", "sh"}
SHOWN = {"dockerfile", "json", "properties", "text", "yaml"}
"""Languages of blocks that are read, not run."""
_COMMENT = re.compile(
    r"<!-- (?:(?P<language>python|sql)\n(?P<code>.*)|not run: (?P<reason>.*?)\s*)-->\s*", re.DOTALL
)
_FOLDERS = re.compile(r"(?<![\w.:/])/(?=(?:data|checkpoints)\b)")


@dataclass
class Block:
    """A block of a page: its language and code, the line that it begins in, and what it is to print."""

    language: str
    code: str
    line: int
    reason_not_to_run: str | None = None
    prints: str | None = None


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, hidden ones included, with the comments and outputs that belong to them."""
    found: list[Block] = []
    reason = None
    for token in MarkdownIt().parse(page.read_text()):
        line = token.map[0] + 1 if token.map else 0
        if token.type == "html_block" and (comment := _COMMENT.fullmatch(token.content)):
            reason = comment["reason"]
            if comment["language"]:
                found.append(Block(comment["language"], comment["code"], line))
        elif token.type == "fence":
            language = token.info.strip()
            if language == "text" and found and found[-1].reason_not_to_run is None and reason is None:
                found[-1].prints = token.content
            else:
                found.append(Block(language, token.content, line, reason))
            reason = None
    return found


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_have_a_language_and_are_run_or_say_why_not(page: Path) -> None:
    for block in blocks(page):
        assert block.language in RUN | SHOWN, f"{page.name}, line {block.line}"
        assert block.reason_not_to_run != "", f"{page.name}, line {block.line}"


class Reader:
    """Runs the blocks of a page as somebody who reads it from top to bottom."""

    def __init__(self, page: Path, spark: SparkSession, folder: Path) -> None:
        self._page = page
        self._spark = spark
        self._folder = folder
        self._names: dict[str, Any] = {"__name__": "page", "spark": spark}

    def run(self, block: Block) -> None:
        """Runs a block, and compares what it prints."""
        code = _FOLDERS.sub(f"{self._folder}/", block.code)
        printed = getattr(self, f"_{block.language}")(code, block.line).replace(str(self._folder), "")
        if block.prints is not None:
            lines = (
                re.escape(line.rstrip()).replace("…", ".*?") for line in block.prints.strip().splitlines()
            )
            found = "\n".join(line.rstrip() for line in printed.strip().splitlines())
            assert re.fullmatch("\n".join(lines), found, re.DOTALL), f"line {block.line} prints\n{found}"

    def _python(self, code: str, line: int) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile("\n" * line + code, str(self._page), "exec"), self._names)
        return printed.getvalue()

    def _sql(self, code: str, line: int) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            for statement in filter(str.strip, code.split(";")):
                frame = self._spark.sql(statement)
                if frame.columns:
                    frame.show(truncate=False)
        return printed.getvalue()

    def _sh(self, code: str, line: int) -> str:
        printed = ""
        for command in code.replace("\\\n", " ").splitlines():
            program, *words = shlex.split(command, comments=True) or ["deltaflow", "--help"]
            assert program == "deltaflow", f"{self._page.name}, line {line}: {program} is not run here"
            done = CliRunner().invoke(main, words)
            assert done.exit_code == 0, f"{command}\n{done.output}"
            printed += done.output
        return printed


@pytest.fixture
def reader(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Reader]:
    """A reader of the page, after whom the session is as before."""
    settings = dict(spark.conf.getAll)
    spark.sql("CREATE DATABASE page")
    spark.sql("USE page")
    yield Reader(request.param, spark, tmp_path)
    for query in spark.streams.active:
        query.stop()
    spark.sql("USE default")
    spark.sql("DROP DATABASE page CASCADE")
    for name, value in dict(spark.conf.getAll).items():
        if settings.get(name) != value:
            spark.conf.set(name, settings[name]) if name in settings else spark.conf.unset(name)


def test_the_readme_needs_no_names_of_the_test() -> None:
    """It can be pasted into Python."""
    [quickstart] = [block for block in blocks(ROOT / "README.md") if block.language == "python"]
    assert 'spark = deltaflow.session("quickstart")' in quickstart.code
    assert len(quickstart.code.splitlines()) <= 20


WITH_CODE = [
    page
    for page in PAGES
    if any(block.language in RUN and block.reason_not_to_run is None for block in blocks(page))
]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("reader", "page"), [(page, page) for page in WITH_CODE], indirect=["reader"], ids=map(name_of, WITH_CODE)
)
@pytest.mark.sampled(8)
def test_the_blocks_of_a_page_do_what_they_say(reader: Reader, page: Path) -> None:
    for block in blocks(page):
        if block.language in RUN and block.reason_not_to_run is None:
            reader.run(block)
