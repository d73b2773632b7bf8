"""A server of `deltaflow connect-server` in a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.processes import Daemon
from tests.tables import INTERPRETED

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"


def start_server(folder: Path, *arguments: str, **variables: str) -> Daemon:
    """The server, which has yet to get ready. `folder` is its own."""
    environment = {name: value for name, value in os.environ.items() if name != TOKEN}
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):  # this process may have a JVM of its own
        environment.pop(name, None)
    command = [str(Path(sys.executable).with_name("deltaflow")), "connect-server", *arguments]
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        **INTERPRETED,
    }
    given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    return Daemon("server", [*command, "--master", "local[2]", *given], folder, environment | variables)
