"""Damaged logs: the answer must be a right state, or an error of ours that says which file is to blame.

    python -m tests.log.fuzz --cases 100000 --keep DIR   a long run; the logs of its findings stay in DIR
    python -m tests.log.fuzz --again DIR/case-4711       one of these once more

A case is a number. It chooses one of the logs of `sound_logs`, of another writer's, or of the tables in
$DELTAFLOW_GOLDENS, and one to three damages to its bytes and files. A state is right if a reader without
any cleverness (`plain_states`) finds it in the same files, with or without any of the checkpoints and
compactions.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import multiprocessing
import os
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from deltaflow.errors import CorruptLogError, DeltaError
from deltaflow.log import DeltaLog, Snapshot, add_files, encode_actions
from deltaflow.store import LocalLogStore
from tests.log.checkpoints import CHECKPOINT_LAYOUTS, write_checkpoint, write_compaction, write_hint
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol, remove

Log = dict[str, bytes]
"""The files of a log directory, `_sidecars/…` included, by name."""

_COMMIT = re.compile(r"(\d{20})\.json")
_COMPACTION = re.compile(r"(\d{20})\.(\d{20})\.compacted\.json")
_TOP = re.compile(r"(\d{20})\.checkpoint(\.[0-9a-fA-F-]{36})?\.(parquet|json)")
_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_NEEDED = {
    "add": ["path", "partitionValues", "size", "modificationTime", "stats", "deletionVector"],
    "remove": ["path", "deletionVector"],
    "txn": ["appId", "version"],
    "metaData": ["id", "schemaString", "partitionColumns", "configuration"],
    "protocol": ["minReaderVersion", "minWriterVersion"],
    "sidecar": ["path"],
}
_CASES_PER_PROCESS = 2_000
_LARGEST_LOG_BYTES = 400_000


# ---- Logs that are sound


def sound_logs(directory: Path) -> list[Log]:
    """A log for each layout of a checkpoint, and one with a compaction only; the same in every run."""
    logs = []
    numbers = itertools.count()
    with mock.patch("uuid.uuid4", side_effect=map(UUID, map("{:032x}".format, numbers))):
        for layout in (None, *CHECKPOINT_LAYOUTS):
            table = HandWrittenTable(directory / str(layout))
            _write_history(table, layout)
            logs.append(read_log(table.log_directory))
    return logs


def log_of_another_writer(path: Path) -> Log:
    """A log of deltalake's; another one in every run."""
    for number in range(3):
        rows = pa.table({"id": [number, number + 1], "part": ["a", "b c"]})
        write_deltalake(path, rows, mode="append", partition_by=["part"])
    DeltaTable(path).create_checkpoint()
    DeltaTable(path).delete("id = 1")
    return read_log(path / "_delta_log")


def golden_logs(directory: Path) -> list[Log]:
    """The smaller logs below $DELTAFLOW_GOLDENS that the plain reader understands; none without it."""
    root = os.environ.get("DELTAFLOW_GOLDENS")
    if root is None:
        return []
    logs = [read_log(found) for found in sorted(Path(root).glob("tables/*/_delta_log"))]
    logs = [log for log in logs if 0 < sum(map(len, log.values())) < _LARGEST_LOG_BYTES]
    return [log for number, log in enumerate(logs) if finding(log, directory / str(number), None)[1] is None]


def read_log(directory: Path) -> Log:
    return {
        str(file.relative_to(directory)): file.read_bytes()
        for file in sorted(directory.rglob("*"))
        if file.is_file() and not file.name.startswith(".")
    }


def _write_history(table: HandWrittenTable, layout: str | None) -> None:
    usual = {"partitionValues": {"part": "x"}, "stats": '{"numRecords":1}'}
    table.first_commit(add("a", **usual), add("p=%2520/b", **usual), partition_columns=["part"])
    table.commit(1, add("c", **usual), remove("a"), {"txn": {"appId": "q", "version": 1}})
    table.commit(2, add("d", **usual, tags={"k": "v"}), {"commitInfo": {"operation": "WRITE"}})
    table.commit(3, remove("c"), add("ü", **usual), {"txn": {"appId": "q", "version": 2}})
    table.commit(4, add("a", **usual), {"future": {"x": 1}})
    if layout is None:
        changes = [add("d", **usual, tags={"k": "v"}), remove("c"), add("ü", **usual)]
        write_compaction(table, 2, 3, [*changes, {"txn": {"appId": "q", "version": 2}}])
        return
    state = [
        protocol(),
        meta_data(partition_columns=["part"]),
        add("p=%2520/b", **usual),
        add("c", **usual),
        add("d", **usual, tags={"k": "v"}),
        remove("a"),
        {"txn": {"appId": "q", "version": 1}},
    ]
    write_checkpoint(table, 2, state, layout)
    write_hint(table, 2)


