"""One race: writers of one or two engines on one table, followed while they run, and checked afterwards."""

from __future__ import annotations

import multiprocessing
import random
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import deltalake
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.batch.random_operations import BEFORE, Features
from tests.protocol_rules import broken_rules
from tests.races.check import OUT_OF_DATE, Report, check
from tests.races.history import History, Version
from tests.races.jobs import Job
from tests.races.operations import FEED
from tests.races.places import Place
from tests.races.writers import Writers

_ISOLATION_LEVELS = ("Serializable", "WriteSerializable")
_LONG_AGO_HOURS = 168.0
_PAUSE_S = 2.0
"""Between two reads beside the writers."""


@dataclass(frozen=True)
class Race:
    """Which writers do how many operations on which table, all told by the seed."""

    seed: int
    writers: tuple[str, ...]
    """The engine of each."""
    operations: int
    """Of each writer."""
    isolation: str
    features: Features
    retention_s: float = 120.0
    """A VACUUM deletes what is older; no operation takes as long. With a feed it deletes nothing, since the
    feed is read at the end."""

    @staticmethod
    def of_seed(seed: int, writers: tuple[str, ...], operations: int) -> Race:
        """A race whose isolation level and features are of the seed; deltalake cannot write all of them."""
        chance = random.Random(seed)
        features = Features.by_chance(chance)
        if features.mapping != "none":  # half of the feeds, since columns with a feed keep their names
            features = replace(features, feed=features.feed and chance.random() < 0.5)
        # A column that a generated one is made of keeps its type.
        features = replace(features, widening=not features.generated and chance.random() < 0.7)
        if "deltalake" in writers:
            features = Features(features.by_partition, "none", False, False, features.feed)
        return Race(seed, writers, operations, _ISOLATION_LEVELS[seed % 2], features)

    @property
    def retention_hours(self) -> float:
        return _LONG_AGO_HOURS if self.features.feed else self.retention_s / 3600


@dataclass(frozen=True)
class Outcome:
    race: Race
    report: Report
    reads: int
    """How often another session read the table meanwhile."""
    busy_s: float
    """How long the operations took, of all writers together."""
    longest_s: float
    """How long the longest took."""

    @property
    def vacuum_may_disturb(self) -> bool:
        """Whether a VACUUM may have deleted what an operation still read, by no fault of anybody."""
        return self.longest_s > 3600 * self.race.retention_hours


def run(race: Race, spark: SparkSession, place: Place, writers: Writers) -> Outcome:
    """Runs a race on a new table, and checks it. `spark` makes the table, and reads it meanwhile."""
    name = f"race-{race.seed}"
    path = f"{place.root}/{name}"
    properties = {
        "delta.isolationLevel": race.isolation,
        "delta.deletedFileRetentionDuration": "interval 1 second",
    }
    race.features.create(spark, path, **properties)
    jobs = [
        Job(
            engine=engine,
            path=path if engine == "spark" else f"{place.root_of_deltalake}/{name}",
            features=race.features,
            prefix=f"{race.seed}/{engine}{number}",
            number=race.operations,
            retention_hours=race.retention_hours,
        )
        for number, engine in enumerate(race.writers)
    ]
    history = History(lambda file: place.read(f"{name}/{file}"))
    reads = 0
    with ThreadPoolExecutor() as threads:
        answers = threads.submit(writers.carry_out, jobs)
        while not wait([answers], _PAUSE_S).done:
            reads += _read_once(spark, path, history)
    told = answers.result()
    history.follow()
    operations = {operation.id: operation for job in jobs for operation in job.operations()}
    report = check(history, race.isolation, operations, told)
    report.faults += _faults_of_readers(spark, path, history, race, place, name)
    seconds = [one["seconds"] for one in told]
    return Outcome(race, report, reads, sum(seconds), max(seconds))


def _read_once(spark: SparkSession, path: str, history: History) -> bool:
    """Reads the table: what is found has to be a version that was the newest one meanwhile. False if the
    columns changed before the rows were read."""
    history.follow()
    first = history.newest.number
    try:
        rows = _rows(spark.read.format("delta").load(path).toArrow())
    except PySparkException as error:
        history.follow()
        if OUT_OF_DATE in str(error) and len({*map(_schema, history.versions[first:])}) > 1:
            return False
        raise
    history.follow()
    assert any(rows == version.contents.rows for version in history.versions[first:]), (
        f"A read between versions {first} and {history.newest.number} is none of them: {rows}"
    )
    return True


