"""A write as the JVM drives it: begin in Python, files by Spark, commit in Python.

Between the two calls the write is kept under the JVM's handle. `abort` may come at any moment, also
while `begin` or `commit` still run: after it has answered, no commit of this write can appear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote

from pyspark.sql.types import StructType

from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaInvariantViolationException,
    DeltaUnsupportedOperationException,
    OperationCancelledError,
)
from deltaflow.spark.bridge.dispatcher import dispatcher, request_type
from deltaflow.spark.bridge.messages import HandleRequest
from deltaflow.spark.expressions.row_operations import new_handle, write_rows
from deltaflow.spark.scan.file_index import hadoop_path
from deltaflow.spark.write.messages import (
    AbortRequest,
    BeginAnswer,
    CommitAnswer,
    CommitRequest,
    FrameWriteRequest,
    QuarantineTarget,
    Target,
    UnplannableRequest,
    ViolatedRequest,
    WithoutColumnRequest,
    WriteRequest,
)
from deltaflow.spark.write.messages import Check as Check
from deltaflow.spark.write.messages import WrittenFile as WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def local_path(encoded: str) -> str:
    """The local path of a URI-encoded one as Hadoop gives it."""
    return unquote(encoded).removeprefix("file://").removeprefix("file:")


class Skip(NamedTuple):
    """There is nothing to write."""

    settings_to_unset: Sequence[str] = ()
    """As of FileWrite."""
    is_repeated: bool = False
    """The table has this very write already; counted by Spark's metrics system."""


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

    def commit(self, files: Sequence[WrittenFile]) -> FollowUp | None:
        """Commits the files; raises one of ours where that can't be. Returns what is to follow."""

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


class FollowUp(Protocol):
    """What is done after a write's commit, on the thread of the write's caller."""

    def run(self, spark: SparkSession) -> None:
        """Does it, in the write's session. A failure is not the write's: that has been committed."""

    def cancel(self) -> None:
        """After this has returned, no commit of it comes any more."""


_Request = TypeVar("_Request", bound=WriteRequest)
_Begin = Callable[[_Request], FileWrite | Skip]


def begins_write(name: str) -> Callable[[_Begin[_Request]], _Begin[_Request]]:
    """Decorator: the function begins writes that the JVM asks for as write.begin.`name`, by requests of its
    parameter's type."""

    def add(function: _Begin[_Request]) -> _Begin[_Request]:
        def begin(request: Any) -> BeginAnswer:
            return _begin(request, function)

        dispatcher.answer(f"write.begin.{name}", begin, request_type(function))
        return function

    return add


@dataclass
class _Slot:
    write: FileWrite | None = None
    follow_up: FollowUp | None = None


def _begin(request: _Request, begins: _Begin[_Request]) -> BeginAnswer:
    slot = _Slot()
    # Kept before the work begins, so that an abort that overtakes it leaves nothing behind.
    dispatcher.keep(request.handle, slot)
    write = begins(request)
    if isinstance(write, Skip):
        dispatcher.release(request.handle)
        return BeginAnswer(
            target=None,
            quarantine=None,
            is_repeated=write.is_repeated,
            settings_to_unset=list(write.settings_to_unset),
        )
    slot.write = write
    return BeginAnswer(
        target=Target(**_target(write)),
        quarantine=None if write.quarantine is None else _quarantine_target(write.quarantine),
        is_repeated=False,
        settings_to_unset=list(write.settings_to_unset),
    )


def _target(write: FileWrite) -> dict[str, Any]:
    """The fields of a Target."""
    rows = write.rows
    return {
        "path": hadoop_path(write.path if write.folder is None else f"{write.path}/{write.folder}"),
        "partition_columns": list(write.partition_columns),
        # Partition folders show timestamps in this zone; the log's values are in UTC.
        "options": {**write.file_options, "timeZone": "UTC"},
        "optimized_write_bytes": write.optimized_write_bytes,
        "frame": rows.frame.json(),
        "table": rows.table.json(),
        "cast": None if rows.cast is None else rows.cast.json(),
        "columns": list(rows.columns),
        "checks": list(rows.checks),
    }