# ---- Damages


def damaged(log: Log, random: random.Random) -> Log:
    """The log with one to three damages."""
    log = dict(log)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        if not log:
            break
        random.choice((_damage_bytes, _damage_bytes, _damage_bytes, _damage_files))(log, random)
    return log


def _damage_bytes(log: Log, random: random.Random) -> None:
    name = random.choice(sorted(log))
    log[name] = random.choice(_BYTE_DAMAGES)(log[name], random)


def _flip(data: bytes, random: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 4))):
        if changed:
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _truncate(data: bytes, random: random.Random) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _cut(data: bytes, random: random.Random) -> bytes:
    start, end = _slice(data, random)
    return data[:start] + data[end:]


def _repeat(data: bytes, random: random.Random) -> bytes:
    start, end = _slice(data, random)
    return data[:end] + data[start:end] + data[end:]


def _overwrite(data: bytes, random: random.Random) -> bytes:
    start, end = _slice(data, random)
    piece = random.choice(_PIECES) if random.random() < 0.5 else random.randbytes(end - start)
    return data[:start] + piece + data[end:]


def _reorder(data: bytes, random: random.Random) -> bytes:
    start, end = _slice(data, random)
    middle = random.randrange(start, end + 1)
    return data[:start] + data[middle:end] + data[start:middle] + data[end:]


def _shuffle_lines(data: bytes, random: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    random.shuffle(lines)
    return b"".join(lines)


def _repeat_line(data: bytes, random: random.Random) -> bytes:
    lines = data.splitlines(keepends=True) or [b""]
    lines.insert(random.randrange(len(lines) + 1), random.choice(lines))
    return b"".join(lines)


def _slice(data: bytes, random: random.Random) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(len(data), start + random.choice((1, 2, 8, 64)))


_PIECES = (b"", b"null", b"-1", b"99999999999999999999", b'"\\ud800"', b"[]", b"{}", b"\xff", b"1e999", b"\n")
_BYTE_DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip, _truncate, _cut, _repeat, _overwrite, _reorder, _shuffle_lines, _repeat_line,
)  # fmt: skip


def _damage_files(log: Log, random: random.Random) -> None:
    names = sorted(log)
    one, other = random.choice(names), random.choice(names)
    match random.randrange(5):
        case 0:
            del log[one]
        case 1:
            log[one], log[other] = log[other], log[one]
        case 2:
            log[other] = log[one]
        case 3:
            log[_renamed(one, random)] = log.pop(one)
        case 4:
            log[_renamed(one, random)] = log[one]


def _renamed(name: str, random: random.Random) -> str:
    """The name with other digits: of another version, part or UUID."""
    places = [place for place, char in enumerate(name) if char.isdigit()]
    if not places:
        return f"{name}.json"
    place = random.choice(places)
    return name[:place] + random.choice("0123456789") + name[place + 1 :]


# ---- The reader without any cleverness


@dataclass(frozen=True)
class State:
    """What a reader may find; maps as sorted pairs."""

    version: int
    metadata: tuple[Any, ...]
    protocol: tuple[Any, ...]
    files: frozenset[tuple[Any, ...]]
    transactions: frozenset[tuple[Any, Any]]


def plain_states(log: Log, version: int | None = None) -> Iterator[State]:
    """The state at a version, the newest by default, as each way of reading the files gives it."""
    checkpoints = dict(_checkpoints(log))
    versions = {int(match[1]) for name in log if (match := _COMMIT.fullmatch(name))}
    newest = (
        max([*versions, *(found for found, _ in checkpoints)], default=-1) if version is None else version
    )
    compactions = [(int(match[1]), int(match[2])) for name in log if (match := _COMPACTION.fullmatch(name))]
    chosen = [some for number in range(3) for some in itertools.combinations(compactions, number)]
    # A reader that needs the time of the newest commit may read it after a compaction that has it.
    for base, some, again in itertools.product((None, *checkpoints), chosen, (False, True)):
        first = 0 if base is None else base[0] + 1
        if first > newest + 1:
            continue
        try:
            actions = [] if base is None else [row for name in checkpoints[base] for row in _rows(log, name)]
            for number in range(first, newest + 1):
                inside = [found for found in some if found[0] <= number <= found[1]]
                for start, end in inside:
                    if number == max(first, start):
                        actions += _lines(log[f"{start:020}.{end:020}.compacted.json"])
                if not inside or (again and number == newest):
                    actions += _lines(log[f"{number:020}.json"])
            yield _replayed(newest, actions)
        # Whatever is wrong with the damaged files, this is no way to read them.
        except Exception:  # noqa: S112
            continue


