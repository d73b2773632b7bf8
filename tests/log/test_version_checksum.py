"""Version checksum files: they are read, and where they lie, nothing but a warning comes of it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from deltaflow.log import DeltaLog
from tests.log.tables import add, append, create, paths


def lie(log: DeltaLog, version: int, content: Any) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    Path(log.path, "_delta_log", f"{version:020}.crc").write_text(text)


LIES: list[Any] = [
    {"numFiles": 99, "tableSizeBytes": -1, "numMetadata": 0},
    {"metadata": {"id": "other", "schemaString": "", "configuration": {"delta.appendOnly": "true"}}},
    {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}, "metadata": 5},
    {"allFiles": [add("z")["add"]], "setTransactions": [{"appId": "a", "version": 9}]},
    "{",
    "[]",
    "\0" * 100,
]


@pytest.mark.parametrize("content", LIES)
def test_a_checksum_that_lies_changes_nothing(log: DeltaLog, content: Any) -> None:
    create(log, "a", configuration={"delta.checkpointInterval": "2"})
    for version, name in enumerate("bcd", 1):
        lie(log, version - 1, content)
        lie(log, version, content)
        assert append(log, name) == version
    for reader in (log, DeltaLog(log._files.store, log.path)):
        snapshot = reader.snapshot()
        assert (snapshot.version, snapshot.num_files, snapshot.size_in_bytes) == (3, 4, 40)
        assert paths(reader) == ["a", "b", "c", "d"]
        assert snapshot.metadata.id == "table-1"
        assert snapshot.protocol.min_writer_version == 2
        assert reader.snapshot_at(1).num_files == 2
    assert Path(log.path, "_delta_log", f"{2:020}.checkpoint.parquet").exists()


def test_a_difference_is_told_before_a_checkpoint(log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    create(log, "a")
    lie(log, 0, {"numFiles": 1, "tableSizeBytes": 11, "metadata": {"id": "table-1", "configuration": {}}})
    assert log.checksum_differences(log.snapshot()) == {"tableSizeBytes": (10, 11)}
    with caplog.at_level(logging.WARNING, logger="deltaflow.log.version_checksum"):
        log.checkpoint()
    [message] = caplog.messages
    assert "tableSizeBytes is 10, there 11" in message
    assert log.path in message


def test_without_a_checksum_there_is_nothing_to_tell(log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    create(log, "a")
    assert log.checksum_differences(log.snapshot()) is None
    log.checkpoint()
    assert caplog.messages == []
