"""Processes that create one table at once and write into it, and what must hold afterwards.

The long races, of 8 processes that append 50 times each, without and with 2 that rewrite and delete:

    python -m tests.log.races [FOLDER]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from deltaflow.log import Commit, DeltaLog
from tests.processes import run_at_once

OWN_WRITER = Path(__file__).with_name("racing_writer.py")
Operation = dict[str, Any]
"""What a writer says of one operation; see racing_writer."""


def race(
    path: str,
    *,
    appenders: int,
    appends: int,
    rewriters: int = 0,
    rewrites: int = 0,
    program: Path = OWN_WRITER,
    first_arguments: Sequence[str] = (),
) -> list[Operation]:
    """Let the processes go all at once; returns what they did, those of one process in order."""
    writers = [(f"appender{number}", "append", appends) for number in range(appenders)]
    writers += [(f"rewriter{'r' * number}", "rewrite", rewrites) for number in range(rewriters)]
    arguments = [
        [*first_arguments, path, writer, role, str(operations)] for writer, role, operations in writers
    ]
    told = run_at_once(program, arguments, timeout_s=1_800)
    return [operation for operations in told for operation in operations]


def check_versions(path: str, done: list[Operation]) -> None:
    """Versions without a gap, each of the writer that was told so; one table, made once."""
    commits = list(DeltaLog.for_table(path).commits(0))
    assert [commit.version for commit in commits] == list(range(len(commits)))
    told = sorted(operation["version"] for operation in done if "version" in operation)
    assert told == list(range(len(commits)))
    assert [commit.version for commit in commits if commit.metadata or commit.protocol] == [0]
    assert len({commit.commit_info.txn_id for commit in commits if commit.commit_info}) == len(commits)
    for operation in done:
        if operation["operation"] == "append":
            (added,) = commits[operation["version"]].adds
            assert added.path == f"{operation['id']}.parquet"


def check_rows(path: str, done: list[Operation], table: DeltaTable) -> None:
    """The rows, as an independent reader finds them, are those of all commits one after the other."""
    expected: dict[str, tuple[int, int]] = {}
    """Id to partition and `touched`."""
    for operation in sorted((o for o in done if "version" in o), key=lambda o: o["version"]):
        part = operation["part"]
        here = [name for name, (other, _) in expected.items() if other == part]
        match operation["operation"]:
            case "append":
                expected[operation["id"]] = (part, 0)
            case "touch":
                expected.update({name: (part, expected[name][1] + 1) for name in here})
            case "delete":
                expected = {name: row for name, row in expected.items() if name not in here}
    rows = table.to_pyarrow_table().to_pylist()
    assert len(rows) == len({row["id"] for row in rows})
    assert {row["id"]: (row["part"], row["touched"]) for row in rows} == expected
    ours = DeltaLog.for_table(path).snapshot().files["path"].to_pylist()
    assert sorted(ours) == sorted(os.path.basename(uri) for uri in table.file_uris())


def check_conflicts(path: str, done: list[Operation]) -> None:
    """Each loser blames the first commit that was in its way, and says in what manner it was."""
    commits = list(DeltaLog.for_table(path).commits(0))
    active: list[frozenset[str]] = []
    for commit in commits:
        before = active[-1] if active else frozenset[str]()
        active.append(before - {remove.path for remove in commit.removes} | {add.path for add in commit.adds})
    for operation in done:
        if operation["operation"] == "append":
            continue
        base = operation["base"]
        winners = commits[base + 1 : operation.get("version")]
        causes = ((_cause(winner, operation, active[base]), winner.version) for winner in winners)
        first = next((found for found in causes if found[0] is not None), None)
        said = (operation["error"], operation["winner"]) if "error" in operation else None
        assert said == first, operation


def _cause(winner: Commit, loser: Operation, files: frozenset[str]) -> str | None:
    """The error of a loser that had read the files of its partition among `files`."""
    part = str(loser["part"])
    if loser["operation"] != "compact" and any(add.partition_values["part"] == part for add in winner.adds):
        return "ConcurrentAppendException"
    if any(
        remove.path in files and (remove.partition_values or {})["part"] == part for remove in winner.removes
    ):
        return "ConcurrentDeleteReadException"
    return None


def run_long_race(
    path: str,
    table: Callable[[], DeltaTable],
    *,
    rewriters: int,
    program: Path = OWN_WRITER,
    first_arguments: Sequence[str] = (),
) -> None:
    """Lets 8 processes append 50 times each, and rewriters beside them; checks and prints what they did."""
    began = time.monotonic()
    done = race(
        path,
        appenders=8,
        appends=50,
        rewriters=rewriters,
        rewrites=60,
        program=program,
        first_arguments=first_arguments,
    )
    seconds = time.monotonic() - began
    check_versions(path, done)
    check_rows(path, done, table())
    check_conflicts(path, done)
    outcomes = Counter(f"{o['operation']}: {o.get('error', 'committed')}" for o in done)
    print(f"{sum('version' in o for o in done)} commits in {seconds:.1f} s: {dict(outcomes)}", flush=True)


def main(folder: str) -> None:
    for rewriters in (0, 2):
        path = os.path.join(folder, f"race-with-{rewriters}")
        run_long_race(path, lambda path=path: DeltaTable(path), rewriters=rewriters)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as own:
            main(own)
