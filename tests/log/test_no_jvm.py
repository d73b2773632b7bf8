from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import deltaflow.log, deltaflow.store, deltaflow.errors
log = deltaflow.log.DeltaLog.for_table(sys.argv[1])
assert not log.exists()
from pyspark import SparkContext
assert SparkContext._gateway is None, "a JVM was started"
assert SparkContext._jvm is None
"""


def test_the_log_core_starts_no_jvm_and_needs_no_java() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, "/nowhere"], env={"PATH": ""}, check=True, timeout=60)
