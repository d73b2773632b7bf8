"""What every log store must do; `test_contract` runs it over each of them."""

from __future__ import annotations

import posixpath
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from deltaflow.errors import StoreError
from deltaflow.store import EntryType, LogStore

NAMES = ["00.json", "01.json", "01.json.x", "02.checkpoint.parquet", "10.json"]


class InPlace:
    """Gives the fixtures of a contract from `place`, a store and a path in it."""

    @pytest.fixture
    def root(self, place: tuple[LogStore, str]) -> str:
        return place[1]

    @pytest.fixture
    def store(self, place: tuple[LogStore, str]) -> LogStore:
        return place[0]


class StoreContract:
    """Subclasses give the fixtures `store` and `root`, an empty place that need not exist: it is made."""

    hierarchical = True
    """Whether a file can be in the way of a directory."""
    writers = 8

    @pytest.fixture(autouse=True)
    def _root_is_made(self, store: LogStore, root: str) -> None:
        store.make_directory(root)

    def test_a_put_into_a_new_directory_is_read_and_listed(self, store: LogStore, root: str) -> None:
        store.make_directory(f"{root}/a/b")
        store.make_directory(f"{root}/a/b")
        store.put_if_absent(f"{root}/a/b/1.json", b"one")
        store.put_if_absent(f"{root}/a/b/2.json", b"two!")
        assert store.read(f"{root}/a/b/2.json") == b"two!"
        statuses = store.list_from(f"{root}/a/b", "")
        assert [(status.name, status.size) for status in statuses] == [("1.json", 3), ("2.json", 4)]
        assert all(status.modification_time_ms > 1_600_000_000_000 for status in statuses)

    def test_the_second_put_fails_and_changes_nothing(self, store: LogStore, root: str) -> None:
        store.put_if_absent(f"{root}/1.json", b"one")
        before = store.list_from(root, "")
        for data in (b"one", b"other", b""):
            with pytest.raises(FileExistsError):
                store.put_if_absent(f"{root}/1.json", data)
        assert store.read(f"{root}/1.json") == b"one"
        assert store.list_from(root, "") == before

    def test_a_listing_begins_at_the_name_and_is_sorted(self, store: LogStore, root: str) -> None:
        for name in reversed(NAMES):
            store.put_if_absent(f"{root}/{name}", name.encode())
        store.make_directory(f"{root}/below")
        store.put_if_absent(f"{root}/below/03.json", b"")
        for start in ["", "0", "00.json", "01", "01.json", "01.json.", "02", "05.json", "10.json", "11", "~"]:
            found = [status.name for status in store.list_from(root, start)]
            assert found == [name for name in NAMES if name >= start]

    def test_what_is_not_there(self, store: LogStore, root: str) -> None:
        with pytest.raises(FileNotFoundError):
            store.list_from(f"{root}/none", "")
        with pytest.raises(FileNotFoundError):
            store.list_from(f"{root}/none", "00000000000000000000.json")
        with pytest.raises(FileNotFoundError):
            store.read(f"{root}/none.json")
        with pytest.raises(FileNotFoundError):
            store.open(f"{root}/none.json").read()
        store.delete(f"{root}/none.json")

    def test_files_are_read_together(self, store: LogStore, root: str) -> None:
        for number in range(40):
            store.put_if_absent(f"{root}/{number:02}.json", b"x" * number)
        files = store.list_from(root, "0")
        for number in range(0, 40, 3):
            store.delete(f"{root}/{number:02}.json")
        assert len(files) == 40
        found = store.read_together(root, files)
        assert found == [b"x" * number if number % 3 else None for number in range(40)]

    def test_a_directory_beside_is_not_this_one(self, store: LogStore, root: str) -> None:
        store.make_directory(f"{root}/t2")
        store.put_if_absent(f"{root}/t2/1.json", b"one")
        with pytest.raises(FileNotFoundError):
            store.list_from(f"{root}/t", "")

    def test_an_output_appears_whole_in_place_of_any_other(self, store: LogStore, root: str) -> None:
        for content in (b"one", b"another"):
            with store.open_output(f"{root}/d/hint") as file:
                file.write(content[:2])
                assert not _names(store, f"{root}/d") or store.read(f"{root}/d/hint") == b"one"
                file.write(content[2:])
            assert store.read(f"{root}/d/hint") == content
        assert _names(store, f"{root}/d") == ["hint"]

    def test_an_output_that_fails_leaves_nothing(self, store: LogStore, root: str) -> None:
        store.put_if_absent(f"{root}/1.json", b"one")
        with suppress(ZeroDivisionError), store.open_output(f"{root}/hint") as file:
            file.write(b"half")
            raise ZeroDivisionError
        assert _names(store, root) == ["1.json"]

    def test_large_files(self, store: LogStore, root: str) -> None:
        content = bytes(range(256)) * 12_000
        store.put_if_absent(f"{root}/1.json", content)
        with store.open_output(f"{root}/1.parquet") as file:
            file.write(content)
        with store.open(f"{root}/1.parquet") as opened:
            assert store.read(f"{root}/1.json") == opened.read() == content

    def test_an_input_is_read_from_any_position(self, store: LogStore, root: str) -> None:
        store.put_if_absent(f"{root}/1.json", b"0123456789")
        with store.open(f"{root}/1.json") as file:
            file.seek(-3, 2)
            assert file.read() == b"789"
            file.seek(2)
            assert file.read(3) == b"234"

    def test_a_deleted_file_is_gone(self, store: LogStore, root: str) -> None:
        store.put_if_absent(f"{root}/1.json", b"one")
        store.put_if_absent(f"{root}/2.json", b"two")
        store.delete(f"{root}/1.json")
        assert _names(store, root) == ["2.json"]
        store.put_if_absent(f"{root}/1.json", b"again")
        assert store.read(f"{root}/1.json") == b"again"

    def test_the_status_of_a_file_is_its_entry_in_a_listing(self, store: LogStore, root: str) -> None:
        store.make_directory(f"{root}/d")
        store.put_if_absent(f"{root}/d/1.json", b"one")
        store.put_if_absent(f"{root}/d/2.json", b"two")
        assert store.status(f"{root}/d/1.json") == store.list_from(f"{root}/d", "")[0]
        for absent in (f"{root}/d/1", f"{root}/d/3.json", f"{root}/none/1.json", f"{root}/d"):
            with pytest.raises(FileNotFoundError):
                store.status(absent)

    def test_an_etag_tells_a_replaced_file(self, store: LogStore, root: str) -> None:
        store.put_if_absent(f"{root}/1.json", b"one")
        before = store.list_from(root, "")
        assert store.list_from(root, "") == before
        store.delete(f"{root}/1.json")
        store.put_if_absent(f"{root}/1.json", b"two")
        assert store.list_from(root, "")[0].etag != before[0].etag

    def test_the_tails_of_data_files(self, store: LogStore, root: str) -> None:
        store.put_if_absent(f"{root}/1.parquet", b"0123456789")
        store.put_if_absent(f"{root}/2.parquet", b"ab")
        files = [(f"{root}/1.parquet", 10), (f"{root}/2.parquet", 2)]
        assert store.tails(files, 4) == [b"6789", b"ab"]
        with pytest.raises(StoreError):
            store.tails([*files, (f"{root}/3.parquet", 2)], 4)

    def test_pieces_of_data_files(self, store: LogStore, root: str) -> None:
        store.put_if_absent(f"{root}/1.bin", b"0123456789")
        store.put_if_absent(f"{root}/2.bin", b"ab")
        one, two = f"{root}/1.bin", f"{root}/2.bin"
        assert store.slices([(one, 2, 3), (two, 0, 2), (one, 0, 1)]) == [b"234", b"ab", b"0"]
        assert store.slices([(one, 8, 5)]) == [b"89"]
        with pytest.raises(StoreError):
            store.slices([(one, 0, 1), (f"{root}/3.bin", 0, 1)])

    def test_the_data_directory(self, store: LogStore, root: str) -> None:
        for name in ("1", "2", "3", "inner/4"):
            store.make_directory(posixpath.dirname(f"{root}/d/{name}"))
            store.put_if_absent(f"{root}/d/{name}", b"content")
        directory = store.data_directory(root)
        found = {entry.name: (entry.type, entry.size) for entry in directory.entries("d")}
        files = dict.fromkeys("123", (EntryType.FILE, 7))
        assert found == {**files, "inner": (EntryType.DIRECTORY, 0)}
        assert list(directory.entries("none")) == []
        assert directory.delete("d", []) == (0, [])
        assert directory.delete("none", ["1"])[1] == []
        assert directory.delete("d", ["1", "2"]) == (2, [])
        assert not directory.delete_if_empty("d")
        left = [f"{root}/d/3", f"{root}/d/inner/4"]
        assert store.absent([f"{root}/d/1", *left, f"{root}/d/2"]) == [f"{root}/d/1", f"{root}/d/2"]

    @pytest.mark.parametrize("spelled", ["{}/f", "{}//f", "{}/./f", "{}/none/../f", "{}/../{name}/f"])
    @pytest.mark.sampled(4)
    def test_a_place_is_the_same_however_its_path_is_spelled(
        self, store: LogStore, root: str, spelled: str
    ) -> None:
        path = spelled.format(root, name=posixpath.basename(root))
        assert store.data_directory(root).real_place(path) == "f"
        assert store.data_directory(root).real_place(f"{root}2/f") is None

    @pytest.mark.parametrize("name", ["a b", "ü", "a%20b", "a+b", "p=1", "[x]*?", "q'\"", "a#b"])
    @pytest.mark.sampled(4)
    def test_odd_names(self, store: LogStore, root: str, name: str) -> None:
        store.make_directory(f"{root}/{name}")
        store.put_if_absent(f"{root}/{name}/{name}.json", b"one")
        assert store.read(f"{root}/{name}/{name}.json") == b"one"
        assert _names(store, f"{root}/{name}") == [f"{name}.json"]
        with pytest.raises(FileExistsError):
            store.put_if_absent(f"{root}/{name}/{name}.json", b"two")

    def test_a_file_in_the_way_of_a_directory(self, store: LogStore, root: str) -> None:
        if not self.hierarchical:
            pytest.skip("a key may be the beginning of others")
        store.put_if_absent(f"{root}/file", b"")
        for directory in (f"{root}/file", f"{root}/file/log"):
            with pytest.raises(NotADirectoryError):
                store.list_from(directory, "")
            with pytest.raises(NotADirectoryError):
                store.put_if_absent(f"{directory}/1.json", b"one")
        assert store.read(f"{root}/file") == b""

    def test_of_puts_at_one_time_one_succeeds(self, store: LogStore, root: str) -> None:
        for number in range(4):
            start = threading.Barrier(self.writers)

            def put(
                writer: int, path: str = f"{root}/{number}.json", start: threading.Barrier = start
            ) -> bool:
                start.wait(30)
                try:
                    store.put_if_absent(path, f"writer {writer}".encode())
                except FileExistsError:
                    return False
                return True

            with ThreadPoolExecutor(self.writers) as pool:
                won = list(pool.map(put, range(self.writers)))
            assert won.count(True) == 1
            assert store.read(f"{root}/{number}.json") == f"writer {won.index(True)}".encode()

    def test_a_put_is_in_every_listing_that_begins_afterwards(self, store: LogStore, root: str) -> None:
        for number in range(12):
            store.put_if_absent(f"{root}/{number:02}.json", b"x")
            assert _names(store, root, f"{number:02}.json") == [f"{number:02}.json"]


