"""Arguments of `deltaflow connect-server` that are refused before Spark starts."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from deltaflow.cli import main


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("spark.ui.enabled", "is not NAME=VALUE"),
        ("=true", "is not NAME=VALUE"),
        ("spark.connect.authenticate.token=secret", "Set SPARK_CONNECT_AUTHENTICATE_TOKEN"),
    ],
)
def test_settings(setting: str, message: str) -> None:
    done = CliRunner().invoke(main, ["connect-server", "--conf", setting])
    assert done.exit_code == 2
    assert message in " ".join(done.output.replace("│", " ").split())
