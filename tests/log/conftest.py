from __future__ import annotations

from pathlib import Path

import pytest

from deltaflow.log import DeltaLog
from deltaflow.store import LocalLogStore
from tests.log.hand_written import HandWrittenTable


@pytest.fixture
def table(tmp_path: Path) -> HandWrittenTable:
    return HandWrittenTable(tmp_path / "table")


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """The log of a table that is not there yet."""
    return DeltaLog(LocalLogStore(), str(tmp_path / "new"))
