"""What every test of Spark shares: one session, and its settings."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

from tests.class_archive import set_jvm_options
from tests.protocol_rules import broken_rules
from tests.tables import INTERPRETED, written_by_hand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


set_jvm_options()

# What a collection of all tests makes is kept: to look for garbage in it took a fifth of its CPU time.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # `-m "not long"` looks at the marks after it
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cases: defaultdict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        is_sampled = item.get_closest_marker("sampled") and not item.get_closest_marker("long")
        if is_sampled and isinstance(item, pytest.Function):
            cases[item.nodeid.partition("[")[0]].append(item)
    for test, each in cases.items():
        for item in _not_tried(each, each[0].get_closest_marker("sampled").args[0], test):  # type: ignore[union-attr]
            item.add_marker("long")


def _not_tried(cases: list[pytest.Function], step: int, test: str) -> list[pytest.Function]:
    """A test's cases without each n-th. Those are taken whose parameters' values have been taken the fewest
    times, so that no value is left out for another; tests of the same cases take different ones."""
    first = crc32(test.encode()) % min(step, len(cases))
    left = sorted(range(len(cases)), key=lambda place: ((place - first) % step, place))
    taken: Counter[tuple[str, int]] = Counter()
    for _ in range(-(-len(cases) // step)):
        place = min(
            left, key=lambda place: sum(taken[value] for value in cases[place].callspec.indices.items())
        )
        left.remove(place)
        taken.update(cases[place].callspec.indices.items())
    return [cases[place] for place in left]


@pytest.fixture(scope="session")
def object_store_jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The jar of tests/object_store, which sessions get by `spark.jars`."""
    from tests.jvm import java_sources, write_jar

    jar = tmp_path_factory.mktemp("jars") / "object-store.jar"
    return write_jar(jar, java_sources(Path(__file__).with_name("object_store")))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, object_store_jar: Path) -> Iterator[SparkSession]:
    """One session for all tests; tests that stop a context run in a process of their own."""
    import deltaflow

    # Spark's Python workers would be whatever `python3` is on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = deltaflow.session(
        "deltaflow tests",
        master="local[2]",
        config={
            "spark.jars": ",".join(
                [str(object_store_jar), *os.environ.get("DELTAFLOW_S3A_JARS", "").split()]
            ),
            "spark.ui.enabled": "false",
            # Without it, Spark composes what it says at the level INFO and drops it at the console.
            "spark.log.level": "WARN",
            # A heap that is full is collected all the time; by default it keeps the plans of 1,000 queries.
            "spark.driver.memory": "2g",
            "spark.driver.extraJavaOptions": "-Xms2g",
            "spark.sql.ui.retainedExecutions": "50",
            # What the page of a query would show is composed for each, page or not.
            "spark.sql.ui.explainMode": "simple",
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.streaming.stopTimeout": "60s",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="module", autouse=True)
def nothing_left() -> Iterator[None]:
    """Drops the temporary views and cached frames that the tests of a module made in the session, which is
    one for all. After a write, Spark looks anew at the tables of cached frames."""
    yield
    pyspark_sql = sys.modules.get("pyspark.sql")
    session = None if pyspark_sql is None else pyspark_sql.SparkSession.getActiveSession()
    for view in () if session is None else session.sql("SHOW VIEWS").collect():
        if view.isTemporary:
            session.catalog.dropTempView(view.viewName)
    if session is not None:
        session.catalog.clearCache()


Settings = Callable[[Mapping[str, str]], AbstractContextManager[None]]


@pytest.fixture
def settings(spark: SparkSession) -> Settings:
    """Sets settings of the session for a block."""

    @contextmanager
    def of_session(values: Mapping[str, str]) -> Iterator[None]:
        before = {name: spark.conf.get(name, None) for name in values}
        for name, value in values.items():
            spark.conf.set(name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, value)

    return of_session


@pytest.fixture
def interpreted(settings: Settings) -> Iterator[None]:
    """No generated code, which takes a fifth of the time of many small jobs with large plans. What we add to
    plans has no code of its own."""
    with settings(INTERPRETED):
        yield


@pytest.fixture
def hadoop_settings(spark: SparkSession) -> Settings:
    """Sets settings of the session's Hadoop for a block."""
    configuration = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]

    @contextmanager
    def of_hadoop(values: Mapping[str, str]) -> Iterator[None]:
        before = {name: configuration.get(name) for name in values}
        for name, value in values.items():
            configuration.set(name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                configuration.unset(name) if value is None else configuration.set(name, value)

    return of_hadoop


@pytest.fixture
def setting(settings: Settings) -> Iterator[Callable[[str, str], None]]:
    """Sets a setting of the session for the rest of the test."""
    with ExitStack() as stack:
        yield lambda name, value: stack.enter_context(settings({name: value}))


@pytest.fixture(autouse=True)
def protocol_is_kept(request: pytest.FixtureRequest) -> Iterator[None]:
    """Checks that commits and checkpoints that deltaflow has written in the test's folder are as the protocol
    says (tests/protocol_rules.py). Not in a test that edits commits by the functions of tests/tables.py, or
    that has the mark `breaks_protocol`."""
    before = len(written_by_hand)
    yield
    if len(written_by_hand) > before:
        return
    folder = request.node.funcargs.get("tmp_path") if isinstance(request.node, pytest.Function) else None
    if folder is None or request.node.get_closest_marker("breaks_protocol"):
        return
    logs = [Path(place) for place, _, _ in os.walk(folder) if place.endswith("_delta_log")]
    problems = [f"{log}: {problem}" for log in logs for problem in broken_rules(log)]
    assert not problems, "\n".join(problems)


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A path for a table, with nothing there."""
    return str(tmp_path / "table")


@pytest.fixture
def no_open_handles() -> Iterator[None]:
    """Checks that the test leaves nothing open in Python for the JVM."""
    from deltaflow.spark.bridge.dispatcher import dispatcher

    before = dispatcher.open_handles
    yield
    assert dispatcher.open_handles == before