def _checkpoints(log: Log) -> Iterator[tuple[tuple[int, str], list[str]]]:
    for name in log:
        if match := _TOP.fullmatch(name):
            yield (int(match[1]), name), [name]
        elif (match := _PART.fullmatch(name)) and int(match[2]) == 1:
            parts = [
                f"{match[1]}.checkpoint.{part:010}.{match[3]}.parquet"
                for part in range(1, int(match[3][-3:]) + 1)
            ]
            yield (int(match[1]), name), parts


def _lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.split(b"\n") if line.strip()]


def _rows(log: Log, name: str) -> list[dict[str, Any]]:
    if name.endswith(".json"):
        rows = _lines(log[name])
    else:
        file = pq.ParquetFile(BytesIO(log[name]))
        columns = [field for field in file.schema_arrow if pa.types.is_struct(field.type)]
        there = {column.name: {child.name for child in column.type} for column in columns}
        columns = [
            f"{action}.{child}"
            for action, needed in _NEEDED.items()
            for child in needed
            if child in there.get(action, ())
        ]
        rows = file.read(columns=columns).to_pylist()
    sidecars = [row["sidecar"]["path"] for row in rows if (row.get("sidecar") or {}).get("path")]
    return rows + [row for sidecar in sidecars for row in _rows(log, f"_sidecars/{sidecar}")]


def _replayed(version: int, actions: list[dict[str, Any]]) -> State:
    metadata: dict[str, Any] = {}
    protocol: dict[str, Any] = {}
    files: dict[tuple[Any, ...], dict[str, Any]] = {}
    transactions: dict[str, Any] = {}
    for action in actions:
        if (value := action.get("metaData")) and value["id"] is not None:
            metadata = value
        if (value := action.get("protocol")) and value["minReaderVersion"] is not None:
            protocol = value
        if (value := action.get("add")) and value["path"] is not None:
            files[_file(value)] = value
        if (value := action.get("remove")) and value["path"] is not None:
            files.pop(_file(value), None)
        if (value := action.get("txn")) and value["appId"] is not None:
            transactions[value["appId"]] = value["version"]
    return State(
        version,
        (
            metadata["id"],
            metadata.get("schemaString"),  # some writers' first commits lack it
            tuple(metadata["partitionColumns"]),
            _pairs(metadata.get("configuration") or {}),
        ),
        (protocol["minReaderVersion"], protocol["minWriterVersion"]),
        frozenset(
            (
                value["path"],
                value["size"],
                value["modificationTime"],
                _pairs(value["partitionValues"]),
                value.get("stats"),
            )
            for value in files.values()
        ),
        frozenset(transactions.items()),
    )


def _file(action: dict[str, Any]) -> tuple[Any, ...]:
    vector = action.get("deletionVector") or {}
    return (action["path"], *map(vector.get, ("storageType", "pathOrInlineDv", "offset")))


def _pairs(value: Any) -> tuple[tuple[Any, Any], ...]:
    return tuple(sorted(dict(value).items()))


# ---- What deltaflow says


def state_of(snapshot: Snapshot) -> State:
    """What a snapshot says; it is used in every way on the way there."""
    files = snapshot.files
    files.validate(full=True)
    snapshot.tombstones.validate(full=True)
    files = snapshot.with_stats(files)
    encode_actions(add_files(files))
    assert snapshot.schema is not None
    assert snapshot.size_in_bytes == sum(files["size"].to_pylist())
    metadata, protocol = snapshot.metadata, snapshot.protocol
    return State(
        snapshot.version,
        (
            metadata.id,
            metadata.schema_string,
            tuple(metadata.partition_columns),
            _pairs(metadata.configuration),
        ),
        (protocol.min_reader_version, protocol.min_writer_version),
        frozenset(
            (
                row["path"],
                row["size"],
                row["modification_time"],
                _pairs(row["partition_values"]),
                row["stats"],
            )
            for row in files.to_pylist()
        ),
        frozenset((app_id, txn.version) for app_id, txn in snapshot.transactions.items()),
    )