def _quarantine_target(quarantine: Quarantine) -> QuarantineTarget:
    return QuarantineTarget(
        **_target(quarantine.write),
        batch_id=quarantine.batch_id,
        query_id=quarantine.query_id,
        cast_errors=list(quarantine.cast_errors),
        value_errors=list(quarantine.value_errors),
    )


@dispatcher.handle("write.violated")
def _violated(request: ViolatedRequest) -> None:
    error_class, _, message = request.message.removeprefix("[").partition("] ")
    error_type = (
        DeltaAnalysisException
        if error_class == "DELTA_REPLACE_WHERE_MISMATCH"
        else DeltaInvariantViolationException
    )
    raise error_type(message, error_class=error_class, table=_write(request.handle).path)


@dispatcher.handle("write.withoutColumn")
def _without_column(request: WithoutColumnRequest) -> None:
    raise DeltaAnalysisException(
        error_class=request.error_class, column_name=request.column, constraints=request.condition
    )


@dispatcher.handle("write.unplannable")
def _unplannable(request: UnplannableRequest) -> None:
    raise DeltaUnsupportedOperationException(
        error_class="DELTA_UNSUPPORTED_SUBQUERY_IN_PARTITION_PREDICATES", expression=request.expression
    )


@dispatcher.handle("write.commit")
def _commit(request: CommitRequest) -> CommitAnswer:
    write = _write(request.handle)
    if write.quarantine is not None:
        write.quarantine.write.commit(request.quarantined)
    follow_up = write.commit(request.files)
    slot: _Slot | None = dispatcher.find(request.handle)
    if slot is not None and follow_up is not None:
        # It stands under the handle from now on, for an abort too.
        slot.follow_up = follow_up
        return CommitAnswer(is_followed=True)
    dispatcher.release(request.handle)
    return CommitAnswer(is_followed=False)


@dispatcher.handle("write.followUp")
def _follow_up(request: HandleRequest) -> None:
    slot: _Slot | None = dispatcher.find(request.handle)
    if slot is None or slot.follow_up is None:
        raise OperationCancelledError("the write was stopped after its commit")
    slot.follow_up.run(session_of_write(request.handle))
    dispatcher.release(request.handle)


def _write(handle: int) -> FileWrite:
    slot: _Slot | None = dispatcher.find(handle)
    if slot is None or slot.write is None:
        raise OperationCancelledError("the write was stopped before its commit")
    return slot.write


@begins_write("frame")
def _begin_frame(request: FrameWriteRequest) -> FileWrite:
    write: FileWrite | None = dispatcher.find(request.write)
    if write is None:
        raise OperationCancelledError("the write was stopped before it began")
    return write


def write_frame(rows: DataFrame, write: FileWrite, operation: str) -> None:
    """Has Spark write a frame's rows by a write of Python's; `operation` is shown in Spark's UI."""
    handle = new_handle(rows.sparkSession)
    dispatcher.keep(handle, write)
    try:
        write_rows(rows, handle, operation)
    finally:
        dispatcher.release(handle)


def session_of_write(handle: int) -> SparkSession:
    """The session of a write that runs: newSession's or a stream's, where it is one of those."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    assert context is not None
    jvm: Any = context._jvm
    session = jvm.io.deltaflow.spark.write.FileWrite.session(handle)
    if session is None:
        raise OperationCancelledError("the write was stopped")
    return SparkSession(context, session)


@dispatcher.handle("write.abort")
def _abort(request: AbortRequest) -> None:
    slot: _Slot | None = dispatcher.release(request.handle)
    if slot is not None and slot.follow_up is not None:
        slot.follow_up.cancel()
    elif slot is not None and slot.write is not None:
        slot.write.cancel(request.files)
        if slot.write.quarantine is not None and request.quarantined is not None:
            slot.write.quarantine.write.cancel(request.quarantined)
