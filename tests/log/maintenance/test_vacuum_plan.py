"""What a vacuum may delete, on tables written by hand: files of any name and age, without Spark."""

from __future__ import annotations

import os
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deltaflow.errors import CorruptLogError, StoreError, UnsupportedFeatureError
from deltaflow.log import DeltaLog
from deltaflow.store import LocalLogStore
from tests.log.aged_table import HOUR_MS, NOW_MS, WEEK_MS, Aged, hours_ago, set_age
from tests.log.hand_written import add, meta_data, protocol, remove


@pytest.fixture
def table(tmp_path: Path) -> Aged:
    return Aged(tmp_path / "table")


@pytest.fixture
def empty(table: Aged) -> Aged:
    table.create(age=2_000)
    return table


def test_only_old_files_that_no_version_within_the_retention_has_may_go(table: Aged) -> None:
    for name in ("active", "just removed", "removed long ago", "never added", "being written"):
        table.file(f"{name}.parquet", age=0.5 if name == "being written" else 1_000)
    table.create(
        add("active.parquet"), add("just%20removed.parquet"), add("removed%20long%20ago.parquet"), age=900
    )
    table.commit(remove("removed%20long%20ago.parquet", deletionTimestamp=hours_ago(500)), age=500)
    table.commit(remove("just%20removed.parquet", deletionTimestamp=hours_ago(100)), age=100)
    assert table.doomed() == {"removed long ago.parquet", "never added.parquet"}
    assert table.doomed(retention_ms=0) == {
        "removed long ago.parquet",
        "never added.parquet",
        "just removed.parquet",
        "being written.parquet",
    }


def test_a_limit_that_is_met_exactly_keeps(empty: Aged) -> None:
    empty.file("old.parquet", age=168)
    empty.file("removed.parquet")
    empty.commit(add("removed.parquet"), age=900)
    empty.commit(remove("removed.parquet", deletionTimestamp=hours_ago(168)), age=168)
    assert empty.doomed() == set()
    assert empty.doomed(WEEK_MS - 1) == {"old.parquet", "removed.parquet"}


def test_a_commit_that_came_long_after_its_tombstones_time_counts(empty: Aged) -> None:
    """The version before it was the newest within the retention."""
    empty.file("a.parquet")
    empty.commit(add("a.parquet"), age=900)
    empty.commit(remove("a.parquet", deletionTimestamp=hours_ago(200)), age=100)
    assert empty.doomed() == set()
    assert empty.doomed(99 * HOUR_MS) == {"a.parquet"}


def test_a_tombstone_without_a_time_is_as_old_as_can_be(empty: Aged) -> None:
    empty.file("a.parquet")
    empty.commit(add("a.parquet"), age=900)
    empty.commit({"remove": {"path": "a.parquet", "dataChange": True}}, age=800)
    assert empty.doomed() == {"a.parquet"}


@pytest.mark.parametrize("hours", [850, 3_000])
def test_a_retention_that_began_before_the_table_did_keeps_all_of_its_versions(
    empty: Aged, hours: int
) -> None:
    empty.file("a.parquet", age=5_000)
    empty.file("b.parquet", age=5_000)
    empty.commit(add("a.parquet"), age=900)
    empty.commit({"remove": {"path": "a.parquet", "dataChange": True}}, age=800)
    assert empty.doomed(hours * HOUR_MS) == {"b.parquet"}


def test_tombstones_that_a_checkpoint_left_out_count_where_a_longer_retention_is_asked_for(
    empty: Aged,
) -> None:
    empty.file("a.parquet")
    empty.commit(add("a.parquet"), age=400)
    empty.commit(remove("a.parquet", deletionTimestamp=hours_ago(300)), age=300)
    log = empty.log()
    log.checkpoint()
    assert log.snapshot_at(2).version == 2
    assert DeltaLog(LocalLogStore(), str(empty.path)).snapshot().tombstones.num_rows == 0
    assert empty.doomed() == {"a.parquet"}
    assert empty.doomed(301 * HOUR_MS) == set()
    assert empty.doomed(299 * HOUR_MS) == {"a.parquet"}


