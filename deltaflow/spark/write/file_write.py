"""A write as the JVM drives it: begin in Python, files by Spark, commit in Python.

Between the two calls the write is kept under the JVM's handle. `abort` may come at any moment, also
while `begin` or `commit` still run: after it has answered, no commit of this write can appear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

from pyspark.sql.types import StructType

from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaInvariantViolationException,
    DeltaUnsupportedOperationException,
    OperationCancelledError,
)
from deltaflow.log.files.data_skipping import Predicate
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.spark.scan.file_index import ScannedFiles, hadoop_path, scan_kind


def local_path(encoded: str) -> str:
    """The local path of a URI-encoded one as Hadoop gives it."""
    return unquote(encoded).removeprefix("file://").removeprefix("file:")


class WrittenFile(NamedTuple):
    """A new data file: its URI-encoded absolute path as Hadoop gives it, bytes, ms since the epoch."""

    path: str
    size: int
    modification_time: int


class Skip(NamedTuple):
    """There is nothing to write."""

    settings_to_unset: Sequence[str] = ()
    """As of FileWrite."""
    is_repeated: bool = False
    """The table has this very write already; counted by Spark's metrics system."""


@dataclass(frozen=True)
class Check:
    """A condition, in SQL, that every row has to satisfy: where it is false or null, `message`, which begins
    with an error class in brackets, is the error. `shows_values`: the values of its columns follow.
    `without_column`: the class of the error where the rows lack a column of the condition; None: Spark's own.
    """

    condition: str
    message: str
    shows_values: bool = False
    without_column: str | None = None


@dataclass(frozen=True)
class RowPlan:
    """How a frame's rows become the table's.

    `frame`: the frame's columns in its order, under the table's names. They are cast to `cast`, the table's
    types without what the frame lacks, by name; then `columns`, SQL, one a column of `table`, are selected
    and `checks` made. Without `cast` the rows are written as they are.
    """

    frame: StructType
    table: StructType
    cast: StructType | None = None
    columns: Sequence[str] = ()
    checks: Sequence[Check] = ()


class Replaced(Protocol):
    """Told which files hold rows that are replaced, before a file is written; answers with the scan
    (file_index.relation) of the files whose other rows are to be written again, None if none are.
    """

    def __call__(
        self, paths: Sequence[str], partition_filter: Predicate | None, *, has_data_filters: bool
    ) -> dict[str, Any] | None:
        """`paths` as of WrittenFile. `partition_filter`: the conjuncts of the predicate on partition columns
        alone, as far as they have a form for data skipping.
        """


@dataclass(frozen=True)
class ReplaceWhere:
    """The rows for which `predicate` (SQL) is true are replaced; `relation` scans the table, by a description
    of kind "write" with the write's `handle` and `which` files, which are those that `files` tells."""

    predicate: str
    relation: dict[str, Any]
    replaced: Replaced
    files: Callable[[str], ScannedFiles]


class FileWrite(Protocol):
    """What `begin` decided about one write."""

    @property
    def path(self) -> str:
        """The table's path, local and not encoded."""

    @property
    def folder(self) -> str | None:
        """The folder inside the table that the files go into; None: the table's own."""

    @property
    def rows(self) -> RowPlan:
        """What the frame's rows go through."""

    @property
    def replace_where(self) -> ReplaceWhere | None:
        """The rows of the table that are replaced, if a predicate names them."""

    @property
    def partition_columns(self) -> Sequence[str]:
        """The table's partition columns."""

    @property
    def file_options(self) -> Mapping[str, str]:
        """Options of Spark's Parquet writer."""

    @property
    def optimized_write_bytes(self) -> int | None:
        """The rows of a partition are brought together before the write, this many bytes to a task; None:
        every task writes the rows that it has."""

    @property
    def settings_to_unset(self) -> Sequence[str]:
        """Settings of the session that the write uses up: they are unset when it is done."""

    @property
    def quarantine(self) -> Quarantine | None:
        """Where rows go that do not fit the table; None: the first of them fails the write."""

    def commit(self, files: Sequence[WrittenFile], kept: Sequence[WrittenFile]) -> FileRewrite | None:
        """Commits the files, and those of the `kept` rows; raises one of ours where that can't be. Returns a
        rewrite that is to follow."""

    def cancel(self, files: Sequence[WrittenFile] | None) -> None:
        """Makes sure that no commit comes any more; waits for a put that has begun. Then nobody needs the
        `files`; None: Spark's job, which removes its files itself, has failed or was not begun."""


