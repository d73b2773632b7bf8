"""As tests/store/committing_process.py, with the stores of a Spark session."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import deltaflow

# The tests are no package that is installed.
sys.path.insert(0, str(Path(__file__).parents[2] / "store"))

from committing_process import main

if __name__ == "__main__":
    local = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
    spark = deltaflow.session("race", master="local[1]", config=local)
    main(**json.loads(sys.argv[1]))
    spark.stop()