def test_files_of_versions_before_the_log_was_cleaned_up_may_go(empty: Aged) -> None:
    empty.file("a.parquet")
    empty.file("b.parquet")
    empty.commit(add("a.parquet"), add("b.parquet"), age=400)
    empty.commit(remove("a.parquet", deletionTimestamp=hours_ago(300)), age=300)
    empty.log().checkpoint()
    empty.commit(remove("b.parquet", deletionTimestamp=hours_ago(100)), age=100)
    for version in range(3):
        (empty.path / "_delta_log" / f"{version:020}.json").unlink()
    assert empty.doomed() == {"a.parquet"}
    assert empty.doomed(1_000 * HOUR_MS) == set()


@pytest.mark.parametrize(
    ("logged", "on_disk"),
    [
        ("p=a%20b/1.parquet", "p=a b/1.parquet"),
        ("p=a%2520b/1.parquet", "p=a%20b/1.parquet"),
        ("p=%C3%A4/1.parquet", "p=ä/1.parquet"),
        ("p=ä/1.parquet", "p=ä/1.parquet"),
        ("a//./b/../1.parquet", "a/1.parquet"),
        ("./1.parquet", "1.parquet"),
        ("../{name}/1.parquet", "1.parquet"),
        ("p=1/../../{name}/p=1/1.parquet", "p=1/1.parquet"),
        ("x%3Ay/1.parquet", "x:y/1.parquet"),
        ("file:{root}/1.parquet", "1.parquet"),
        ("file://{root}/p=a%20b/1.parquet", "p=a b/1.parquet"),
        ("{root}/p=1/../1.parquet", "1.parquet"),
        ("{link}/1.parquet", "1.parquet"),
        ("file:{link}/p=1/1.parquet", "p=1/1.parquet"),
        # On a file system that does not tell letters of both cases apart, or accents in both encodings.
        ("P=1/1.parquet", "p=1/1.parquet"),
        ("p=a%CC%88/1.parquet", "p=ä/1.parquet"),
    ],
)
def test_a_file_is_kept_however_the_log_writes_its_path(table: Aged, logged: str, on_disk: str) -> None:
    link = table.path.with_name("link")
    link.symlink_to(table.path)
    table.file(on_disk)
    table.file("other.parquet")
    (table.path / "p=1").mkdir(exist_ok=True)
    table.create(add(logged.format(root=table.path, link=link, name=quote(table.path.name))), age=900)
    assert table.doomed() == {"other.parquet"}


def test_a_table_that_is_reached_by_a_link(table: Aged) -> None:
    link = table.path.with_name("link")
    link.symlink_to(table.path)
    table.file("a.parquet")
    table.file("b.parquet")
    table.create(add(f"{table.path}/a.parquet"), age=900)
    plan = DeltaLog(LocalLogStore(), str(link), clock=lambda: NOW_MS).plan_vacuum(WEEK_MS)
    assert plan.files["path"].to_pylist() == ["b.parquet"]


def test_nothing_is_looked_for_beyond_a_link(empty: Aged) -> None:
    outside = empty.path.with_name("outside")
    outside.mkdir()
    (outside / "a.parquet").write_bytes(b"x")
    set_age(outside / "a.parquet", 1_000)
    (empty.path / "linked").symlink_to(outside)
    (empty.path / "a.parquet").symlink_to(outside / "a.parquet")
    (empty.path / "broken").symlink_to(outside / "none")
    (empty.path / "loop").symlink_to(empty.path)
    empty.file("b.parquet")
    assert empty.doomed() == {"b.parquet"}


def test_what_a_link_in_the_table_leads_to_is_left_alone(table: Aged) -> None:
    """The log may name it by the link."""
    table.file("p=2/a.parquet")
    table.file("p=22/a.parquet")
    table.file("real.parquet")
    (table.path / "p=1").symlink_to("p=2")
    (table.path / "name.parquet").symlink_to("real.parquet")
    table.create(add("p=1/a.parquet"), add("name.parquet"), age=900)
    assert table.doomed() == {"p=22/a.parquet"}


