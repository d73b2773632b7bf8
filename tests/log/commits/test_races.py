"""Processes on one table at once: all create it, then append to it, and some rewrite and delete."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from deltaflow.log import DeltaLog
from tests.log.races import Operation, check_conflicts, check_rows, check_versions, race

APPENDERS, APPENDS = 6, 5


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Operation]]:
    """The table's path, and what its writers did."""
    path = str(tmp_path_factory.mktemp("race") / "table")
    return path, race(path, appenders=APPENDERS, appends=APPENDS, rewriters=2, rewrites=9)


def test_there_is_one_table_and_each_version_is_of_the_writer_that_was_told_so(
    raced: tuple[str, list[Operation]],
) -> None:
    path, done = raced
    check_versions(path, done)
    (creator,) = [operation["id"] for operation in done if operation.get("version") == 0]
    assert DeltaLog.for_table(path).snapshot().table_id == f"id-{creator.removesuffix('-0')}"


def test_appends_never_fail(raced: tuple[str, list[Operation]]) -> None:
    _, done = raced
    appends = [operation for operation in done if operation["operation"] == "append"]
    assert len(appends) == APPENDERS * APPENDS
    assert all("version" in operation for operation in appends)


def test_the_rows_are_those_of_the_commits_in_their_order(raced: tuple[str, list[Operation]]) -> None:
    check_rows(*raced, DeltaTable(raced[0]))


def test_each_loser_gets_the_error_that_fits(raced: tuple[str, list[Operation]]) -> None:
    check_conflicts(*raced)
