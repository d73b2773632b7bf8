"""Pipelines of the log core on file systems of Hadoop, in a JVM without a Spark session."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import msgspec

from tests.faults import log_pipelines
from tests.spark.hadoop.bare_stores import bare_stores

PLACE = "DELTAFLOW_FAULTS_HADOOP"
"""The variable of the environment that has a `Place`."""


_jvm = ExitStack()
"""The JVM ends with this process."""


class Place(msgspec.Struct, frozen=True):
    """Where tables are: the jar of `bare_stores`, Hadoop's settings, and what comes before folders' paths."""

    jar: str
    root: str
    settings: dict[str, str]


@cache
def _root() -> str:
    place = msgspec.json.decode(os.environ[PLACE], type=Place)
    _jvm.enter_context(bare_stores(Path(place.jar), place.settings))
    return place.root


def commits(folder: str) -> None:
    log_pipelines.commits(f"{_root()}{folder}")


def checkpoints_v2(folder: str) -> None:
    log_pipelines.checkpoints_v2(f"{_root()}{folder}")


def replace(folder: str) -> None:
    log_pipelines.replace(f"{_root()}{folder}")


def clean_up(folder: str) -> None:
    log_pipelines.clean_up(folder, _root())


def upkeep(folder: str) -> None:
    log_pipelines.upkeep(f"{_root()}{folder}")


def vacuum_log(folder: str) -> None:
    log_pipelines.vacuum_log(folder, _root())


def rewind(folder: str) -> None:
    log_pipelines.rewind(folder, _root())
