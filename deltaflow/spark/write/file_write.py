"""A write that the JVM drives: Python begins it, Spark writes the files, Python commits them.

Between the two calls the dispatcher keeps the write under the JVM's handle. `abort` may come at any moment,
also while `begin` or `commit` still run. After `abort` has returned, no commit of this write can appear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from pyspark.sql.types import StructType

from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaInvariantViolationException,
    DeltaUnsupportedOperationException,
    OperationCancelledError,
)
from deltaflow.spark.bridge.dispatcher import dispatcher, request_type
from deltaflow.spark.bridge.java_classes import java_classes_of_context
from deltaflow.spark.bridge.messages import HandleRequest
from deltaflow.spark.expressions.checkpoints import computed_twice
from deltaflow.spark.expressions.frames import new_handle, write_rows
from deltaflow.spark.scan.file_index import hadoop_path
from deltaflow.spark.scan.messages import ColumnMapping
from deltaflow.spark.write.messages import (
    AbortRequest,
    BeginAnswer,
    CommitAnswer,
    CommitRequest,
    FrameWriteRequest,
    JudgedTwiceRequest,
    QuarantineTarget,
    Target,
    UnplannableRequest,
    ViolatedRequest,
    WithoutColumnRequest,
    WriteRequest,
)
from deltaflow.spark.write.messages import Check as Check
from deltaflow.spark.write.messages import Numbers as Numbers
from deltaflow.spark.write.messages import WrittenFile as WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class Skip(NamedTuple):
    """There is nothing to write."""

    settings_to_unset: Sequence[str] = ()
    """See FileWrite."""
    is_repeated: bool = False
    """The table has this very write already. Spark's metrics system counts such writes."""


@dataclass(frozen=True)
class RowPlan:
    """How the rows of a frame become rows of the table.

    `frame_schema` has the frame's columns in its order, under the table's names. First, but by the policy
    LEGACY, they are cast to `parsed_schema`, which has the table's types in place of strings that are texts
    of their values, and of void. Then they are cast by name to `cast_schema`: the table's types, without the
    columns and fields that the frame lacks. Then `columns` are selected, an SQL expression for each column of
    `table_schema`. Columns of `identities` get new numbers. Columns of `generated` are computed from the
    others by their SQL, and `checks` are made. Without `cast_schema` the rows are written as they are.
    """

    frame_schema: StructType
    table_schema: StructType
    parsed_schema: StructType | None = None
    cast_schema: StructType | None = None
    columns: Sequence[str] = ()
    checks: Sequence[Check] = ()
    identities: Mapping[str, Numbers] = field(default_factory=dict)
    generated: Mapping[str, str] = field(default_factory=dict)


class FileWrite(Protocol):
    """A write that has begun: what was decided about it, and its end."""

    @property
    def path(self) -> str:
        """The table's path, as its store knows it."""

    @property
    def folder(self) -> str | None:
        """The folder inside the table that gets the files; None for the table's own directory."""

    @property
    def rows(self) -> RowPlan:
        """How the frame's rows become rows of the table."""

    @property
    def partition_columns(self) -> Sequence[str]:
        """The table's partition columns."""

    @property
    def keeps_partition_columns(self) -> bool:
        """Whether the files hold the partition columns, too."""

    @property
    def mapping(self) -> ColumnMapping | None:
        """The names and ids that the columns get in the files; None if the table is not mapped."""

    @property
    def file_options(self) -> Mapping[str, str]:
        """Options of Spark's Parquet writer."""

    @property
    def optimized_write_bytes(self) -> int | None:
        """If given, the rows of a partition are shuffled to tasks of this many bytes before they are written.
        If None, every task writes the rows that it has."""

    @property
    def settings_to_unset(self) -> Sequence[str]:
        """Settings of the session that hold for this write alone: they are unset when it is done."""

    @property
    def quarantine(self) -> Quarantine | None:
        """Where rows go that do not fit the table. If None, the first such row fails the write."""

    def commit(self, files: Sequence[WrittenFile]) -> FollowUp | None:
        """Commits the files. Returns what has to run after the commit."""

    def cancel(self, files: Sequence[WrittenFile] | None) -> None:
        """Makes sure that no commit of this write appears any more, and removes the files. Waits for a put
        that has begun. `files` is None if Spark's job was not begun, or has failed and removed its files
        itself."""


