"""The compose file of docker/, and the settings of its drivers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

DOCKER = Path(__file__).parents[2] / "docker"
COMPOSE = DOCKER / "compose.yaml"
SERVICES: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]


def spark_defaults() -> dict[str, str]:
    """The settings of every driver."""
    lines = (DOCKER / "spark" / "conf" / "spark-defaults.conf").read_text().splitlines()
    pairs = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    return {name: value.strip() for name, value in pairs}
