"""The races of tests.log.races on a server of WebHDFS and on an object store.

    python -m tests.spark.hadoop.races [webhdfs | s3a]

Each process has a JVM of its own, and no Spark context.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable

from tests.log.races import run_long_race
from tests.object_store.server import ObjectStoreServer
from tests.spark.hadoop.bare_stores import bare_stores, write_stores_jar
from tests.webhdfs import WebHdfsServer

RACING_WRITER = Path(__file__).with_name("racing_writer.py")


@dataclass(frozen=True)
class Place:
    """Where tables are: a server, what begins paths, Hadoop's settings, an independent reader of a table."""

    server: WebHdfsServer | ObjectStoreServer
    root: str
    settings: Mapping[str, str]
    table: Callable[[str], DeltaTable]


@contextmanager
def on_webhdfs() -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as directory, WebHdfsServer(Path(directory)) as server:
        yield Place(server, server.url, {}, lambda name: DeltaTable(f"{directory}/{name}"))


@contextmanager
def on_objects() -> Iterator[Place]:
    with ObjectStoreServer() as server:
        bucket = server.new_bucket()
        options = server.storage_options()
        yield Place(
            server,
            f"s3a://{bucket}",
            server.settings(),
            lambda name: DeltaTable(f"s3://{bucket}/{name}", storage_options=options),
        )


PLACES = {"webhdfs": on_webhdfs, "s3a": on_objects}


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        jar = write_stores_jar(Path(folder) / "stores.jar")
        for name in names or PLACES:
            with PLACES[name]() as place, bare_stores(jar, place.settings):
                print(name, flush=True)
                run_long_race(
                    f"{place.root}/race",
                    lambda place=place: place.table("race"),
                    rewriters=2,
                    program=RACING_WRITER,
                    first_arguments=[str(jar), json.dumps(place.settings)],
                )


if __name__ == "__main__":
    main(sys.argv[1:])
