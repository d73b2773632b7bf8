"""The demo, run as its users run it; killed half-way; and what it says of a table that lacks a row."""

import datetime
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from deltaflow import demo
from tests.tables import Action, edit_commit, versions

ROOT = Path(__file__).parents[2]
WHOLE_DAYS, KILLED_DAYS = 12, 35


def command(path: Path, days: int) -> list[str]:
    return [sys.executable, "-m", "deltaflow.demo", "--path", str(path), "--days", str(days)]


def run(path: Path, days: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(path, days), cwd=ROOT, text=True, capture_output=True)


def rows_of_table(path: Path) -> int:
    return DeltaTable(path).to_pyarrow_table(columns=["month"]).num_rows


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return demo.packaged_flights()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The folder and the output of a demo that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole run")
    return folder, run(folder, WHOLE_DAYS)


def first_days(flights: pa.Table, days: int) -> pa.Table:
    """The flights of the first days of the year; `days` is below 59, so that dates are easily counted."""
    day_of_year = (pc.field("month") - 1) * 31 + pc.field("day")
    return flights.filter(day_of_year <= days)


def assert_tables_hold(folder: Path, expected: pa.Table) -> None:
    """Both tables, row by row, have what the flights of the package give."""
    table = DeltaTable(folder / "flights")
    assert table.metadata().partition_columns == ["month"]
    keys = [(name, "ascending") for name in ("month", "day", "carrier", "flight", "sched_dep_time", "origin")]
    found = table.to_pyarrow_table(columns=expected.column_names)
    assert found.sort_by(keys).to_pylist() == expected.sort_by(keys).to_pylist()
    delays: dict[tuple[str, int], list[int]] = {}
    for row in expected.select(["carrier", "hour", "dep_delay"]).to_pylist():
        numbers = delays.setdefault((row["carrier"], row["hour"]), [0, 0, 0])
        numbers[0] += 1
        numbers[1] += row["dep_delay"] is not None
        numbers[2] += row["dep_delay"] or 0
    stored = DeltaTable(folder / "delays").to_pyarrow_table().to_pylist()
    assert {
        (row["carrier"], row["hour"]): [row["flights"], row["departed"], row["delay_minutes"] or 0]
        for row in stored
    } == delays
    assert len(stored) == len(delays)


@pytest.mark.spark
@pytest.mark.long
def test_a_whole_run_ends_with_equal_numbers_and_says_how_to_open_the_table(
    whole: tuple[Path, subprocess.CompletedProcess[str]], flights: pa.Table
) -> None:
    folder, done = whole
    assert done.returncode == 0, done.stderr
    assert f"{WHOLE_DAYS}/{WHOLE_DAYS}" in done.stdout
    assert "JetBlue Airways" in done.stdout
    assert "equal" in done.stdout
    assert "batch 0: 2013-01-01 to 2013-01-01, 842 flights" in done.stdout
    assert f".load('{folder}/flights').show()" in done.stdout
    assert " WARN " not in done.stderr
    assert_tables_hold(folder, first_days(flights, WHOLE_DAYS))


