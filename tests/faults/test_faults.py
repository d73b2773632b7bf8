"""The harness finds what it has to find, and a part of what `python -m tests.faults` tries."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import msgspec
import pyarrow as pa
import pytest

from deltaflow.errors import StoreError
from deltaflow.store import location
from deltaflow.testing import plugin, steps
from deltaflow.testing.processes import Processes
from deltaflow.testing.table_states import Reader
from deltaflow.testing.trials import Pipeline, Recording, Trial
from deltaflow.testing.worker import PointReport
from tests.faults.__main__ import Steps, missing_steps
from tests.faults.named_steps import steps_of_code
from tests.faults.pipelines import KINDS, PIPELINES, every_fault, schedules
from tests.mapped_tables import MappedTable

ROOT = Path(__file__).parents[2]
COMMIT_STEPS = ("*files written*", "*commit put*", "*put_if_absent of commit*")


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes() as started:
        yield started


@pytest.fixture
def folder() -> Iterator[str]:
    """A folder in memory, if there is such a place: what is written there outlives a process all the same."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        yield made


@pytest.fixture
def in_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipelines' modules are found from the root of the repository."""
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])


def recorded(name: str, folder: str, processes: Processes) -> tuple[Pipeline, Recording]:
    tried = PIPELINES[name]
    pipeline = Pipeline(
        tried.function,
        folder,
        processes,
        ignored=tried.ignored,
        compared_at_end=tried.compared_at_end,
        together=tried.together,
    )
    return pipeline, pipeline.record()


def kills(recording: Recording, *patterns: str) -> list[Trial]:
    faults = [fault for pattern in patterns for fault in recording.faults("kill", pattern)]
    return [Trial(str(fault), [[fault]]) for fault in faults]


def check(pipeline: Pipeline, trials: list[Trial]) -> None:
    """All trials pass, and a reader has looked at versions of them."""
    assert trials
    outcomes = list(pipeline.run(trials))
    assert {o.trial.name: o.problems for o in outcomes if o.problems} == {}
    assert len(outcomes) == len(trials)
    assert sum(outcome.seen for outcome in outcomes) > 0


@pytest.mark.usefixtures("in_root")
def test_commits_and_checkpoints_outlive_faults_all_along(folder: str, processes: Processes) -> None:
    pipeline, recording = recorded("commits", folder, processes)
    names = {point.name for point in recording.points}
    assert {
        "table: commit put",
        "table: linked of commit",
        "table: temporary file synced of checkpoint",
    } <= names
    trials = list(every_fault(recording, distance=18))
    assert {kind for trial in trials for [fault] in trial.stages for kind in [fault.kind]} == set(KINDS)
    check(pipeline, trials)


@pytest.mark.usefixtures("in_root")
def test_the_cleanup_of_a_log_outlives_random_schedules(folder: str, processes: Processes) -> None:
    pipeline, recording = recorded("clean_up", folder, processes)
    check(pipeline, list(schedules(recording, "clean_up", 16, 4)))


@pytest.mark.usefixtures("in_root")
@pytest.mark.parametrize(
    ("name", "changed"), [("rewind", "checkpoint*"), ("fork", "fork*"), ("rebuild", "checkpoint*")]
)
def test_a_change_of_a_streams_checkpoint_outlives_kills(
    name: str, changed: str, folder: str, processes: Processes
) -> None:
    pipeline, recording = recorded(name, folder, processes)
    check(pipeline, kills(recording, changed)[::6])


