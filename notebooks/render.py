"""Runs the notebooks and writes them, with what they print and plot, as pages into docs/notebooks.

    python -m notebooks.render [NAME …]

The sources are the `.py` files beside this one (jupytext's percent format). Run it for a notebook
whose source has changed.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

import jupytext
from nbclient import NotebookClient
from nbformat import NotebookNode

SOURCES = Path(__file__).parent
PAGES = SOURCES.parent / "docs" / "notebooks"


def names() -> list[str]:
    """The notebooks, by name."""
    return sorted(path.stem for path in SOURCES.glob("*.py") if path != Path(__file__))


def run(name: str) -> NotebookNode:
    """A notebook with its outputs, run from top to bottom; an error in a cell is raised."""
    notebook = jupytext.read(SOURCES / f"{name}.py")
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": folder}}
        ).execute()
    return notebook


def page(name: str, notebook: NotebookNode) -> tuple[str, dict[str, bytes]]:
    """(Markdown of a notebook with its outputs, its pictures by file name)."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        printed = "".join(output.text for output in cell.outputs if output.get("name") == "stdout")
        if printed.strip():
            parts.append(_text(printed))
        for data in (output.data for output in cell.outputs if "data" in output):
            if "image/png" in data:
                picture = f"{name}-{len(pictures) + 1}.png"
                pictures[picture] = base64.b64decode(data["image/png"])
                parts.append(f"![A plot of the cell above]({picture})")
            else:
                parts.append(_text(data["text/plain"]))
    source = f"<!-- Made by `python -m notebooks.render` from notebooks/{name}.py. -->"
    return "\n\n".join([source, *parts]) + "\n", pictures


def _text(printed: str) -> str:
    lines = (line.rstrip() for line in printed.rstrip().splitlines())
    return "\n".join(["```text", *lines, "```"])


def main(chosen: list[str]) -> None:
    """Renders the notebooks that are named; without names all of them."""
    PAGES.mkdir(exist_ok=True)
    for name in chosen or names():
        text, pictures = page(name, run(name))
        for old in PAGES.glob(f"{name}-*.png"):
            old.unlink()
        for picture, content in pictures.items():
            (PAGES / picture).write_bytes(content)
        (PAGES / f"{name}.md").write_text(text)
        print(f"docs/notebooks/{name}.md, {len(pictures)} pictures")


if __name__ == "__main__":
    main(sys.argv[1:])