@pytest.mark.long
@pytest.mark.spark
def test_a_finished_demo_only_verifies(
    whole: tuple[Path, subprocess.CompletedProcess[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run_streams(*arguments: object) -> None:
        raise AssertionError("the streams of a finished demo ran again")

    monkeypatch.setattr(demo, "run_streams", run_streams)
    folder, _ = whole
    assert demo.main(["--path", str(folder), "--days", str(WHOLE_DAYS)]) == 0
    assert "equal" in capsys.readouterr().out


def take_a_row_away(folder: Path) -> None:
    """Rewrites a data file of the table without its first row; the log knows no more than its new size."""
    file = next((folder / "flights").glob("month=1/*.parquet"))
    pq.write_table(pq.ParquetFile(file).read().slice(1), file)

    def edit(action: Action) -> None:
        if action.get("add", {}).get("path", "").endswith(file.name):
            action["add"]["size"] = file.stat().st_size

    for version in versions(folder / "flights"):
        edit_commit(folder / "flights", edit, version)


@pytest.mark.spark
@pytest.mark.long
def test_a_row_taken_away_is_a_difference(
    whole: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(whole[0], folder)
    before = rows_of_table(folder / "flights")
    take_a_row_away(folder)
    assert rows_of_table(folder / "flights") == before - 1
    done = run(folder, WHOLE_DAYS)
    assert done.returncode == 1
    assert f"DIFFERENT: flights and miles of month (1,): ({before}, " in done.stdout
    assert f"({before - 1}, " in done.stdout


@pytest.mark.spark
@pytest.mark.parametrize("table", ["flights", "delays"])
@pytest.mark.long
def test_a_lost_data_file_is_a_difference(
    whole: tuple[Path, subprocess.CompletedProcess[str]],
    table: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(whole[0], folder)
    for file in (folder / table).rglob("*.parquet"):
        file.unlink()
    assert demo.main(["--path", str(folder), "--days", str(WHOLE_DAYS)]) == 1
    assert "DIFFERENT: the tables in" in capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.long
def test_killed_half_way_and_started_again_it_ends_with_the_same_numbers(
    tmp_path: Path, flights: pa.Table
) -> None:
    expected = first_days(flights, KILLED_DAYS)
    log = tmp_path / "flights" / "_delta_log"
    with subprocess.Popen(
        command(tmp_path, KILLED_DAYS),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as killed:
        while not (log / f"{1:020}.json").exists() and killed.poll() is None:
            time.sleep(0.01)
        os.killpg(killed.pid, signal.SIGKILL)
        # The JVM writes to the same pipe: the end of the output is the end of both.
        output, _ = killed.communicate()
    assert killed.returncode == -signal.SIGKILL, output

    assert 0 < rows_of_table(tmp_path / "flights") < expected.num_rows
    assert not (tmp_path / "finished").exists()
    kept = {
        file: file.read_bytes() for file in [*log.glob("*.json"), *tmp_path.glob("landing/2013-*.parquet")]
    }

    again = run(tmp_path, KILLED_DAYS)
    assert again.returncode == 0, again.stderr
    assert {file: file.read_bytes() for file in kept} == kept
    assert_tables_hold(tmp_path, expected)


def delivered(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "landing").iterdir())


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flights: pa.Table) -> "Feed":
    monkeypatch.setattr(demo, "SECONDS_PER_DAY", 0)
    return Feed(tmp_path, flights)


class Feed:
    """The feeder, with a landing folder of its own."""

    def __init__(self, folder: Path, flights: pa.Table) -> None:
        self.folders = demo.Folders(folder)
        self.folders.landing.mkdir()
        self.flights = flights

    def __call__(self, days: Sequence[datetime.date], stop: threading.Event | None = None) -> None:
        demo.feed(self.flights, days, self.folders, stop or threading.Event())


def test_the_package_has_a_year_of_flights(flights: pa.Table) -> None:
    assert flights.num_rows == 336_776
    days = demo.days_of(flights)
    assert days == [datetime.date(2013, 1, 1) + datetime.timedelta(n) for n in range(365)]


def test_the_feeder_delivers_every_flight_of_a_day(feed: Feed) -> None:
    feed(demo.days_of(feed.flights)[:12])
    landed = pq.read_table(feed.folders.landing)
    assert landed.to_pylist() == first_days(feed.flights, 12).to_pylist()


def test_the_feeder_leaves_delivered_days_alone_and_finishes_what_a_kill_left(feed: Feed) -> None:
    days = demo.days_of(feed.flights)[:3]
    feed(days[:1])
    first = feed.folders.landing / "2013-01-01.parquet"
    before = first.stat()
    (feed.folders.landing / ".2013-01-02.parquet").write_bytes(b"PAR1 and no more")
    feed(days)
    assert delivered(feed.folders.root) == [f"2013-01-0{n}.parquet" for n in (1, 2, 3)]
    assert (first.stat().st_ino, first.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert pq.read_table(feed.folders.landing).num_rows == first_days(feed.flights, 3).num_rows


def test_the_feeder_stops_when_it_is_told_to(feed: Feed) -> None:
    stop = threading.Event()
    stop.set()
    feed(demo.days_of(feed.flights), stop)
    assert delivered(feed.folders.root) == []


@pytest.mark.parametrize("days", ["0", "366", "many"])
def test_a_number_of_days_that_the_year_has_not_is_refused(
    days: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        demo.main(["--path", str(tmp_path / "demo"), "--days", days])
    assert "--days" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


def test_a_path_that_is_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(SystemExit, match="2"):
        demo.main(["--path", str(file)])
    assert "is a file" in capsys.readouterr().err
    assert file.read_text() == "mine"
