"""Small histories of racing transactions on a real log, and two oracles of what their outcomes may be.

An operation is a function of the rows and properties of a table; a transaction carries it out on the
version it has read. `has_serial_order` runs the operations one after the other, by brute force in every
order that the isolation level allows, and compares. `expected_outcomes` compares, version by version,
all that a transaction has read or changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from deltaflow import errors
from deltaflow.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    DeltaError,
    MetadataChangedException,
    ProtocolChangedException,
)
from deltaflow.log import (
    AddFile,
    Committed,
    Conflict,
    DeltaLog,
    DomainMetadata,
    Operation,
    OptimisticTransaction,
    RemoveFile,
    SetTransaction,
    remove_files,
    schema_to_string,
)
from deltaflow.store import DataDirectory, FileStatus, LogStore
from tests.log.hand_written import add_file, new_metadata

SCHEMA = StructType([StructField("id", LongType()), StructField("part", IntegerType())])
PARTS = (1, 2)
FEATURES = ("vacuumProtocolCheck", "v2Checkpoint")


class DictionaryStore(LogStore):
    """Files in this process's memory."""

    failed_put_never_lands = True

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def list_from(self, directory: str, name: str) -> list[FileStatus]:
        found = sorted(path.removeprefix(f"{directory}/") for path in self.files)
        return [
            FileStatus(file, len(self.files[f"{directory}/{file}"]), int(file[:20]), "1")
            for file in found
            if file >= name
        ]

    def read(self, path: str) -> bytes:
        try:
            return self.files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def open(self, path: str) -> BinaryIO:
        return BytesIO(self.read(path))

    def put_if_absent(self, path: str, data: bytes) -> None:
        if path in self.files:
            raise FileExistsError(path)
        self.files[path] = data

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        raise NotImplementedError

    def delete(self, path: str) -> None:
        self.files.pop(path, None)

    def tails(self, files: Sequence[tuple[str, int]], size: int) -> list[bytes]:
        raise NotImplementedError

    def slices(self, pieces: Sequence[tuple[str, int, int]]) -> list[bytes]:
        raise NotImplementedError

    def absent(self, paths: Sequence[str]) -> list[str]:
        return [path for path in paths if path not in self.files]

    def data_directory(self, path: str) -> DataDirectory:
        raise NotImplementedError


@dataclass(frozen=True)
class Row:
    name: str
    part: int
    content: str


@dataclass(frozen=True)
class Rows:
    """What a table means, whatever files it has."""

    rows: frozenset[Row]
    description: int
    features: frozenset[str]
    domains: frozenset[tuple[str, int]] = frozenset()
    apps: frozenset[tuple[str, int]] = frozenset()


@dataclass
class Version:
    """One version of a table, by a replay without any cleverness; `since`: when a property was set."""

    files: frozenset[str] = frozenset()
    since: dict[str, int] = field(default_factory=dict)
    blind_adds: frozenset[str] = frozenset()
    adds: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Step:
    """One operation of a history, its `number` there, and the partition or name that it works on."""

    number: int
    operation: str
    target: Any

    def run(self, table: Rows) -> Rows:
        """The operation alone on the table."""
        rows = table.rows
        here = {row for row in rows if row.part == self.target}
        name = f"row{self.number}"
        match self.operation:
            case "insert":
                return replace(table, rows=rows | {Row(name, self.target, f"under {table.description}")})
            case "delete":
                return replace(table, rows=rows - here)
            case "copy":
                return replace(table, rows=rows | {Row(name, 3 - self.target, f"{len(here)} rows")})
            case "overwrite":
                return replace(table, rows=frozenset({Row(name, self.target, f"{len(rows)} rows")}))
            case "compact":
                return table
            case "move":
                moved = {row for row in rows if row.name == "first"}
                target = {Row(f"first, moved by {self.number}", 2, row.content) for row in moved}
                return replace(table, rows=rows - moved | target)
            case "alter":
                return replace(table, description=table.description + 1)
            case "alter and delete":
                return replace(table, rows=rows - here, description=table.description + 1)
            case "upgrade":
                return replace(table, features=table.features | {self.target})
            case "domain":
                return replace(table, domains=_counted(table.domains, self.target))
            case "batch":
                apps = _counted(table.apps, self.target)
                row = Row(name, 1, f"batch {dict(apps)[self.target]}")
                return replace(table, rows=rows | {row}, apps=apps)
        raise AssertionError(self.operation)