@dataclass(frozen=True)
class Quarantine:
    """The write of a batch's rows that do not fit the table. It commits before the write of the other rows.

    Its columns are reason, batch id, query id and row (see Quarantine.java). A reason is the message of a
    check, or an error text followed by the value: `cast_errors` has one for each column of the RowPlan's
    `cast_schema`, `value_errors` one for each column of its `table_schema`. No value follows that of a column
    that is computed.
    """

    write: FileWrite
    batch_id: int
    query_id: str
    cast_errors: Sequence[str]
    value_errors: Sequence[str]


class FollowUp(Protocol):
    """Work that follows a write's commit, on the thread of the write's caller."""

    def run(self, spark: SparkSession) -> None:
        """Runs in the write's session. Its failure does not undo the write, which has been committed."""

    def cancel(self) -> None:
        """After this has returned, no commit of the follow-up can appear."""


_Request = TypeVar("_Request", bound=WriteRequest)
_Begin = Callable[[_Request], FileWrite | Skip]


def begins_write(name: str) -> Callable[[_Begin[_Request]], _Begin[_Request]]:
    """Decorator: the function answers write.begin.`name`, whose requests have the type of its parameter."""

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
    # The slot is kept before the work begins, so that an abort that overtakes the work leaves nothing behind.
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
        "keeps_partition_columns": write.keeps_partition_columns,
        "mapping": write.mapping,
        # Spark writes the timestamps in partition folders in this zone; the log has them in UTC.
        "options": {**write.file_options, "timeZone": "UTC"},
        "optimized_write_bytes": write.optimized_write_bytes,
        "frame_schema": rows.frame_schema.json(),
        "table_schema": rows.table_schema.json(),
        "parsed_schema": None if rows.parsed_schema is None else rows.parsed_schema.json(),
        "cast_schema": None if rows.cast_schema is None else rows.cast_schema.json(),
        "columns": list(rows.columns),
        "identities": dict(rows.identities),
        "generated": dict(rows.generated),
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
    write = _write(request.handle)
    # With a quarantine, no row fails at the stream's own table.
    refusing = write if write.quarantine is None else write.quarantine.write
    raise error_type(message, error_class=error_class, table=refusing.path)


@dispatcher.handle("write.judgedTwice")
def _judged_twice(request: JudgedTwiceRequest) -> None:
    raise computed_twice(request.parts, _write(request.handle).path)


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
        # From now on an abort finds the follow-up under the handle.
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


def write_frame(rows: DataFrame, write: FileWrite, operation: str) -> dict[str, int]:
    """Lets Spark write a frame's rows by a write that Python has begun; returns what `write_rows` returns.
    Spark's UI shows the `operation`."""
    handle = new_handle(rows.sparkSession)
    dispatcher.keep(handle, write)
    try:
        return write_rows(rows, handle, operation)
    finally:
        dispatcher.release(handle)


def session_of_write(handle: int) -> SparkSession:
    """The session of a running write, which may be a stream's or one made by newSession."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    assert context is not None
    session = java_classes_of_context().write.FileWrite.session(handle)
    if session is None:
        raise OperationCancelledError("the write was stopped")
    return SparkSession(context, session)


def condition_of_write(handle: int, rows: DataFrame) -> Column:
    """The condition on the rows that a running write replaces, if its statement has one, over a frame."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    return ClassicColumn(java_classes_of_context().write.FileWrite.condition(handle, rows._jdf))


@dispatcher.handle("write.abort")
def _abort(request: AbortRequest) -> None:
    slot: _Slot | None = dispatcher.release(request.handle)
    if slot is not None and slot.follow_up is not None:
        slot.follow_up.cancel()
    elif slot is not None and slot.write is not None:
        slot.write.cancel(request.files)
        if slot.write.quarantine is not None and request.quarantined is not None:
            slot.write.quarantine.write.cancel(request.quarantined)
