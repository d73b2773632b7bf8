"""Entries of listings by fsspec's file systems."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from deltaflow.store.fsspec_files import file_status

FIRST_MS = 2_150_000_000_000


@pytest.mark.parametrize("microseconds", [0, 1, 999])
def test_every_millisecond_is_that_of_the_file_system(microseconds: int) -> None:
    """From 2038 on, floating-point numbers of seconds are too coarse for some of them."""
    times = [FIRST_MS + 1_000_003 * i for i in range(2_000)]
    for time_ms in times:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms, microseconds=microseconds)
        entries: list[dict[str, Any]] = [{"updated": moment.isoformat()}, {"last_modified": moment}]
        if microseconds == 0:
            entries.append({"modificationTime": time_ms})
        found = [file_status({"name": "t/f", "size": 1, **entry}) for entry in entries]
        assert [status.modification_time_ms for status in found] == [time_ms] * len(entries)