@dataclass(frozen=True)
class Quarantine:
    """A write of the rows of a batch that do not fit the table, with the columns reason, batch id, query id
    and row (see Quarantine.java). It commits first.

    A reason is one of these texts with the value after it, one for each column of the write's RowPlan.cast
    and of its RowPlan.table, or the message of a check.
    """

    write: FileWrite
    batch_id: int
    query_id: str
    cast_errors: Sequence[str]
    value_errors: Sequence[str]


class FileRewrite(Protocol):
    """Files of a table that are to be replaced by new ones with the same rows (see Rewrites.java)."""

    def request(self, handle: int) -> dict[str, Any]:
        """What the JVM needs to run it. Its jobs are writes that name the handle, and so do its scans."""

    def end(self, error: str | None) -> FileRewrite | None:
        """To be called when it is over, with what failed it: the rewrite to run instead, or None. After this
        has returned, no commit of it comes any more."""


Begin = Callable[[dict[str, Any]], FileWrite | Skip]
_kinds: dict[str, Begin] = {}


def write_kind(kind: str) -> Callable[[Begin], Begin]:
    """Decorator: the function begins writes of this `kind`."""

    def add(function: Begin) -> Begin:
        _kinds[kind] = function
        return function

    return add


@dataclass
class _Slot:
    write: FileWrite | None = field(default=None)
    rewrite: FileRewrite | None = field(default=None)
    """What follows the write's commit."""


@dispatcher.handle("write.begin")
def _begin(request: dict[str, Any]) -> dict[str, Any]:
    slot = _Slot()
    # Kept before the work begins, so that an abort that overtakes it leaves nothing behind.
    dispatcher.keep(request["handle"], slot)
    write = _kinds[request["kind"]](request)
    if isinstance(write, Skip):
        dispatcher.release(request["handle"])
        return {
            "skip": True,
            "isRepeated": write.is_repeated,
            "settingsToUnset": list(write.settings_to_unset),
        }
    slot.write = write
    return {
        "skip": False,
        "settingsToUnset": list(write.settings_to_unset),
        **_target(write),
        "replaceWhere": None if write.replace_where is None else write.replace_where.predicate,
        "relation": None if write.replace_where is None else write.replace_where.relation,
        "quarantine": None if write.quarantine is None else _described_quarantine(write.quarantine),
    }


def _target(write: FileWrite) -> dict[str, Any]:
    return {
        "optimizedWriteBytes": write.optimized_write_bytes,
        "path": hadoop_path(write.path if write.folder is None else f"{write.path}/{write.folder}"),
        **_described(write.rows),
        "partitionColumns": list(write.partition_columns),
        # Partition folders show timestamps in this zone; the log's values are in UTC.
        "options": {**write.file_options, "timeZone": "UTC"},
    }


def _described_quarantine(quarantine: Quarantine) -> dict[str, Any]:
    return {
        **_target(quarantine.write),
        "batchId": quarantine.batch_id,
        "queryId": quarantine.query_id,
        "castErrors": list(quarantine.cast_errors),
        "valueErrors": list(quarantine.value_errors),
    }


def _described(rows: RowPlan) -> dict[str, Any]:
    return {
        "frame": rows.frame.json(),
        "table": rows.table.json(),
        "cast": None if rows.cast is None else rows.cast.json(),
        "columns": list(rows.columns),
        "checks": [asdict(check) for check in rows.checks],
    }


@dispatcher.handle("write.replaced")
def _replaced(request: dict[str, Any]) -> dict[str, Any]:
    replace_where = _write(request).replace_where
    assert replace_where is not None
    scan = replace_where.replaced(
        request["paths"], request["partitionFilter"], has_data_filters=request["hasDataFilters"]
    )
    return {"relation": scan}