def _faults_of_readers(
    spark: SparkSession, path: str, history: History, race: Race, place: Place, name: str
) -> list[str]:
    """What is wrong with the table at the end, by its readers and by the protocol's rules."""
    faults = []
    expected = history.newest.contents.rows
    if _rows(spark.read.format("delta").load(path).toArrow()) != expected:
        faults.append("Spark reads other rows at the end")
    if not race.features.widening:  # deltalake does not read such tables
        of_deltalake = f"{place.root_of_deltalake}/{name}", place.options
        # In another process: it would keep this one's threads, and so the tests' object store, from running.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes:
            rows_of_deltalake = processes.submit(rows_by_deltalake, *of_deltalake).result()
        if rows_of_deltalake != expected:
            faults.append("deltalake reads other rows at the end")
    log = place.log(name)
    if log is not None:
        faults += broken_rules(log)
    if race.features.feed:
        faults += _faults_of_feed(spark, path, history)
    return faults


def rows_by_deltalake(path: str, options: dict[str, str]) -> Counter[Any]:
    """By its engine: the reader that gives pyarrow's tables knows no column mapping."""
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path, storage_options=options))
    return _rows(pa.table(query.execute("SELECT * FROM t").read_all()))


def _faults_of_feed(spark: SparkSession, path: str, history: History) -> list[str]:
    """The changes of each version, as Spark reads them, lead from the version before it to its own. Versions
    with a problem are left out: their change files may be wrong, which has been told."""
    faults = []
    wrong = {number for number, _ in history.problems}
    of_version: dict[int, list[tuple[Any, str]]] = {version.number: [] for version in history.versions}
    feed = spark.read.format("delta").option("readChangeFeed", "true")
    for first, last in _ranges_of_one_schema(history):
        changes = feed.option("startingVersion", first).option("endingVersion", last).load(path)
        for row in changes.toArrow().to_pylist():
            of_version[row["_commit_version"]].append((_row(row), row["_change_type"]))
    for before, version in zip(history.versions, history.versions[1:], strict=False):
        if version.number in wrong or not _has_readable_feed(version, history):
            continue
        rows = Counter(before.contents.rows)
        rows.subtract(row for row, kind in of_version[version.number] if kind in BEFORE)
        rows.update(row for row, kind in of_version[version.number] if kind not in BEFORE)
        if min(rows.values(), default=0) < 0 or +rows != version.contents.rows:
            faults.append(f"the feed of version {version.number} does not lead there: {version.info}")
    return faults


def _ranges_of_one_schema(history: History) -> list[tuple[int, int]]:
    """First and last versions of ranges with a feed in which no column comes, goes or changes: a feed is
    read by one schema."""
    ranges = []
    of_one = groupby(
        history.versions[1:], lambda version: (_has_readable_feed(version, history), _schema(version))
    )
    for (is_readable, _), group in of_one:
        if is_readable:
            versions = [version.number for version in group]
            ranges.append((versions[0], versions[-1]))
    return ranges


def _has_readable_feed(version: Version, history: History) -> bool:
    """Changes are read with the newest schema, and refused where a column's type has grown since."""
    contents = version.contents
    has_feed = dict(contents.properties).get(FEED) == "true"
    return has_feed and contents.is_v_long == history.newest.contents.is_v_long


def _schema(version: Version) -> tuple[bool, ...]:
    return version.contents.has_x, version.contents.has_y, version.contents.is_v_long


def _rows(table: pa.Table) -> Counter[Any]:
    return Counter(_row(row) for row in table.to_pylist())


def _row(values: dict[str, Any]) -> tuple[Any, ...]:
    return values["id"], values["p"], values["v"], values.get("x"), values.get("y")


def races(first_seed: int, total: int, writers: Sequence[str], operations: int) -> list[Race]:
    """Races whose operations are at least so many together."""
    number = -(-total // (len(writers) * operations))
    return [Race.of_seed(seed, tuple(writers), operations) for seed in range(first_seed, first_seed + number)]
