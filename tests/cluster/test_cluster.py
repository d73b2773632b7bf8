"""A driver that spark-submit starts, and executors in workers of a standalone cluster."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deltaflow import demo
from tests.cluster.standalone import Cluster
from tests.tables import rows_by_deltalake

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

SCENARIO = Path(__file__).with_name("scenario.py")
DAYS = 20
"""Of the demo: two batches of its first stream."""


@dataclass
class Finished:
    """What a run of the scenario left."""

    cluster: Cluster
    served: Path
    """The directory in which the tables are."""
    found: dict[str, Any]
    """What the scenario printed."""
    tasks: dict[str, Counter[str]]
    """For each step, the tasks of each executor."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    served = tmp_path_factory.mktemp("served")
    folders = demo.Folders(served)
    folders.landing.mkdir()
    flights = demo.packaged_flights()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "SECONDS_PER_DAY", 0)
        demo.feed(flights, demo.days_of(flights)[:DAYS], folders, threading.Event())
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        found = cluster.submit(SCENARIO, str(served))
        yield Finished(cluster, served, found, cluster.tasks())


def test_the_streams_of_the_demo_bring_every_flight(finished: Finished) -> None:
    folders = demo.Folders(finished.served)
    landed = demo.landed_numbers(folders)
    assert sum(flights for flights, _ in landed.months.values()) > 10_000
    assert landed.differences(demo.table_numbers(folders)) == []


def test_every_change_of_a_table_is_there(finished: Finished) -> None:
    cents = {identifier: identifier * 10 for identifier in range(7_100)}
    cents.update({identifier: identifier * 10 + 1 for identifier in range(6_900, 7_000)})
    cents.update(dict.fromkeys(range(10), 0))
    for identifier in range(10, 20):
        del cents[identifier]
    assert {row["id"]: row["cents"] for row in rows_by_deltalake(finished.served / "fares")} == cents
    assert finished.found["read"]["ids"] == 1_100
    # Data skipping leaves files out: the table had eight and more for each half.
    assert len(finished.found["read"]["files"]) < 8


def test_optimize_brings_files_together_and_vacuum_removes_the_others(finished: Finished) -> None:
    files = list((finished.served / "fares").rglob("half=*/*.parquet"))
    assert len(files) == finished.found["maintained"]["files"] == 2


def test_a_stream_puts_the_rows_that_do_not_fit_aside(finished: Finished) -> None:
    accepted = sorted(row["id"] for row in rows_by_deltalake(finished.served / "tiny"))
    assert accepted == [*range(10), *range(20, 128)]
    refused = sorted(row["row"]["id"] for row in rows_by_deltalake(finished.served / "aside"))
    assert refused == list(range(128, 200))


def test_an_error_names_the_row_that_an_executor_has_found(finished: Finished) -> None:
    violation = finished.found["violation"]
    assert violation["error"] == "DeltaInvariantViolationException"
    assert "cents : -1" in violation["message"]


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
    assert executors["sent"] == [0, 0]
    assert len(executors["folders"]) == 2
    for folder, worker in zip(sorted(executors["folders"]), finished.cluster.workers, strict=True):
        assert Path(folder).is_relative_to(worker)


def test_driver_and_executors_leave_no_file_of_a_table_in_folders_of_their_own(finished: Finished) -> None:
    [log] = (finished.cluster.driver / "events").iterdir()
    left = [file for file in finished.cluster.driver.rglob("*") if file.is_file()]
    assert left == [log]
    for worker in finished.cluster.workers:
        assert {file.name for file in worker.rglob("*") if file.is_file()} <= {"stdout", "stderr"}
