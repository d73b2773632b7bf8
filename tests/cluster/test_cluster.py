"""A driver that spark-submit starts, and executors in workers of a standalone cluster, on tables far away.

All processes of Spark are on this machine, and could share a disk by accident. So the tables are on WebHDFS.
The test knows which process asked the server for what, and tells no process of Spark in which directory the
server has them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from deltaflow import demo
from tests.cluster.standalone import Cluster
from tests.docker.compose import SERVICES, spark_defaults
from tests.object_store.server import ObjectStoreServer
from tests.tables import rows_by_deltalake
from tests.webhdfs import WebHdfsServer

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(600)]

SCENARIO = Path(__file__).with_name("scenario.py")
DAYS = 20
"""Of the demo: two batches of its first stream."""


@dataclass
class Finished:
    """What a run of the scenario left."""

    cluster: Cluster
    served: Path
    """The directory in which the server has the tables."""
    url: str
    found: dict[str, Any]
    """What the scenario printed."""
    tasks: dict[str, Counter[str]]
    """For each step, the tasks of each executor."""
    requests: dict[str, set[tuple[str, str]]]
    """For the driver and each executor, what it asked the server for: operations and paths."""
    rows_of_copy: list[dict[str, Any]]
    """Of the table on the object store."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, object_store_jar: Path) -> Iterator[Finished]:
    served = tmp_path_factory.mktemp("served")
    folders = demo.Folders(served)
    folders.landing.mkdir()
    flights = demo.packaged_flights()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "SECONDS_PER_DAY", 0)
        demo.feed(flights, demo.days_of(flights)[:DAYS], folders, threading.Event())
    with ExitStack() as stack:
        server = stack.enter_context(WebHdfsServer(served))
        objects = stack.enter_context(ObjectStoreServer())
        cluster = stack.enter_context(Cluster(tmp_path_factory.mktemp("cluster")))
        bucket = objects.new_bucket()
        settings = {
            # As a connector of a cloud comes to driver and executors.
            "spark.jars": str(object_store_jar),
            **{f"spark.hadoop.{name}": value for name, value in objects.settings().items()},
            "spark.hadoop.fs.defaultFS": server.url,
            "spark.sql.warehouse.dir": f"{server.url}/warehouse",
        }
        found = cluster.submit(SCENARIO, server.url, f"s3a://{bucket}", settings=settings)
        rows_of_copy = rows_of_object_store(objects, f"{bucket}/copy")
        yield Finished(cluster, served, server.url, found, cluster.tasks(), server.requests_of, rows_of_copy)