def finding(log: Log, directory: Path, version: int | None) -> tuple[str, str | None]:
    """What deltaflow made of a log, written to `directory`, and what is wrong with that, if anything."""
    for name, data in log.items():
        file = directory / "_delta_log" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    (directory / "_delta_log").mkdir(parents=True, exist_ok=True)
    table = DeltaLog(LocalLogStore(), str(directory))
    try:
        _use_in_other_ways(table)
        found = state_of(table.snapshot() if version is None else table.snapshot_at(version))
    except DeltaError as error:
        return type(error).__name__, _blames_nobody(error, str(directory))
    except BaseException as error:
        return "crash", f"{type(error).__name__}: {error}"
    if any(_agree(found, right) for right in plain_states(log, version)):
        return "state", None
    return "state", f"a state that is not in the files: {found}"


def _use_in_other_ways(table: DeltaLog) -> None:
    """What else a log is asked for must end in an answer or in an error of ours, too."""
    for use in (
        lambda: [encode_actions(commit.actions) for commit in table.commits(0)],
        table.available_versions,
        lambda: table.snapshot_at_timestamp(1_700_000_000_000),
        table.start_transaction,
    ):
        with suppress(DeltaError):
            use()


def _agree(found: State, right: State) -> bool:
    """Whether two states are equal, apart from statistics that the plain reader did not see."""
    unseen = {file[0] for file in right.files if file[-1] is None}
    files = frozenset((*file[:-1], None if file[0] in unseen else file[-1]) for file in found.files)
    return replace(found, files=files) == right


def _blames_nobody(error: DeltaError, table: str) -> str | None:
    if table not in str(error):
        return f"the error does not name the table: {error}"
    unreadable = isinstance(error, CorruptLogError) and error.error_class == "DELTA_LOG_CORRUPT"
    if unreadable and error.file is None and error.version is None:
        return f"the error names neither file nor version: {error}"
    return None


def run_case(case: int, logs: list[Log], directory: Path) -> tuple[str, str | None]:
    """What deltaflow made of a case, and what is wrong with that, if anything."""
    chance = random.Random(case)
    log = damaged(chance.choice(logs), chance)
    return finding(log, directory, version_of(case))


def version_of(case: int) -> int | None:
    """The version that a case looks at: the newest in two of three, else an early one."""
    return None if case % 3 else case // 3 % 6


# ---- The command


def _run_cases(cases: range, keep: Path, current: Any, answers: Any) -> None:
    logging.disable()
    with tempfile.TemporaryDirectory() as directory:
        logs = [
            *sound_logs(Path(directory) / "sound"),
            log_of_another_writer(Path(directory) / "deltalake"),
            *golden_logs(Path(directory) / "goldens"),
        ]
    for case in cases:
        current.value = case
        place = keep / f"case-{case}"
        outcome = run_case(case, logs, place)
        if outcome[1] is None:
            shutil.rmtree(place)
        answers.put((case, *outcome))
    answers.put(None)


def _run(first: int, number: int, keep: Path) -> int:
    """Run cases in processes that may crash; 1 if there was any finding."""
    context = multiprocessing.get_context("spawn")
    outcomes: Counter[str] = Counter()
    findings = 0
    case = first
    while case < first + number:
        current, answers = context.Value("q", case), context.SimpleQueue()
        cases = range(case, min(first + number, case + _CASES_PER_PROCESS))
        process = context.Process(target=_run_cases, args=(cases, keep, current, answers))
        process.start()
        finished = False
        while not finished and (process.is_alive() or not answers.empty()):
            if answers.empty():
                process.join(0.1)
                continue
            answer = answers.get()
            finished = answer is None
            if answer is not None:
                outcomes[answer[1]] += 1
                if answer[2] is not None:
                    findings += 1
                    print(f"{keep}/case-{answer[0]}: {answer[2][:2000]}", flush=True)
        process.join()
        case = cases.stop
        if not finished:
            findings += 1
            case = current.value + 1
            print(f"{keep}/case-{current.value}: the process ended with {process.exitcode}", flush=True)
        print(f"{case - first} cases, {findings} findings: {dict(outcomes)}", file=sys.stderr, flush=True)
    return 1 if findings else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Reads damaged logs.")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--cases", type=int, default=20_000, help="how many cases")
    parser.add_argument("--keep", type=Path, help="where the logs of findings stay; else in a new directory")
    parser.add_argument("--again", type=Path, help="one of those once more, and nothing else")
    options = parser.parse_args()
    if options.again is None:
        return _run(options.first, options.cases, options.keep or Path(tempfile.mkdtemp(prefix="fuzz-")))
    number = int(options.again.name.removeprefix("case-"))
    with tempfile.TemporaryDirectory() as directory:
        log = read_log(options.again / "_delta_log")
        outcome = finding(log, Path(directory) / "t", version_of(number))
    print(*outcome, sep="\n")
    return 1 if outcome[1] else 0


if __name__ == "__main__":
    sys.exit(main())