def _counted(counts: frozenset[tuple[str, int]], name: str) -> frozenset[tuple[str, int]]:
    return frozenset({**dict(counts), name: dict(counts).get(name, 0) + 1}.items())


OPERATIONS: list[tuple[str, Any]] = [
    *itertools.product(("insert", "delete", "copy", "compact"), PARTS),
    *itertools.product(("overwrite", "move", "alter and delete"), (1,)),
    ("alter", None),
    *itertools.product(("upgrade",), FEATURES),
    *itertools.product(("domain", "batch"), ("x", "y")),
]


class Attempt:
    """One step of a history as a transaction: what it read and does, and what became of it."""

    def __init__(self, step: Step, world: World) -> None:
        self.step = step
        self.world = world
        self.transaction: OptimisticTransaction = world.log.start_transaction()
        self.base = self.transaction.read_version
        self.reads: set[int] = set()
        """Partitions whose rows, future ones included, were read."""
        self.files: set[str] = set()
        self.actions: list[Any] = []
        self.outcome: Committed | Conflict | None = None
        self._prepare()

    @property
    def removes(self) -> set[str]:
        return {action.path for action in self.actions if isinstance(action, RemoveFile)}

    @property
    def changes_metadata(self) -> bool:
        return self.step.operation.startswith(("alter", "upgrade"))

    @property
    def is_blind_append(self) -> bool:
        return not (self.reads or self.files or self.removes)

    @property
    def version(self) -> int:
        """The version that it committed, or whose commit it blames."""
        match self.outcome:
            case Committed(version):
                return version
            case Conflict(error):
                assert error.version is not None
                return error.version
        raise AssertionError("not committed yet")

    def commit(self) -> None:
        outcome = self.transaction.try_commit(self.actions, Operation(self.step.operation))
        assert isinstance(outcome, Committed | Conflict)
        self.outcome = outcome

    def _prepare(self) -> None:
        step, transaction = self.step, self.transaction
        operation, target, name = step.operation, step.target, f"row{step.number}"
        snapshot = transaction.snapshot
        assert snapshot is not None
        metadata = snapshot.metadata
        match operation:
            case "insert":
                self._add([Row(name, target, f"under {metadata.description}")])
            case "delete":
                self._remove(self._read_part(target))
            case "copy":
                found = self._rows(self._read_part(target))
                self._add([Row(name, 3 - target, f"{len(found)} rows")])
            case "overwrite":
                transaction.record_read_of_whole_table()
                self.reads.update(PARTS)
                self.files.update(snapshot.files["path"].to_pylist())
                self._remove(snapshot.files)
                self._add([Row(name, target, f"{len(self._rows(snapshot.files))} rows")])
            case "compact":
                here = [self._part(path) == target for path in snapshot.files["path"].to_pylist()]
                files = snapshot.files.filter(pa.array(here, pa.bool_()))
                if files.num_rows > 1:
                    transaction.record_read_of_files(files)
                    self.files.update(files["path"].to_pylist())
                    self._remove(files, data_change=False)
                    self._add(self._rows(files), data_change=False)
            case "move":
                self._move(snapshot.files)
            case "alter" | "alter and delete":
                if target is not None:
                    self._remove(self._read_part(target))
                description = str(int(metadata.description or 0) + 1)
                transaction.update_metadata(msgspec.structs.replace(metadata, description=description))
            case "upgrade":
                configuration = {**metadata.configuration, f"delta.feature.{target}": "supported"}
                transaction.update_metadata(msgspec.structs.replace(metadata, configuration=configuration))
            case "domain":
                count = dict(self.world.rows().domains).get(target, 0) + 1
                self.actions.append(DomainMetadata(domain=target, configuration=str(count), removed=False))
            case "batch":
                version = (transaction.record_read_of_txn(target) or 0) + 1
                self.actions.append(SetTransaction(app_id=target, version=version))
                self._add([Row(name, 1, f"batch {version}")])

    def _move(self, files: Any) -> None:
        """Rewrites the file of one row without having read the others'."""
        for path in files["path"].to_pylist():
            rows = self.world.contents[path]
            moved = [row for row in rows if row.name == "first"]
            if moved:
                file = files.filter(pc.equal(files["path"], path))
                self._remove(file)
                self._add([row for row in rows if row not in moved])
                self._add([Row(f"first, moved by {self.step.number}", 2, moved[0].content)])

    def _read_part(self, part: int) -> Any:
        files = self.transaction.record_read_of_partitions(pc.field("part") == part)
        self.reads.add(part)
        self.files.update(files["path"].to_pylist())
        return files

    def _rows(self, files: Any) -> list[Row]:
        return [row for path in files["path"].to_pylist() for row in self.world.contents[path]]

    def _part(self, path: str) -> int:
        return self.world.contents[path][0].part

    def _remove(self, files: Any, *, data_change: bool = True) -> None:
        assert self.transaction.snapshot is not None
        self.actions += remove_files(self.transaction.snapshot.with_stats(files), 5, data_change=data_change)

    def _add(self, rows: list[Row], *, data_change: bool = True) -> None:
        if rows:
            self.actions.append(self.world.new_file(rows, data_change=data_change))


