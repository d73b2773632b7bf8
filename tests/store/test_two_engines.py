"""deltaflow and deltalake exclude each other: of their commits of one version one wins, and none is lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from deltaflow.log import AddFile, DeltaLog, Operation

ROWS = pa.table({"id": pa.array([1], pa.int64())})


def race(path: str, log: DeltaLog, options: dict[str, str], *, threads_of_each: int, appends: int) -> None:
    """Lets threads of both engines append at once, round after round; each append has to be one version."""
    write_deltalake(path, ROWS, storage_options=options)
    start_of_round = threading.Barrier(2 * threads_of_each, timeout=60)

    def by_deltaflow(one: str) -> None:
        add = AddFile(path=one, partition_values={}, size=1, modification_time=1, data_change=True)
        log.start_transaction().commit([add], Operation("WRITE", {}, user_metadata=one))

    def by_deltalake(one: str) -> None:
        own = CommitProperties(custom_metadata={"userMetadata": one}, max_commit_retries=1_000)
        write_deltalake(path, ROWS, mode="append", commit_properties=own, storage_options=options)

    append = {"deltaflow": by_deltaflow, "deltalake": by_deltalake}

    def append_all(engine: str, thread: int) -> list[str]:
        ids = [f"{engine} {thread} {number}" for number in range(appends)]
        for one in ids:
            start_of_round.wait()
            append[engine](one)
        return ids

    with ThreadPoolExecutor(2 * threads_of_each) as threads:
        running = [threads.submit(append_all, engine, n) for engine in append for n in range(threads_of_each)]
        appended = [one for of_thread in running for one in of_thread.result()]
    commits = list(log.commits(1))
    found = [commit.commit_info.user_metadata or "" for commit in commits if commit.commit_info]
    assert sorted(found) == sorted(appended)
    assert [commit.version for commit in commits] == list(range(1, len(appended) + 1))
    assert len(DeltaTable(path, storage_options=options).file_uris()) == len(appended) + 1


def test_on_a_local_disk(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    race(path, DeltaLog.for_table(path), {}, threads_of_each=2, appends=25)


def test_on_a_server_of_s3(bucket: str, s3_options: dict[str, Any]) -> None:
    options = {
        "AWS_ENDPOINT_URL": s3_options["endpoint_url"],
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    path = f"s3://{bucket}/table"
    log = DeltaLog.for_table(path, storage_options=s3_options)
    race(path, log, options, threads_of_each=1, appends=8)
