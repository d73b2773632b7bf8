"""A write as the JVM drives it: begin in Python, files by Spark, commit in Python.

Between the two calls the write is kept under the JVM's handle. `abort` may come at any moment, also
while `begin` or `commit` still run: after it has answered, no commit of this write can appear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from pyspark.sql.types import StructType

from deltaflow.errors import OperationCancelledError
from deltaflow.spark.dispatcher import dispatcher
from deltaflow.spark.scan import hadoop_path


class WrittenFile(NamedTuple):
    """A new data file: its URI-encoded absolute path as Hadoop gives it, bytes, ms since the epoch."""

    path: str
    size: int
    modification_time: int


class Skip(NamedTuple):
    """There is nothing to write."""

    settings_to_unset: Sequence[str] = ()
    """As of FileWrite."""


class FileWrite(Protocol):
    """What `begin` decided about one write."""

    @property
    def path(self) -> str:
        """The table's path, local and not encoded."""

    @property
    def folder(self) -> str | None:
        """The folder inside the table that the files go into; None: the table's own."""

    @property
    def written_schema(self) -> StructType:
        """The frame's columns in its order, under the table's names and types."""

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

    def commit(self, files: Sequence[WrittenFile]) -> None:
        """Commits the files; raises one of ours where that can't be."""

    def cancel(self) -> None:
        """Makes sure that no commit comes any more; waits for a put that has begun."""


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


@dispatcher.handle("write.begin")
def _begin(request: dict[str, Any]) -> dict[str, Any]:
    slot = _Slot()
    # Kept before the work begins, so that an abort that overtakes it leaves nothing behind.
    dispatcher.keep(request["handle"], slot)
    write = _kinds[request["kind"]](request)
    if isinstance(write, Skip):
        dispatcher.release(request["handle"])
        return {"skip": True, "settingsToUnset": list(write.settings_to_unset)}
    slot.write = write
    return {
        "skip": False,
        "settingsToUnset": list(write.settings_to_unset),
        "optimizedWriteBytes": write.optimized_write_bytes,
        "path": hadoop_path(write.path if write.folder is None else f"{write.path}/{write.folder}"),
        "schema": write.written_schema.json(),
        "partitionColumns": list(write.partition_columns),
        # Partition folders show timestamps in this zone; the log's values are in UTC.
        "options": {**write.file_options, "timeZone": "UTC"},
    }


@dispatcher.handle("write.commit")
def _commit(request: dict[str, Any]) -> None:
    slot: _Slot | None = dispatcher.find(request["handle"])
    if slot is None or slot.write is None:
        raise OperationCancelledError("the write was stopped before its commit")
    slot.write.commit([WrittenFile(*file) for file in request["files"]])
    dispatcher.release(request["handle"])


@dispatcher.handle("write.abort")
def _abort(request: dict[str, Any]) -> None:
    slot: _Slot | None = dispatcher.release(request["handle"])
    if slot is not None and slot.write is not None:
        slot.write.cancel()
