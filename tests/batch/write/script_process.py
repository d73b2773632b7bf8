"""Runs a script with a Spark session of its own in a new process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def result_of_script(script: str, root: Path, timeout_s: float) -> Any:
    """The JSON that the script prints in a line `RESULT …`; `root` is its argument."""
    done = subprocess.run(
        [sys.executable, "-c", script, str(root)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stderr[-5000:]
    [result] = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    return json.loads(result.removeprefix("RESULT"))