def test_hidden_names_are_left_alone_but_those_that_delta_cleans_up(table: Aged) -> None:
    hidden = [
        "_x.parquet",
        ".x.parquet",
        "_dir/a",
        ".dir/a",
        "p=1/_tmp/a",
        "p=1/.staged",
        "_q/p=1/a",
        "_q=2/a",
    ]
    others = [
        "_p=1/a",
        "p=1/_change_data/a",
        "_change_data/p=1/a",
        "_delta_index/a",
        "metadata/a",
        "x/_delta/..",
    ]
    seen = [place for place in others if not place.endswith("..")]
    for place in (*hidden, *seen):
        table.file(place)
    table.file("_delta_log/old.tmp")
    table.create(age=900, partition_columns=["_p", "p"])
    assert table.doomed() == set(seen)


def test_a_table_below_the_table_is_left_alone(empty: Aged) -> None:
    inner = Aged(empty.path / "archive" / "2024")
    inner.create(add("a.parquet"), age=900)
    inner.file("a.parquet")
    inner.file("p=1/b.parquet")
    empty.file("archive/c.parquet")
    assert empty.doomed() == {"archive/c.parquet"}


def test_files_that_a_clone_refers_to_elsewhere_are_not_looked_for(empty: Aged) -> None:
    other = Aged(empty.path.with_name("other"))
    other.file("a.parquet")
    empty.file("own.parquet")
    elsewhere = ["../other/b.parquet", "..", "s3://bucket/a.parquet", "file://host/a.parquet"]
    empty.commit(add(f"file://{other.path}/a.parquet"), *map(add, elsewhere), age=900)
    empty.commit(remove(f"file://{other.path}/a.parquet", deletionTimestamp=hours_ago(800)), age=800)
    assert empty.doomed() == {"own.parquet"}


def test_change_data_of_versions_within_the_retention_is_kept(empty: Aged) -> None:
    change = {"partitionValues": {}, "size": 1, "dataChange": False}
    for number, age in ((1, 900), (2, 100)):
        empty.file(f"_change_data/{number}.parquet")
        empty.commit({"cdc": {"path": f"_change_data/{number}.parquet", **change}}, age=age)
    assert empty.doomed() == {"_change_data/1.parquet"}


def test_files_of_deletion_vectors_that_are_still_named_are_kept(empty: Aged) -> None:
    """The example of PROTOCOL.md ("Derived Fields")."""
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    named = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    for place in (named, "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin", "a.parquet"):
        empty.file(place)
    empty.commit(add("a.parquet", deletionVector=vector), age=900)
    assert empty.doomed() == {"deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"}


def test_a_name_that_is_no_text_is_left_alone(empty: Aged) -> None:
    raw = os.fsencode(empty.path) + b"/\xff.parquet"
    Path(os.fsdecode(raw)).write_bytes(b"x")
    set_age(Path(os.fsdecode(raw)), 1_000)
    assert empty.doomed() == set()


def test_old_empty_directories_may_go(empty: Aged) -> None:
    empty.directory("p=1")
    empty.directory("p=2/q=1")
    empty.directory("p=3", age=1)
    empty.directory("_hidden")
    empty.file("p=4/a.parquet", age=1)
    plan = empty.log().plan_vacuum(WEEK_MS)
    assert plan.empty_directories == ["p=1", "p=2/q=1"]
    assert plan.num_directories == 6


