"""What clang-format, which tests/run asks about the layout of the Java sources, does not look for."""

import re
from pathlib import Path

import pytest

JAVA = Path(__file__).parents[2] / "deltaflow" / "spark" / "java"
SOURCES = sorted(JAVA.rglob("*.java"))


def without_comments(source: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", source, flags=re.DOTALL)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_lines_are_short_and_imports_are_used(source: Path) -> None:
    text = source.read_text()
    assert [line for line in text.splitlines() if len(line) > 120] == []
    code = re.sub(r"^import .*$", "", without_comments(text), flags=re.MULTILINE)
    imported = re.findall(r"^import (?:static )?[\w.]+\.([\w$]+);$", text, flags=re.MULTILINE)
    unused = [name for name in imported if not re.search(rf"(?<![\w$.]){re.escape(name)}(?![\w$])", code)]
    assert unused == []