@scan_kind("write")
def _scanned(description: dict[str, Any]) -> ScannedFiles:
    replace_where = _write(description).replace_where
    assert replace_where is not None
    return replace_where.files(description["which"])


@dispatcher.handle("write.violated")
def _violated(request: dict[str, Any]) -> None:
    """A row failed a check: `message` begins with the error class in brackets."""
    error_class, _, message = request["message"].removeprefix("[").partition("] ")
    kind = (
        DeltaAnalysisException
        if error_class == "DELTA_REPLACE_WHERE_MISMATCH"
        else DeltaInvariantViolationException
    )
    raise kind(message, error_class=error_class, table=_write(request).path)


@dispatcher.handle("write.withoutColumn")
def _without_column(request: dict[str, Any]) -> None:
    """The rows lack a column that a check's condition names."""
    check = request["check"]
    raise DeltaAnalysisException(
        error_class=check["without_column"], column_name=request["column"], constraints=check["condition"]
    )


@dispatcher.handle("write.unplannable")
def _unplannable(request: dict[str, Any]) -> None:
    raise DeltaUnsupportedOperationException(
        "A condition on the rows of a table can have no subqueries and no functions of Python: "
        f"{request['expression']}",
        error_class="DELTA_UNSUPPORTED_SUBQUERY_IN_PARTITION_PREDICATES",
    )


@dispatcher.handle("write.commit")
def _commit(request: dict[str, Any]) -> dict[str, Any]:
    files, kept, quarantined = (
        [WrittenFile(*file) for file in request.get(name, ())] for name in ("files", "kept", "quarantined")
    )
    write = _write(request)
    if write.quarantine is not None:
        write.quarantine.write.commit(quarantined, [])
    slot: _Slot | None = dispatcher.find(request["handle"])
    return _offer(request["handle"], slot, write.commit(files, kept))


def _write(request: dict[str, Any]) -> FileWrite:
    slot: _Slot | None = dispatcher.find(request["handle"])
    if slot is None or slot.write is None:
        raise OperationCancelledError("the write was stopped before its commit")
    return slot.write


def _offer(handle: int, slot: _Slot | None, rewrite: FileRewrite | None) -> dict[str, Any]:
    """The answer that has the JVM run a rewrite. From now on it stands under the handle, for an abort too."""
    if slot is None or rewrite is None:
        dispatcher.release(handle)
        return {"rewrite": None}
    slot.rewrite = rewrite
    return {"rewrite": rewrite.request(handle)}


@dispatcher.handle("rewrite.end")
def _end_of_rewrite(request: dict[str, Any]) -> dict[str, Any]:
    slot: _Slot | None = dispatcher.find(request["handle"])
    if slot is None or slot.rewrite is None:
        return {"rewrite": None}
    return _offer(request["handle"], slot, slot.rewrite.end(request["error"]))


def keep_rewrite(handle: int, rewrite: FileRewrite) -> None:
    """Keeps a rewrite that no write has brought about under a handle of the JVM's, until it has ended."""
    dispatcher.keep(handle, _Slot(rewrite=rewrite))


def open_rewrite(handle: int) -> FileRewrite:
    """The rewrite that runs under a handle; OperationCancelledError when it has ended."""
    slot: _Slot | None = dispatcher.find(handle)
    if slot is None or slot.rewrite is None:
        raise OperationCancelledError("the rewrite was stopped")
    return slot.rewrite


@dispatcher.handle("write.abort")
def _abort(request: dict[str, Any]) -> None:
    slot: _Slot | None = dispatcher.release(request["handle"])
    if slot is not None and slot.write is not None:
        files = None
        if "files" in request:
            files = [WrittenFile(*file) for file in [*request["files"], *request.get("kept", [])]]
        slot.write.cancel(files)
        if slot.write.quarantine is not None and "quarantined" in request:
            slot.write.quarantine.write.cancel([WrittenFile(*file) for file in request["quarantined"]])