class SingleWriterContract(StoreContract):
    """A store whose user stated that there is a single writer."""

    def test_of_puts_at_one_time_one_succeeds(self, store: LogStore, root: str) -> None:
        pytest.skip("its user stated that there is a single writer")


class ReadOnlyContract:
    """What a store must do that cannot exclude other writers: fixtures `store`, `root` and `file` in it."""

    def test_it_reads(self, store: LogStore, root: str, file: str) -> None:
        assert store.read(f"{root}/{file}") == b"content"
        assert _names(store, root) == [file]

    def test_it_refuses_to_write_and_says_why(self, store: LogStore, root: str, file: str) -> None:
        def output() -> None:
            with store.open_output(f"{root}/2.json"):
                raise AssertionError("refused too late")

        writes = [
            lambda: store.put_if_absent(f"{root}/2.json", b"two"),
            output,
            lambda: store.delete(f"{root}/{file}"),
        ]
        for write in writes:
            with pytest.raises(StoreError, match="single_writer=True") as raised:
                write()
            assert raised.value.error_class == "DELTA_STORE_WITHOUT_MUTUAL_EXCLUSION"
            assert "could both commit one version" in str(raised.value)
        assert _names(store, root) == [file]


def _names(store: LogStore, directory: str, start: str = "") -> list[str]:
    try:
        return [status.name for status in store.list_from(directory, start)]
    except FileNotFoundError:
        return []
