"""The quickstarts: the one in README.md pasted into Python, and the notebook from top to bottom."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "quickstart.ipynb"


def outputs(notebook: nbformat.NotebookNode) -> str:
    """Everything that the cells printed or returned."""
    return "\n".join(
        output.get("text", "") + output.get("data", {}).get("text/plain", "")
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )


def test_the_notebook_is_committed_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert outputs(notebook) == ""


@pytest.mark.spark
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    shown = outputs(notebook)
    assert "(2000, 2005)" in shown
    assert "PushedFilters" in shown


def readme_quickstart() -> str:
    [program] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return program


def test_the_quickstart_of_the_readme_is_short() -> None:
    assert len(readme_quickstart().splitlines()) <= 20


@pytest.mark.spark
def test_the_quickstart_of_the_readme_does_what_it_says() -> None:
    done = subprocess.run(
        [sys.executable, "-c", readme_quickstart()], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "|   3|  200|" in done.stdout
    assert done.stdout.splitlines()[-1] == "2000"