@pytest.mark.usefixtures("in_root")
def test_commits_on_an_object_store_outlive_failures_and_lost_replies(
    folder: str, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(location, "_stores_of_spark", None)
    with PIPELINES["replace_on_s3"].folder(folder) as place:
        pipeline, recording = recorded("replace_on_s3", place, processes)
        faults = [
            fault
            for kind in ("raise", "lost_reply", "stale_listing")
            for fault in recording.faults(kind, "*of commit")[::6]
        ]
        check(pipeline, [Trial(str(fault), [[fault]]) for fault in faults])


@pytest.mark.spark
@pytest.mark.usefixtures("in_root")
@pytest.mark.parametrize("name", ["replace_on_webhdfs", "replace_on_s3a"])
@pytest.mark.sampled(2)
def test_commits_on_file_systems_of_hadoop_outlive_kills_and_lost_replies(
    name: str, folder: str, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(location, "_stores_of_spark", None)
    with PIPELINES[name].folder(folder) as place:
        pipeline, recording = recorded(name, place, processes)
        of_commit = "*before put_if_absent of commit", "*created of commit", "*renamed of commit"
        lost = recording.faults("lost_reply", "*of commit")[:1]
        trials = [*kills(recording, *of_commit)[::3], *(Trial(str(fault), [[fault]]) for fault in lost)]
        check(pipeline, trials)


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("in_root")
@pytest.mark.parametrize("name", ["stream", pytest.param("dml_with_feed", marks=pytest.mark.long)])
def test_what_spark_writes_outlives_kills_around_its_commits(
    name: str, folder: str, processes: Processes
) -> None:
    pipeline, recording = recorded(name, folder, processes)
    check(pipeline, kills(recording, *COMMIT_STEPS)[::34])


WRONG = {
    "twice": "appends without txn: a restart writes the rows again",
    "lost": "marks its work as done before the commit",
    "detour": "ends with the right rows, by a version with the wrong ones",
}


@pytest.mark.usefixtures("in_root")
@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_pipeline_is_found(fault: str, folder: str, processes: Processes) -> None:
    pipeline = Pipeline(f"tests.faults.wrong_pipelines:{fault}", folder, processes)
    trials = kills(pipeline.record(), "*commit p*")
    wrong = [outcome for outcome in pipeline.run(trials) if outcome.problems]
    assert 0 < len(wrong) < len(trials), WRONG[fault]


@pytest.mark.usefixtures("in_root")
@pytest.mark.parametrize(
    "name", ["tests.faults", "tests.faults:nope", "nope.inner:commits", ":commits", "os:sep"]
)
def test_a_name_of_no_function_is_told_in_one_line(folder: str, processes: Processes, name: str) -> None:
    with pytest.raises(RuntimeError, match="names no function") as raised:
        Pipeline(name, folder, processes).record()
    assert "Traceback" not in str(raised.value)


def test_a_step_that_no_run_comes_to_is_an_error(folder: str, processes: Processes) -> None:
    pipeline, recording = recorded("replace", folder, processes)
    [fault] = recording.faults("kill", "table: commit put")[-1:]
    later = type(fault)("kill", fault.occurrence + 1, fault.name)
    [outcome] = pipeline.run([Trial("later", [[later]])])
    assert outcome.problems == ["1 faults did not happen: the run came to no such step"]


def test_a_step_of_the_code_that_no_pipeline_takes_is_an_error(tmp_path: Path) -> None:
    log = tmp_path / "faults.jsonl"
    assert {"commit put", "LocalLogStore.put_if_absent: after", "JavaFiles.rename: after"} <= steps_of_code()
    taken = sorted(steps_of_code() - {"commit put"})
    lines = [Steps(name, taken, len(taken), {}) for name in PIPELINES]
    log.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines[1:]))
    assert missing_steps(log) == []  # the log does not have every pipeline yet
    log.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    assert missing_steps(log) == ["commit put"]


def test_of_kills_that_leave_the_same_folder_one_is_left() -> None:
    contents = ["a", "a", "b", "a", "a", None, None]
    points = [
        PointReport("odd" if n % 2 else "even", n, ("kill", "raise"), "code", content)
        for n, content in enumerate(contents, 1)
    ]
    recording = Recording(points, (), {}, frozenset())
    assert [fault.occurrence for fault in recording.faults("kill")] == [1, 3, 4, 6, 7]
    assert [fault.occurrence for fault in recording.faults("kill", "even")] == [2, 6]
    assert len(recording.faults("raise")) == len(points)


