"""Where a vacuum looks for files: all promises hold of its three ways, without Spark."""

from __future__ import annotations

import json
import logging
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltaflow.errors import DeltaIllegalStateException
from deltaflow.log.maintenance import data_listing, vacuum_candidates
from deltaflow.log.maintenance.vacuum_candidates import (
    INVENTORY_SCHEMA,
    Find,
    in_directory,
    in_inventory,
    in_log,
)
from deltaflow.store.local_directory import LocalDataDirectory
from tests.log.aged_table import HOUR_MS, WEEK_MS, Aged, hours_ago
from tests.log.hand_written import add, remove

VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 40, "cardinality": 6}
VECTOR_FILE = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


def inventory_of(path: Path, prefix: str = "file:") -> Find:
    """Everything below a directory, as an inventory of its storage would have it."""
    rows = []
    for place in path.rglob("*"):
        status = place.stat()
        name = f"{prefix}{place}{'/' if place.is_dir() else ''}"
        rows.append([name, status.st_size, place.is_dir(), int(status.st_mtime * 1_000)])
    columns = zip(*rows, strict=True)
    return in_inventory(pa.table(list(map(pa.array, columns)), schema=INVENTORY_SCHEMA))


WAYS: dict[str, Callable[[Path], Find]] = {
    "full": lambda path: in_directory,
    "lite": lambda path: in_log,
    "inventory": inventory_of,
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Callable[[Path], Find]:
    return WAYS[request.param]


@pytest.fixture
def table(tmp_path: Path) -> Aged:
    return Aged(tmp_path / "table")


def removed(path: str, age: float, **fields: Any) -> dict[str, Any]:
    return remove(path, deletionTimestamp=hours_ago(age), size=10, **fields)


def test_every_way_deletes_old_removed_files_and_keeps_what_may_be_needed(
    table: Aged, way: Callable[[Path], Find]
) -> None:
    gone = {"a b.parquet", "p=1/c.parquet", VECTOR_FILE, "_change_data/d.parquet"}
    kept = {"active", "removed just now", "removed and back", "marked"}
    for place in (*gone, *(f"{name}.parquet" for name in kept), "_hidden/x.parquet", ".x.parquet"):
        table.file(place, size=40 if place == VECTOR_FILE else 10)
    table.create(
        *(add(path) for path in ("a%20b.parquet", "p=1/c.parquet", "_hidden/x.parquet", ".x.parquet")),
        *(add(f"{name.replace(' ', '%20')}.parquet") for name in kept - {"marked"}),
        add("marked.parquet", deletionVector=VECTOR),
        age=900,
    )
    table.commit(
        *(removed(path, 500) for path in ("a%20b.parquet", "_hidden/x.parquet", ".x.parquet")),
        removed(f"file:{table.path}/p=1/c.parquet", 500),
        removed("removed%20and%20back.parquet", 500),
        removed("marked.parquet", 500, deletionVector=VECTOR),
        add("marked.parquet"),
        {"cdc": {"path": "_change_data/d.parquet", "partitionValues": {}, "size": 10, "dataChange": False}},
        age=500,
    )
    table.commit(add("removed%20and%20back.parquet"), age=400)
    table.commit(removed("removed%20just%20now.parquet", 100), age=100)
    assert table.doomed(find=way(table.path)) == gone
    # Nothing was removed before the first commit.
    assert table.doomed(1_000 * HOUR_MS, way(table.path)) == set()


def test_every_way_leaves_links_and_other_tables_alone(table: Aged, way: Callable[[Path], Find]) -> None:
    inner = Aged(table.path / "archive" / "inner")
    inner.create(add("a.parquet"), age=900)
    outside = Aged(table.path.with_name("outside"))
    for file in (inner.file("a.parquet"), inner.file("p=1/b.parquet"), outside.file("a.parquet")):
        assert file.exists()
    table.file("p=2/a.parquet")
    table.file("p=3/b.parquet")
    table.file("c.parquet")
    (table.path / "p=1").symlink_to("p=2")
    (table.path / "out").symlink_to(outside.path)
    (table.path / "linked.parquet").symlink_to("c.parquet")
    names = ["archive/inner/a.parquet", f"{inner.path}/p=1/b.parquet", f"file:{outside.path}/a.parquet"]
    names += ["out/a.parquet", "c.parquet", "p=2/a.parquet", "p=3/b.parquet", "../outside/a.parquet"]
    table.create(*map(add, [*names, "p=1/a.parquet", "linked.parquet"]), age=900)
    table.commit(*(removed(name, 800) for name in names), age=800)
    assert table.doomed(find=way(table.path)) == {"p=3/b.parquet"}


def test_a_commit_during_the_search_keeps_its_files(
    table: Aged, way: Callable[[Path], Find], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        table.file(f"{name}.parquet")
    table.create(add("a.parquet"), add("b.parquet"), age=900)
    table.commit(removed("a.parquet", 800), removed("b.parquet", 800), age=800)
    find = way(table.path)

    def slow(search: Any) -> Any:
        found = find(search)
        table.commit(add("a.parquet"), age=0)
        return found

    assert table.doomed(find=slow) == {"b.parquet"}


@pytest.mark.parametrize("seed", range(4))
def test_lite_finds_of_a_random_history_what_a_listing_finds_of_its_files(table: Aged, seed: int) -> None:
    choose = random.Random(seed)
    table.create(age=1_000)
    live: set[str] = set()
    known: set[str] = set()
    for age in range(990, 0, -30):
        new = f"p={choose.randrange(3)}/{len(known)}.parquet"
        table.file(new, age)
        table.file(f"untracked {new[2:].replace('/', ' ')}", age)
        back = {path for path in known - live if choose.random() < 0.1}
        out = {path for path in live if choose.random() < 0.3}
        table.commit(*(add(path) for path in {new} | back), *(removed(path, age) for path in out), age=age)
        live = (live | back | {new}) - out
        known.add(new)
        if choose.random() < 0.2:
            hours = choose.randrange(1, 900)
            listed = table.doomed(hours * HOUR_MS) & known
            assert table.doomed(hours * HOUR_MS, in_log) == listed
            if choose.random() < 0.5:
                plan = table.log().plan_vacuum(hours * HOUR_MS, in_log)
                for path in plan.files["path"].to_pylist():
                    (table.path / path).unlink()
                table.log().record_vacuum(plan)
                assert table.doomed(hours * HOUR_MS) & known == set()


# --------------------------------------------------------------------------------------------------- LITE


@pytest.fixture
def vacuumed(table: Aged) -> Aged:
    """A table of which a vacuum has looked at the versions up to 1."""
    for name in "abc":
        table.file(f"{name}.parquet")
    table.create(*(add(f"{name}.parquet") for name in "abc"), age=900)
    table.commit(removed("a.parquet", 800), age=800)
    plan = table.log().plan_vacuum(700 * HOUR_MS, in_log)
    assert plan.files["path"].to_pylist() == ["a.parquet"]
    table.log().record_vacuum(plan)
    table.commit(removed("b.parquet", 500), age=500)
    table.commit(removed("c.parquet", 10), age=10)
    return table


def info(table: Aged) -> Path:
    return table.path / "_delta_log" / "_last_vacuum_info"


def drop_versions(table: Aged, *versions: int) -> None:
    for version in versions:
        (table.path / "_delta_log" / f"{version:020}.json").unlink()


def test_lite_lists_no_directory(vacuumed: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(*arguments: Any, **named: Any) -> Any:
        raise AssertionError("the directory was listed")

    monkeypatch.setattr(data_listing, "list_data", listed)
    monkeypatch.setattr(vacuum_candidates, "list_data", listed)
    monkeypatch.setattr(LocalDataDirectory, "entries", listed)
    assert vacuumed.doomed(find=in_log) == {"b.parquet"}


def test_lite_goes_on_from_the_last_vacuum(vacuumed: Aged) -> None:
    assert json.loads(info(vacuumed).read_text()) == {"latestCommitVersionOutsideOfRetentionWindow": 1}
    assert vacuumed.doomed(find=in_log) == {"b.parquet"}
    vacuumed.log().checkpoint()
    drop_versions(vacuumed, 0, 1)
    assert vacuumed.doomed(find=in_log) == {"b.parquet"}
    assert vacuumed.doomed(0, find=in_log) == {"b.parquet", "c.parquet"}


@pytest.mark.parametrize("content", [None, "{}", "{", '{"latestCommitVersionOutsideOfRetentionWindow":null}'])
def test_lite_needs_the_log_since_the_last_vacuum(
    vacuumed: Aged, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    if content is None:
        info(vacuumed).unlink()
    else:
        info(vacuumed).write_text(content)
    with caplog.at_level(logging.WARNING, "deltaflow"):
        assert vacuumed.doomed(find=in_log) == {"a.parquet", "b.parquet"}
    assert bool(caplog.records) == (content == "{")
    vacuumed.log().checkpoint()
    drop_versions(vacuumed, 0)
    with pytest.raises(DeltaIllegalStateException, match="no longer has version 0") as raised:
        vacuumed.doomed(find=in_log)
    assert raised.value.error_class == "DELTA_CANNOT_VACUUM_LITE"
    # As in delta-spark, this is no error as long as nothing is old enough.
    assert vacuumed.doomed(2_000 * HOUR_MS, find=in_log) == set()


def test_lite_does_not_pass_over_a_gap(vacuumed: Aged) -> None:
    vacuumed.log().checkpoint()
    info(vacuumed).write_text('{"latestCommitVersionOutsideOfRetentionWindow":0}')
    drop_versions(vacuumed, 1)
    with pytest.raises(DeltaIllegalStateException, match="no longer has version 1"):
        vacuumed.doomed(0, find=in_log)


def test_the_version_of_the_last_vacuum_never_goes_back(vacuumed: Aged) -> None:
    log = vacuumed.log()
    assert log.snapshot().version == 3
    for find, version in ((inventory_of(vacuumed.path), 1), (in_directory, 2), (in_log, 2)):
        log.record_vacuum(log.plan_vacuum(WEEK_MS, find))
        assert json.loads(info(vacuumed).read_text()).popitem()[1] == version
    log.record_vacuum(log.plan_vacuum(850 * HOUR_MS))
    assert json.loads(info(vacuumed).read_text()).popitem()[1] == 2
    # That of a table that was here before.
    info(vacuumed).write_text('{"latestCommitVersionOutsideOfRetentionWindow":77}')
    log.record_vacuum(log.plan_vacuum(WEEK_MS))
    assert json.loads(info(vacuumed).read_text()).popitem()[1] == 2


def test_lite_does_not_name_files_that_are_gone(vacuumed: Aged) -> None:
    (vacuumed.path / "b.parquet").unlink()
    assert vacuumed.doomed(find=in_log) == set()


# ---------------------------------------------------------------------------------------------- inventory


def inventory(*rows: tuple[str | None, int | None, bool | None, int | None]) -> Find:
    return in_inventory(pa.table(list(map(pa.array, zip(*rows, strict=True))), schema=INVENTORY_SCHEMA))


@pytest.mark.parametrize("prefix", ["file:", "file://", ""])
def test_an_inventory_finds_what_a_listing_finds(table: Aged, prefix: str) -> None:
    table.create(add("a.parquet"), age=900)
    for place in ("a.parquet", "untracked.parquet", "p=1/old.parquet", "p=2/only.parquet"):
        table.file(place)
    table.file("p=1/young.parquet", age=1)
    table.directory("empty/inner")
    for directory in ("empty", "p=1", "p=2"):
        os.utime(table.path / directory, (0, 0))
    plans = [
        table.log().plan_vacuum(WEEK_MS, find) for find in (in_directory, inventory_of(table.path, prefix))
    ]
    files = [sorted(plan.files.to_pylist(), key=str) for plan in plans]
    assert files[0] == files[1]
    assert [row["path"] for row in files[0]] == ["p=1/old.parquet", "p=2/only.parquet", "untracked.parquet"]
    assert [plan.empty_directories for plan in plans] == [["empty/inner"]] * 2
    # It counts _delta_log, too.
    assert [plan.num_directories for plan in plans] == [5, 6]


def test_rows_of_an_inventory_that_are_left_out(table: Aged) -> None:
    table.create(add("a.parquet"), age=900)
    root, old = f"file:{table.path}", hours_ago(1_000)
    find = inventory(
        (f"{root}/old.parquet", 1, False, old),
        (f"{root}/twice.parquet", 1, False, old),
        (f"{root}/twice.parquet", 1, False, hours_ago(1)),
        (f"{root}/of no time.parquet", 1, False, None),
        (f"{root}/what.parquet", 1, None, old),
        (f"{root}2/beside.parquet", 1, False, old),
        (f"{root}/../beside.parquet", 1, False, old),
        (f"{root}//a.parquet", 1, False, old),
        (f"s3://bucket{table.path}/else.parquet", 1, False, old),
        (f"{root}/a.parquet", 1, False, old),
        (f"{root}/", 0, True, old),
        (None, 1, False, old),
    )
    assert table.log().plan_vacuum(WEEK_MS, find).files["path"].to_pylist() == ["old.parquet"]