def run_demo(cluster: Cluster, folder: Path) -> subprocess.CompletedProcess[str]:
    """The demo as in docker/compose.yaml, with its settings but those of the places and the sizes."""
    settings = {
        name: value
        for name, value in spark_defaults().items()
        if not name.startswith(("spark.hadoop.", "spark.jars", "spark.master"))
    }
    settings |= {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}
    settings |= {"spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.sql.warehouse.dir": str(folder)}
    conf = folder / "conf"
    conf.mkdir()
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (conf / "spark-defaults.conf").write_text("".join(lines))
    given = {"--master": cluster.url, "--path": str(folder / "demo")}
    command = ["python", "-m", "deltaflow.demo", "--master", "spark://master:7077", "--path", "/data/demo"]
    assert SERVICES["demo"]["command"] == command
    arguments = [word for pair in given.items() for word in pair]
    environment = {**os.environ, "SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_DIRS": str(folder / "local")}
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):  # this process may have a JVM of its own
        environment.pop(name, None)
    return subprocess.run(
        [sys.executable, *command[1:3], *arguments, "--days", "3"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def rows_of_object_store(server: ObjectStoreServer, path: str) -> list[dict[str, Any]]:
    """The rows of a table as deltalake reads them."""
    options = {
        "aws_endpoint": server.endpoint,
        "aws_allow_http": "true",
        "aws_region": "us-east-1",
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
    }
    rows: list[dict[str, Any]] = (
        DeltaTable(f"s3://{path}", storage_options=options).to_pyarrow_table().to_pylist()
    )
    return rows


def test_the_streams_of_the_demo_bring_every_flight(finished: Finished) -> None:
    folders = demo.Folders(finished.served)
    landed = demo.landed_numbers(folders)
    assert sum(flights for flights, _ in landed.months.values()) > 10_000
    assert landed.differences(demo.table_numbers(folders)) == []


@pytest.mark.long
def test_the_demo_of_the_containers_runs_on_both_workers(finished: Finished, tmp_path: Path) -> None:
    """As in docker/compose.yaml, in a folder that the workers share."""
    ran = run_demo(finished.cluster, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "The table, read by deltalake, and the landed files, read by pyarrow, agree." in ran.stdout
    for worker in finished.cluster.workers:
        # A folder for the application of the scenario, and one for the demo's.
        assert len(list((worker / "work").glob("app-*"))) == 2


def cents_of_fares() -> dict[int, int]:
    """The cents of each id, after every change that the scenario makes."""
    cents = {identifier: identifier * 10 for identifier in range(7_100)}
    cents.update({identifier: identifier * 10 + 1 for identifier in range(6_900, 7_000)})
    cents.update(dict.fromkeys(range(10), 0))
    return {identifier: value for identifier, value in cents.items() if not 10 <= identifier < 20}


def cents_of(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((row["id"], row["cents"]) for row in rows)


def test_every_change_of_a_table_is_there(finished: Finished) -> None:
    found = cents_of(rows_by_deltalake(finished.served / "fares"))
    assert found == sorted(cents_of_fares().items())
    assert finished.found["read"]["ids"] == 1_100
    # Data skipping leaves files out: the table had eight and more for each half.
    assert len(finished.found["read"]["files"]) < 8


def test_optimize_brings_files_together_and_vacuum_removes_the_others(finished: Finished) -> None:
    assert finished.found["maintained"] == {"files": 2, "there": 2}


def test_a_stream_puts_the_rows_that_do_not_fit_aside(finished: Finished) -> None:
    accepted = sorted(row["id"] for row in rows_by_deltalake(finished.served / "tiny"))
    assert accepted == [*range(10), *range(20, 128)]
    refused = sorted(row["row"]["id"] for row in rows_by_deltalake(finished.served / "aside"))
    assert refused == list(range(128, 200))


def test_an_error_names_the_row_that_an_executor_has_found(finished: Finished) -> None:
    violation = finished.found["violation"]
    assert violation["error"] == "DeltaInvariantViolationException"
    assert "cents : -1" in violation["message"]


def test_a_stream_and_a_merge_reach_an_object_store_whose_connector_came_with_the_application(
    finished: Finished,
) -> None:
    cents = cents_of_fares()
    cents.update({identifier: identifier * 10 + 1 for identifier in range(7_090, 7_100)})
    cents.update({identifier: identifier * 10 for identifier in range(7_100, 7_110)})
    assert cents_of(finished.rows_of_copy) == sorted(cents.items())


def test_names_and_short_paths_are_in_the_default_file_system(finished: Finished) -> None:
    named = finished.found["named"]
    assert named == {"location": f"{finished.url}/warehouse/named", "rows": 798}
    ids = {row["id"] for row in rows_by_deltalake(finished.served / "warehouse" / "named")}
    assert ids == set(range(800)) - {1, 3}
    assert len(rows_by_deltalake(finished.served / "short")) == 4


@pytest.mark.parametrize(
    "step",
    [
        "stream into a table",
        "stream out of a table",
        "write",
        "append",
        "optimized write",
        "read",
        "merge",
        "update",
        "delete",
        "optimize",
        "quarantine",
        "constraint",
        "tables by name",
        "stream into an object store",
        "merge on an object store",
    ],
)
def test_tasks_of_every_step_run_on_both_executors(finished: Finished, step: str) -> None:
    assert finished.tasks[step].keys() == {"0", "1"}


def test_executors_need_nothing_of_deltaflow(finished: Finished) -> None:
    executors = finished.found["executors"]
    assert executors["sources"] == ["absent"]
    assert not any(
        "deltaflow" in Path(entry).name for path in executors["class_paths"] for entry in path.split(":")
    )
    assert [Path(url).name for url in executors["sent"]] == ["object-store.jar"]
    assert len(executors["folders"]) == 2
    for folder, worker in zip(sorted(executors["folders"]), finished.cluster.workers, strict=True):
        assert Path(folder).is_relative_to(worker)


def test_executors_write_the_rows_and_the_driver_the_log(finished: Finished) -> None:
    created = {
        agent: {path for operation, path in requests if operation == "CREATE"}
        for agent, requests in finished.requests.items()
    }
    assert created.keys() == {"driver", "executor-0", "executor-1"}
    state = re.compile(r"/checkpoints/delays/state/.*")
    data_file = re.compile(r"/(?!.*_delta_log)(?!checkpoints/).*\.parquet")
    for agent in ("executor-0", "executor-1"):
        assert any(data_file.fullmatch(path) for path in created[agent])
        assert all(data_file.fullmatch(path) or state.fullmatch(path) for path in created[agent])
        assert not [path for _, path in finished.requests[agent] if "/_delta_log" in path]
    assert not [path for path in created["driver"] if data_file.fullmatch(path)]
    for table in ("flights", "delays", "fares", "tiny", "aside", "short", "warehouse/named"):
        assert [path for path in created["driver"] if path.startswith(f"/{table}/_delta_log/")]


def test_driver_and_executors_have_no_file_of_a_table_in_folders_of_their_own(finished: Finished) -> None:
    # The classes of deltaflow, native libraries of Spark, and Spark's folders for shuffles and blocks.
    expected = re.compile(r"deltaflow-\w+/deltaflow\.jar|[^/]+\.so(\.lck)?|(spark|blockmgr)-[\w-]+/.*")
    assert [file for file in finished.found["own_files"] if not expected.fullmatch(file)] == []
    # What they leave behind when they end.
    [log] = (finished.cluster.driver / "events").iterdir()
    assert [file for file in finished.cluster.driver.rglob("*") if file.is_file()] == [log]
    # A worker may still be clearing away what executors have shuffled.
    of_tables = {".crc", ".delta", ".json", ".parquet", ".snapshot"}
    for worker in finished.cluster.workers:
        assert [file for file in worker.rglob("*") if file.suffix in of_tables] == []
    assert {entry.name for entry in finished.served.iterdir()} == {
        "aside",
        "checkpoints",
        "delays",
        "fares",
        "flights",
        "landing",
        "short",
        "tiny",
        "warehouse",
    }