def test_a_process_that_does_not_watch_its_steps_has_the_stores_as_they_are() -> None:
    program = (
        "import sys; from deltaflow.store import LocalLogStore; import deltaflow.log;"
        "assert 'deltaflow.testing' not in sys.modules;"
        "assert not hasattr(LocalLogStore.put_if_absent, '__wrapped__')"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_steps_have_the_same_names_whatever_ids_and_versions_there_are() -> None:
    names = {
        "/w/t-1/sink/_delta_log/00000000000000000003.json": "sink: commit put of commit",
        "/w/t-1/sink/_delta_log": "sink: commit put of log",
        "/w/t-1/sink/part=1/part-0.parquet": "sink: commit put of data file",
        "/w/t-1/sink": "sink: commit put",
        "/w/t-1/checkpoint/offsets/17": "checkpoint/offsets/N: commit put",
        "/w/t-1": "commit put",
    }
    found = {
        path: steps.name_of(steps.Step(path, "commit put", of_store=False, code="commit put"), "/w/t-1")
        for path in names
    }
    assert found == names


def test_the_plugin_runs_a_pipeline_under_every_kill(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = "deltaflow.testing"\n')
    (tmp_path / "copies.py").write_text(
        "from tests.faults.log_pipelines import replace\nfrom tests.faults.wrong_pipelines import twice\n"
    )
    (tmp_path / "test_copies.py").write_text(
        "import pytest\n"
        "@pytest.mark.faults(at='*after put_if_absent of commit', kinds=('kill', 'lost_reply'))\n"
        "def test_right(fault_trials):\n"
        "    assert len(fault_trials.run('copies:replace')) == 6\n"
        "@pytest.mark.faults(at='*put_if_absent of commit', most=2)\n"
        "def test_wrong(fault_trials):\n"
        "    with pytest.raises(AssertionError, match='rows'):\n"
        "        fault_trials.run('copies:twice')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.parametrize(
    ("given", "values", "named"),
    [
        (["*commit*"], {}, r"'\*commit\*'"),
        ([], {"kind": ("raise",)}, "know kind"),
        ([], {"kinds": "kill"}, "the kind 'k'"),
        ([], {"kinds": ("kill", "kil")}, "the kind 'kil'"),
    ],
)
def test_a_marker_that_says_something_else_is_refused(
    given: list[str], values: dict[str, Any], named: str
) -> None:
    with pytest.raises(pytest.UsageError, match=named):
        plugin._chosen(pytest.Mark("faults", tuple(given), values, _ispytest=True))


def test_the_reader_finds_files_that_are_gone_or_torn(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    rows = pa.table({"id": [1, 2, 2, 3], "part": ["a", "b", "b", None]})
    deltalake.write_deltalake(path, rows, partition_by=["part"])
    state = Reader(path, frozenset()).state()
    assert state is not None
    assert state.rows == Counter(
        {"[('id', 1), ('part', 'a')]": 1, "[('id', 2), ('part', 'b')]": 2, "[('id', 3), ('part', None)]": 1}
    )
    ignoring = Reader(path, frozenset(["id"])).state()
    assert ignoring is not None
    assert ignoring.rows.total() == 4
    assert len(ignoring.rows) == 3
    [file, *_] = sorted(tmp_path.rglob("part=a/*.parquet"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(StoreError, match=f"{file.name} has"):
        Reader(path, frozenset()).state()
    file.unlink()
    with pytest.raises(FileNotFoundError):
        Reader(path, frozenset()).state()


def test_the_reader_names_fields_as_the_schema_does(tmp_path: Path) -> None:
    state = Reader(MappedTable(tmp_path / "t", "name").path, frozenset(["größe.`1`"])).state()
    assert state is not None
    assert len(state.rows) == 15
    row = "[('a,b', 107), ('id', 7), ('l', [{'e': 7}]), ('m', [('k', {'v': 7})]), "
    assert state.rows[row + "('s p', {'x.y': 70, 'z': 'z7'})]"] == 1
