"""Helpers for tests of streams: tables to read, queries, checkpoints and logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from deltaflow.log.observer import set_observer
from tests.tables import actions, ids, ids_by_deltalake, latest_version, load, write_commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

TIMEOUT_S = 120


class Failure(NamedTuple):
    """An error of a query: its class, its SQLSTATE and its message."""

    code: str
    state: str | None
    message: str


class Streams:
    """Streams over the column `id`, with their tables and checkpoints."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def append(self, path: str, start: int, end: int, files: int = 1) -> None:
        """Appends the ids `start` to `end` - 1 in one commit."""
        frame = self.spark.range(start, end, 1, files)
        frame.write.format("delta").mode("append").save(path)

    def read(self, path: str, **options: object) -> DataFrame:
        """The table as a stream."""
        return self.spark.readStream.format("delta").options(**options).load(path)

    def write(self, frame: DataFrame, path: str, checkpoint: str, **options: Any) -> StreamingQuery:
        """Starts a stream into a table. Other options than mode, trigger and partition_by are the sink's."""
        writer = frame.writeStream.format("delta").option("checkpointLocation", checkpoint)
        writer = writer.outputMode(options.pop("mode", "append"))
        writer = writer.trigger(**options.pop("trigger", {"availableNow": True}))
        if "partition_by" in options:
            writer = writer.partitionBy(*options.pop("partition_by"))
        return writer.options(**options).start(path)

    def copy(self, frame: DataFrame, path: str, checkpoint: str, **options: Any) -> StreamingQuery:
        """Like `write`, and waits for the end of the query."""
        return self.ended(self.write(frame, path, checkpoint, **options))

    def ended(self, query: StreamingQuery) -> StreamingQuery:
        """Waits for a query to end, and raises its error."""
        try:
            assert query.awaitTermination(TIMEOUT_S), "the query hangs"
        finally:
            query.stop()
        return query

    def failed(self, query: StreamingQuery) -> str:
        """Waits for a query to fail, checks what holds for every failure, and returns the message."""
        from pyspark.errors import StreamingQueryException

        with pytest.raises(StreamingQueryException) as raised:
            self.ended(query)
        error = query.exception()
        assert error is not None
        message = str(error)
        assert message.splitlines()[0].split("] ", 1)[-1] in str(raised.value)
        assert not query.isActive
        for text in (message, str(raised.value)):
            assert "py4j" not in text
            assert "\tat org.apache" not in text
        return message

    def failure(self, query: StreamingQuery) -> Failure:
        """Like `failed`, but returns the error that Spark gives to programs, with our class and SQLSTATE."""
        message = self.failed(query)
        cause = query._jsq.exception().get().getCause()  # type: ignore[attr-defined]
        while cause.getClass().getSimpleName() != "DeltaFlowException":
            cause = cause.getCause()
            assert cause is not None, message
        assert message.startswith(f"[{cause.getCondition()}]")
        return Failure(cause.getCondition(), cause.getSqlState(), cause.getMessage())

    def batches(
        self, frame: DataFrame, checkpoint: str, trigger: dict[str, Any] | None = None
    ) -> dict[int, list[Any]]:
        """The first column of every batch of a finite stream, by batch id."""
        seen: dict[int, list[Any]] = {}

        def see(batch: DataFrame, batch_id: int) -> None:
            seen[batch_id] = sorted(row[0] for row in batch.collect())

        self.ended(self.foreach(frame, checkpoint, see, trigger))
        return seen

    def foreach(
        self,
        frame: DataFrame,
        checkpoint: str,
        function: Callable[[DataFrame, int], None],
        trigger: dict[str, Any] | None = None,
    ) -> StreamingQuery:
        """Starts a stream into a function."""
        writer = frame.writeStream.foreachBatch(function).option("checkpointLocation", checkpoint)
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def until(self, condition: Callable[[], bool], query: StreamingQuery) -> None:
        """Polls until the condition holds; a query that failed meanwhile raises."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            if (error := query.exception()) is not None:
                raise error
            assert time.monotonic() < deadline, "the condition never came true"
            time.sleep(0.02)

    def ids(self, path: str) -> list[int]:
        """The ids in the table, as the independent reader sees them, checked against ours."""
        found = ids_by_deltalake(path)
        assert ids(load(self.spark, path).select("id")) == found
        return found

    def files(self, path: str, version: int) -> list[tuple[int, str, list[int]]]:
        """Modification time, path and ids of each file that a version added, in log order."""
        import pyarrow.parquet as pq

        def ids_of(file: str) -> list[int]:
            return sorted(pq.read_table(f"{path}/{file}")["id"].to_pylist())

        adds = actions(path, "add", version)
        return [(add["modificationTime"], add["path"], ids_of(add["path"])) for add in adds]

    @staticmethod
    def add_version(path: str, *actions: dict[str, Any]) -> int:
        """Commits actions by hand as the next version."""
        version = latest_version(path) + 1
        info = {"commitInfo": {"timestamp": 0, "operation": "TEST", "operationParameters": {"by": "hand"}}}
        write_commit(path, version, info, *actions)
        return version

    @staticmethod
    def offsets(checkpoint: str) -> dict[int, list[str]]:
        """The JSON of every source's offset by batch id."""
        files = [file for file in Path(checkpoint, "offsets").iterdir() if file.name.isdigit()]
        return {int(file.name): file.read_text().splitlines()[2:] for file in sorted(files)}

    @staticmethod
    def forget_all_but(checkpoint: str, last: int) -> None:
        """Resets the checkpoint to the end of batch `last`."""
        for folder in ("offsets", "commits"):
            for file in Path(checkpoint, folder).iterdir():
                if int(file.name.strip(".").split(".")[0]) > last:
                    file.unlink()

    @staticmethod
    def forget_last_batch(checkpoint: str) -> int:
        """Removes Spark's record that the last batch is done, like a crash before it."""
        commits = [file for file in Path(checkpoint, "commits").iterdir() if file.name.isdigit()]
        last = max(commits, key=lambda file: int(file.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink()
        return int(last.name)


@pytest.fixture
def streams(spark: SparkSession) -> Iterator[Streams]:
    """Streams of the shared session; afterwards none runs and nothing is left open in Python."""
    from deltaflow.spark.bridge.dispatcher import dispatcher

    before = dispatcher.open_handles
    yield Streams(spark)
    set_observer(None)
    running = spark.streams.active
    for query in running:
        query.stop()
    assert not running, "the test left queries running"
    assert dispatcher.open_handles == before


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A path for a checkpoint, with nothing there."""
    return str(tmp_path / "checkpoint")


@pytest.fixture
def sink(tmp_path: Path) -> str:
    """A path for the table that a stream writes, with nothing there."""
    return str(tmp_path / "sink")