def test_a_file_that_a_commit_brings_while_the_directory_is_listed_is_kept(
    table: Aged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a writer that took longer than the retention, or of a restored version."""
    from deltaflow.log.maintenance import data_listing

    table.file("a.parquet")
    table.file("b.parquet")
    table.create(age=900)

    class Looked(data_listing._Lister):
        def __call__(self, looked_at: tuple[str, int]) -> Any:
            found = super().__call__(looked_at)
            table.commit(add("a.parquet"), age=0)
            return found

    monkeypatch.setattr(data_listing, "_Lister", Looked)
    assert table.doomed() == {"b.parquet"}


def test_many_directories_and_files_over_several_batches(
    empty: Aged, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltaflow.log.maintenance import data_listing

    monkeypatch.setattr(data_listing, "ROWS_PER_BATCH", 3)
    monkeypatch.setattr(data_listing, "_DIRECTORIES_AT_ONCE", 2)
    places = {f"p={p}/q={q}/{n}.parquet" for p in range(3) for q in range(3) for n in range(5)}
    for place in places:
        empty.file(place)
    empty.commit(*(add(place) for place in places if "/0." in place), age=900)
    assert empty.doomed() == {place for place in places if "/0." not in place}


@pytest.mark.parametrize("features", [["vacuumProtocolCheck", "unheardOf"], ["catalogCommits"]])
def test_a_table_that_needs_what_we_lack_is_refused(table: Aged, features: list[str]) -> None:
    of_readers = [name for name in features if name == "vacuumProtocolCheck"]
    table.commit(protocol(3, 7, readerFeatures=of_readers, writerFeatures=features), meta_data(), age=900)
    with pytest.raises(UnsupportedFeatureError):
        table.doomed()


def test_the_feature_that_protects_tables_from_careless_vacuums_is_known(table: Aged) -> None:
    features = {"readerFeatures": ["vacuumProtocolCheck"], "writerFeatures": ["vacuumProtocolCheck"]}
    table.commit(protocol(3, 7, **features), meta_data(), age=900)
    table.file("a.parquet")
    assert table.doomed() == {"a.parquet"}


def test_a_log_that_cannot_be_read_stops_it(empty: Aged) -> None:
    empty.file("a.parquet")
    empty.commit(add("a.parquet"), age=900)
    (empty.path / "_delta_log" / f"{2:020}.json").write_text('{"add": {"path": 7')
    with pytest.raises(CorruptLogError):
        empty.doomed()


def test_files_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    path = f"memory://vacuum-{os.getpid()}/t"
    log = DeltaLog.for_table(path, clock=lambda: NOW_MS * 2)
    actions = (protocol(), meta_data(), add("p=1/a%20b.parquet"))
    store = log._files.store
    store.put_if_absent(f"{log.path}/_delta_log/{0:020}.json", "\n".join(map(json.dumps, actions)).encode())
    for place in ("p=1/a b.parquet", "p=1/c.parquet", "d.parquet", "_hidden/e.parquet"):
        store.put_if_absent(f"{log.path}/{place}", b"abc")
    plan = log.plan_vacuum(WEEK_MS)
    assert sorted(plan.files["path"].to_pylist()) == ["d.parquet", "p=1/c.parquet"]
    assert plan.size_in_bytes == 6
    assert plan.directory.delete("p=1", ["c.parquet", "gone.parquet"]) == (1, [])
    assert log.plan_vacuum(WEEK_MS).files["path"].to_pylist() == ["d.parquet"]


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Steps of a table, oldest first: which of eight files each adds and removes, when, and what follows."""
    ages = sorted(draw(st.lists(st.integers(1, 400), min_size=1, max_size=7, unique=True)), reverse=True)
    files = st.sets(st.integers(0, 7), max_size=4)
    return [
        {
            "age": age,
            "adds": draw(files),
            "removes": draw(files),
            "skew": draw(st.sampled_from([0, 0, 5, 100])),
            "checkpoint": draw(st.booleans()),
            "cleanup": draw(st.integers(0, 5)) == 0,
        }
        for age in ages
    ]


def _step(age: int, adds: set[int], removes: set[int], skew: int, *, cleanup: bool) -> dict[str, Any]:
    return {
        "age": age,
        "adds": adds,
        "removes": removes,
        "skew": skew,
        "checkpoint": cleanup,
        "cleanup": cleanup,
    }


_ADDED = _step(212, {7}, set(), 0, cleanup=False)
_REMOVED_BY_A_LATE_CLOCK = _step(173, set(), {7}, 100, cleanup=True)


@settings(max_examples=25, deadline=None)
# What the first commit of a log that was cleaned up has removed.
@example([_ADDED, _REMOVED_BY_A_LATE_CLOCK], 246, [303] * 8)
@given(histories(), st.integers(0, 420), st.lists(st.integers(0, 500), min_size=8, max_size=8))
def test_random_histories(history: list[dict[str, Any]], retention: int, ages: list[int]) -> None:
    """No file of a version within the retention may go, and every old one that has no reason to stay may."""
    with tempfile.TemporaryDirectory() as directory:
        table = Aged(Path(directory) / "table")
        table.create(age=500)
        active: set[int] = set()
        versions, first, tombstones, removed_by = [(500, active)], 0, {}, {}
        for step in history:
            removes = step["removes"] & active
            adds = step["adds"] - active
            removed_at = hours_ago(step["age"] + step["skew"])
            actions = [remove(f"{n}.parquet", deletionTimestamp=removed_at) for n in removes]
            version = table.commit(*actions, *(add(f"{n}.parquet") for n in adds), age=step["age"])
            active = (active - removes) | adds
            versions.append((step["age"], active))
            tombstones |= dict.fromkeys(removes, removed_at)
            removed_by[version] = step["age"], removes
            if step["checkpoint"]:
                table.log().checkpoint()
                if step["cleanup"]:
                    for older in range(first, version):
                        (table.path / "_delta_log" / f"{older:020}.json").unlink()
                        (table.path / "_delta_log" / f"{older:020}.checkpoint.parquet").unlink(
                            missing_ok=True
                        )
                    first = version
        for number, age in enumerate(ages):
            table.file(f"{number}.parquet", age=age)
        ends = [age for age, _ in versions[1:]] + [-1]
        kept = {n for n, age in enumerate(ages) if age <= retention}
        for (_, files), end in list(zip(versions, ends, strict=True))[first:]:
            if end < retention:
                kept |= files
        told = {n for n, removed_at in tombstones.items() if removed_at >= hours_ago(retention)}
        for version, (age, removes) in removed_by.items():
            if version >= first and age <= retention:
                told |= removes
        doomed = {int(path.removesuffix(".parquet")) for path in table.doomed(retention * HOUR_MS)}
        assert not doomed & kept
        assert doomed | kept | told == set(range(8))


def test_many_files_are_columns_and_not_objects(table: Aged) -> None:
    """A small version of benchmarks/vacuum.py: what Python holds does not grow with the files."""
    names = [f"part-{number:05}-5d3c1f0e-9b7a-4c52-8f7e-c000.snappy.parquet" for number in range(10_000)]
    for name in names:
        (table.path / name).touch()
        os.utime(table.path / name, (1, 1))
    table.create(*(add(name) for name in names[: len(names) // 2]), age=900)
    table.log().checkpoint()
    log = table.log()
    tracemalloc.start()
    try:
        plan = log.plan_vacuum(WEEK_MS)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sorted(plan.files["path"].to_pylist()) == names[len(names) // 2 :]
    assert held < 20 * len(names)


class TestDataDirectory:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        (tmp_path / "t" / "p=1").mkdir(parents=True)
        for name in ("a.parquet", ".a.parquet.crc", "b.parquet"):
            (tmp_path / "t" / "p=1" / name).write_bytes(b"x")
        return tmp_path / "t"

    def test_a_file_goes_with_its_checksum_and_absent_ones_do_not_count(self, root: Path) -> None:
        directory = LocalLogStore().data_directory(str(root))
        assert directory.delete("p=1", ["a.parquet", "none.parquet"]) == (1, [])
        assert os.listdir(root / "p=1") == ["b.parquet"]
        assert directory.delete("p=2", ["a.parquet"]) == (0, [])

    def test_nothing_is_deleted_beyond_a_link_that_came_meanwhile(self, root: Path) -> None:
        directory = LocalLogStore().data_directory(str(root))
        (root / "p=1").rename(root.parent / "elsewhere")
        (root / "p=1").symlink_to(root.parent / "elsewhere")
        assert directory.delete("p=1", ["a.parquet", "b.parquet"]) == (0, [])
        assert list(directory.entries("p=1")) == []
        (root.parent / "elsewhere" / "empty").mkdir()
        assert not directory.delete_if_empty("p=1/empty")
        assert len(os.listdir(root.parent / "elsewhere")) == 4

    def test_a_failure_is_told_and_the_others_go(self, root: Path) -> None:
        (root / "p=1" / "c.parquet").mkdir()
        deleted, failures = (
            LocalLogStore().data_directory(str(root)).delete("p=1", ["c.parquet", "b.parquet"])
        )
        assert deleted == 1
        assert [type(failure) for failure in failures] == [StoreError]
        assert "c.parquet" in str(failures[0])

    def test_only_empty_directories_go(self, root: Path) -> None:
        directory = LocalLogStore().data_directory(str(root))
        assert not directory.delete_if_empty("p=1")
        (root / "p=2").mkdir()
        assert directory.delete_if_empty("p=2")
        assert not directory.delete_if_empty("p=2")


@pytest.fixture(autouse=True)
def _no_leaked_files() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) <= before
