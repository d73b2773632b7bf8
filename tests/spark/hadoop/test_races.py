"""Processes on one table of a remote file system at once: they create, append to, rewrite and delete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.log.races import check_conflicts, check_rows, check_versions, race
from tests.spark.hadoop.bare_stores import bare_stores, write_stores_jar
from tests.spark.hadoop.races import PLACES, RACING_WRITER

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def stores_jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stores_jar(tmp_path_factory.mktemp("jar") / "stores.jar")


@pytest.mark.parametrize("name", PLACES)
def test_versions_rows_and_conflicts_are_those_of_one_after_the_other(name: str, stores_jar: Path) -> None:
    with PLACES[name]() as place, bare_stores(stores_jar, place.settings):
        path = f"{place.root}/tables/race"
        done = race(
            path,
            appenders=2,
            appends=8,
            rewriters=1,
            rewrites=8,
            program=RACING_WRITER,
            first_arguments=[str(stores_jar), json.dumps(place.settings)],
        )
        check_versions(path, done)
        check_rows(path, done, place.table("tables/race"))
        check_conflicts(path, done)
        assert sum(operation["operation"] == "append" and "version" in operation for operation in done) == 16
