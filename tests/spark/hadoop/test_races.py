"""Processes on one table of a remote file system at once, whose puts fail now and then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.log.races import check_conflicts, check_rows, check_versions, race
from tests.spark.hadoop.bare_stores import bare_stores, write_stores_jar
from tests.spark.hadoop.races import PLACES, RACING_WRITER

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def stores_jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stores_jar(tmp_path_factory.mktemp("jar") / "stores.jar")


@pytest.mark.parametrize(
    ("name", "put", "failures"),
    [
        ("webhdfs", "RENAME", ["503", "reset", "lost reply"]),
        ("s3a", "PutObject", ["503", "500", "reset", "lost reply", "503 afterwards", "500 afterwards"]),
    ],
)
@pytest.mark.long
def test_commits_whose_replies_are_lost_are_still_those_of_one_after_the_other(
    name: str, put: Any, failures: list[Any], stores_jar: Path
) -> None:
    with PLACES[name]() as place, bare_stores(stores_jar, place.settings):
        for version, failure in enumerate(failures * 2, start=1):
            place.server.fail(put, failure, path=f"{version:020}.json")
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
        assert not any(fault.times for fault in place.server.faults)
        check_versions(path, done)
        check_rows(path, done, place.table("tables/race"))
        check_conflicts(path, done)
        assert sum(operation["operation"] == "append" and "version" in operation for operation in done) == 16