class World:
    """A table with three rows, each in a file of its own, and what its files hold."""

    def __init__(self, isolation: str) -> None:
        self.log = DeltaLog(DictionaryStore(), "/table")
        self.contents: dict[str, tuple[Row, ...]] = {}
        creation = self.log.start_transaction()
        creation.update_metadata(
            new_metadata(
                schema_string=schema_to_string(SCHEMA),
                partition_columns=["part"],
                description="0",
                configuration={
                    "delta.isolationLevel": isolation,
                    "delta.feature.domainMetadata": "supported",
                },
            )
        )
        first = [Row("first", 1, ""), Row("second", 1, ""), Row("third", 2, "")]
        creation.commit([self.new_file([row]) for row in first], Operation("CREATE TABLE"))
        self.first = self.rows()

    def new_file(self, rows: Sequence[Row], *, data_change: bool = True) -> AddFile:
        path = f"file{len(self.contents)}"
        self.contents[path] = tuple(rows)
        return add_file(path, partition_values={"part": str(rows[0].part)}, data_change=data_change)

    def versions(self) -> list[Version]:
        versions = [Version()]
        for commit in self.log.commits(0):
            before = versions[-1]
            since = dict(before.since)
            since.update({f"app {txn.app_id}": commit.version for txn in commit.txns})
            since.update({f"domain {domain.domain}": commit.version for domain in commit.domains})
            since.update({"metadata": commit.version} if commit.metadata else {})
            since.update({"protocol": commit.version} if commit.protocol else {})
            adds = frozenset(add.path for add in commit.adds)
            assert commit.commit_info is not None
            versions.append(
                Version(
                    before.files - {remove.path for remove in commit.removes} | adds,
                    since,
                    adds if commit.commit_info.is_blind_append else frozenset(),
                    adds,
                )
            )
        return versions[1:]

    def rows(self) -> Rows:
        """What the table means at its newest version."""
        commits = list(self.log.commits(0))
        protocol = [commit.protocol for commit in commits if commit.protocol][-1]
        metadata = [commit.metadata for commit in commits if commit.metadata][-1]
        rows = [row for path in self.versions()[-1].files for row in self.contents[path]]
        assert len(set(rows)) == len(rows)
        return Rows(
            frozenset(rows),
            int(metadata.description or 0),
            frozenset(protocol.writer_features or ()),
            frozenset({d.domain: int(d.configuration) for commit in commits for d in commit.domains}.items()),
            frozenset({txn.app_id: txn.version for commit in commits for txn in commit.txns}.items()),
        )


