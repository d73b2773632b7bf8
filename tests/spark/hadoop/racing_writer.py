"""As tests/log/racing_writer.py, on a file system of Hadoop.

The first arguments are the jar and Hadoop's settings, as JSON; see bare_stores.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

# The tests are no package that is installed.
sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.log.racing_writer import main
from tests.spark.hadoop.bare_stores import bare_stores

if __name__ == "__main__":
    jar, settings, path, writer, role, operations = sys.argv[1:]
    with bare_stores(Path(jar), json.loads(settings)):
        main(path, writer, role, int(operations))
