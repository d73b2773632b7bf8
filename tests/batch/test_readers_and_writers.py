"""A short run of readers_and_writers, whose long one is a command of its own."""

from __future__ import annotations

import pytest

from tests.batch.readers_and_writers import check, race
from tests.tables import versions

pytestmark = pytest.mark.spark


@pytest.mark.long
def test_every_read_beside_three_writing_processes_is_one_version(spark, tmp_path):
    path = str(tmp_path / "table")
    seen, outcomes = race(spark, path, reads=6, commits=6, lost=1)
    check(path, seen)
    assert len(versions(path)) == outcomes["committed"] + 1
    assert set(outcomes) <= {"committed", "ConcurrentAppendException", "ConcurrentDeleteReadException"}