def play(
    isolation: str, operations: Sequence[tuple[str, Any]], schedule: Iterable[int]
) -> tuple[World, list[Attempt]]:
    """Play a history: the first mention of an operation begins it, the second one commits it."""
    world = World(isolation)
    attempts: dict[int, Attempt] = {}
    for number in schedule:
        if number in attempts:
            attempts[number].commit()
        else:
            attempts[number] = Attempt(Step(number, *operations[number]), world)
    return world, list(attempts.values())


def has_serial_order(isolation: str, world: World, attempts: Sequence[Attempt]) -> bool:
    """Whether the operations that committed, one after the other, leave the table as it is.

    Serializable: in the order of their versions. WriteSerializable: in some order, as far as they
    write: what they counted while they read may be of another order.
    """
    found = world.rows()
    committed = [attempt for attempt in attempts if isinstance(attempt.outcome, Committed)]
    committed.sort(key=lambda attempt: attempt.version)
    steps = [attempt.step for attempt in committed]
    if isolation == "Serializable":
        return _run(steps, world.first) == found
    return any(
        _without_counts(_run(order, world.first)) == _without_counts(found)
        for order in itertools.permutations(steps)
    )


def _run(steps: Iterable[Step], table: Rows) -> Rows:
    for step in steps:
        table = step.run(table)
    return table


def _without_counts(table: Rows) -> Rows:
    rows = {replace(row, content="") if row.content.endswith("rows") else row for row in table.rows}
    return replace(table, rows=frozenset(rows))


def class_of(error: DeltaError) -> type[DeltaError]:
    """The class that was raised; the error's own may have bases of PySpark beside it."""
    return vars(errors)[error.name]  # type: ignore[no-any-return]


def expected_outcomes(
    isolation: str, world: World, attempts: Sequence[Attempt]
) -> list[tuple[type[Exception], int] | None]:
    """For each attempt the error, and the version to blame, that its reads call for; None for a commit."""
    versions = world.versions()
    return [_expected(isolation, world, attempt, versions) for attempt in attempts]


def _expected(
    isolation: str, world: World, attempt: Attempt, versions: list[Version]
) -> tuple[type[Exception], int] | None:
    end = attempt.version if isinstance(attempt.outcome, Committed) else attempt.version + 1
    names = {
        *(f"app {a.app_id}" for a in attempt.actions if isinstance(a, SetTransaction)),
        *(f"domain {a.domain}" for a in attempt.actions if isinstance(a, DomainMetadata)),
    }
    for version in range(attempt.base + 1, end):
        before, after = versions[version - 1], versions[version]
        changed = {name for name in after.since if after.since[name] == version}
        added = after.adds
        if attempt.step.operation == "compact" and attempt.actions:
            added = frozenset()
        elif isolation == "WriteSerializable" and not attempt.changes_metadata:
            added -= after.blind_adds
        gone = before.files - after.files
        causes = [
            (ProtocolChangedException, "protocol" in changed),
            (MetadataChangedException, "metadata" in changed),
            (ConcurrentTransactionException, bool(changed & names)),
            (
                ConcurrentAppendException,
                any(world.contents[path][0].part in attempt.reads for path in added),
            ),
            (ConcurrentDeleteReadException, bool(gone & attempt.files)),
            (ConcurrentDeleteDeleteException, bool(gone & attempt.removes)),
        ]
        for error, holds in causes:
            if holds:
                return error, version
    return None
