"""The steps that the code can take: those of the stores, and those that operations name."""

from __future__ import annotations

import ast
from pathlib import Path

import deltaflow
from deltaflow.testing.steps import wrapped_steps


def steps_of_code() -> set[str]:
    """The steps (`Step.code`) that deltaflow can take."""
    root = Path(deltaflow.__file__).parents[1]
    found = set(wrapped_steps())
    for folder in ("deltaflow", "batch", "streaming"):
        for file in (root / folder).rglob("*.py"):
            text = file.read_text()
            found |= {
                str(call.args[0].value)
                for call in ast.walk(ast.parse(text if "observe(" in text else ""))
                if isinstance(call, ast.Call)
                and isinstance(call.func, ast.Name)
                and call.func.id == "observe"
                and isinstance(call.args[0], ast.Constant)
            }
    return found
