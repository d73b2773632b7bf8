"""A Python exception raised in a callback reaches the caller of a batch operation as that very exception."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from deltaflow.batch.read.messages import ReadRequest
from deltaflow.errors import (
    DeltaIllegalArgumentException,
    DeltaTableAlreadyExistsError,
    DeltaTableNotFoundError,
    StoreError,
)
from deltaflow.log.observer import set_observer
from deltaflow.spark.bridge.dispatcher import dispatcher
from tests.tables import load, versions

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_open_handles", "silent_observer")]


@pytest.fixture
def silent_observer() -> Iterator[None]:
    yield
    set_observer(None)


class OfAUser(Exception):
    """An exception of a class that deltaflow knows nothing of, without a message."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


EXCEPTIONS = [
    ValueError("three\nlines\nof “text” 🦆\0 and a \\ and a 'quote'"),
    StoreError("the disk is full", table="/t"),
    DeltaIllegalArgumentException("bad", error_class="DELTA_ILLEGAL_OPTION"),
    KeyError("k"),
    OfAUser(None),
    OfAUser(),
    OSError(28, "No space left on device", "/t/x"),
    KeyboardInterrupt(),
    SystemExit(3),
    MemoryError(),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
    ValueError("a lone surrogate \ud83d"),
    ValueError(r"{\"error\": 1}"),
    Unprintable("x"),
]


def failing(exception: BaseException) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise exception

    return fail


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.range(4).selectExpr("id", "id % 2 AS odd")


def the_callback_of(method: str, monkeypatch: pytest.MonkeyPatch, exception: BaseException) -> None:
    monkeypatch.setitem(dispatcher._handlers, method, failing(exception))


def raised_by(act: Callable[[], Any]) -> BaseException:
    try:
        act()
    except BaseException as error:  # KeyboardInterrupt is among those that must arrive
        return error
    raise AssertionError("nothing was raised")


SOME_EXCEPTIONS = (EXCEPTIONS[0], KeyboardInterrupt())
METHODS = ["read", "write.begin.batch", "write.commit", "scan.files", "scan.partitions"]


@pytest.mark.parametrize(
    ("method", "exception"),
    [
        *(("read", exception) for exception in EXCEPTIONS),
        *((method, exception) for method in METHODS[1:] for exception in SOME_EXCEPTIONS),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
@pytest.mark.sampled(3)
def test_the_very_exception_arrives(
    frame: DataFrame, table: str, monkeypatch: pytest.MonkeyPatch, method: str, exception: BaseException
) -> None:
    spark = frame.sparkSession
    if method != "write.begin.batch":
        frame.where("id < 2").write.format("delta").partitionBy("odd").save(table)
    the_callback_of(method, monkeypatch, exception)
    if method == "write.commit":
        # Beginning leaves a handle; an abort after the failure has to take it away.
        raised = raised_by(lambda: frame.write.format("delta").mode("append").save(table))
    elif method == "write.begin.batch":
        raised = raised_by(lambda: frame.write.format("delta").save(table))
    elif method == "read":
        raised = raised_by(lambda: load(spark, table))
    else:
        raised = raised_by(lambda: load(spark, table).where("odd = 1").collect())
    assert raised is exception


def test_ours_are_analysis_exceptions_where_spark_users_expect_them(frame: DataFrame, table: str) -> None:
    spark = frame.sparkSession
    with pytest.raises(AnalysisException) as missing:
        load(spark, table)
    assert isinstance(missing.value, DeltaTableNotFoundError)
    assert missing.value.getCondition() == "PATH_NOT_FOUND"
    frame.write.format("delta").save(table)
    with pytest.raises(AnalysisException) as present:
        frame.write.format("delta").save(table)
    assert isinstance(present.value, DeltaTableAlreadyExistsError)
    for error in (missing.value, present.value):
        assert str(error).startswith(f"[{error.error_class}] ")
        assert table in str(error)
        assert "py4j" not in str(error)
        assert "\tat " not in str(error)


def test_an_error_while_the_plan_is_made_arrives_again_when_it_is_run_again(
    frame: DataFrame, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark keeps what planning threw and throws it a second time."""
    frame.write.format("delta").partitionBy("odd").save(table)
    loaded = frame.sparkSession.read.format("delta").load(table).where("odd = 1").groupBy("id").count()
    the_callback_of("scan.partitions", monkeypatch, ValueError("first"))
    for act in (loaded.collect, loaded.count, loaded.collect):
        with pytest.raises(ValueError, match=r"^first$"):
            act()
    monkeypatch.undo()
    again = frame.sparkSession.read.format("delta").load(table).where("odd = 1").groupBy("id").count()
    assert again.count() == 2


def test_an_error_of_the_scan_arrives_at_the_caller_of_a_write(
    frame: DataFrame, table: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    frame.write.format("delta").save(table)
    loaded = frame.sparkSession.read.format("delta").load(table)
    the_callback_of("scan.files", monkeypatch, failure := ValueError("of the scan"))
    copy = tmp_path / "copy"
    for write in (
        loaded.write.format("delta").mode("append"),
        loaded.repartition(2).write.format("delta").mode("append"),
        loaded.write.format("parquet"),
    ):
        with pytest.raises(ValueError, match="of the scan") as raised:
            write.save(str(copy))
        assert raised.value is failure
    assert not (copy / "_delta_log").exists()


@pytest.mark.parametrize("point", ["files written", "commit prepared"])
def test_a_write_that_fails_before_its_commit_leaves_no_version(
    frame: DataFrame, table: str, point: str
) -> None:
    frame.write.format("delta").save(table)

    def fail(at: str, facts: dict[str, Any]) -> None:
        if at == point:
            raise ConnectionError(f"at {at}")

    set_observer(fail)
    with pytest.raises(ConnectionError, match=f"^at {point}$"):
        frame.write.format("delta").mode("append").save(table)
    set_observer(None)
    assert versions(table) == [0]
    frame.write.format("delta").mode("append").save(table)
    assert frame.sparkSession.read.format("delta").load(table).count() == 8


def test_a_failed_job_is_sparks_error_and_leaves_no_version(frame: DataFrame, table: str) -> None:
    bad = frame.selectExpr("id", "IF(id = 3, raise_error('row three'), odd) AS odd")
    with pytest.raises(Exception, match="row three"):
        bad.write.format("delta").save(table)
    assert not (Path(table) / "_delta_log").exists()


def test_threads_get_each_their_own_exception(
    frame: DataFrame, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(request: ReadRequest) -> Any:
        raise LookupError(request.path)

    monkeypatch.setitem(dispatcher._handlers, "read", fail)
    start = threading.Barrier(8)
    wrong: list[object] = []

    def read_often(number: int) -> None:
        start.wait()
        for i in range(10):
            path = f"{table}-{number}-{i}"
            raised = raised_by(lambda path=path: frame.sparkSession.read.format("delta").load(path))
            if type(raised) is not LookupError or raised.args != (path,):
                wrong.append(raised)

    threads = [threading.Thread(target=read_often, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_spark_error_stays_what_it_is(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.table("no_such_table_at_all")
    with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"):
        spark.read.parquet("/no/such/path")
