"""The steps of this process at which it can be disturbed: calls of the stores, and what operations name.

The stores have no code for it. `watch_steps` wraps their methods; a process that does not call it has the
stores as they are.
"""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

from deltaflow.errors import StoreError
from deltaflow.log.observer import set_observer
from deltaflow.store import FileStatus

_STORES = {
    "deltaflow.store.local": ("LocalLogStore",),
    "deltaflow.store.fsspec_store": ("FsspecLogStore",),
    "deltaflow.store.s3": ("S3LogStore",),
    "deltaflow.spark.hadoop.log_store": ("HadoopLogStore",),
}
_DIRECTORIES = {
    "deltaflow.store.local_directory": ("LocalDataDirectory",),
    "deltaflow.store.fsspec_directory": ("FsspecDataDirectory",),
    "deltaflow.spark.hadoop.data_directory": ("HadoopDataDirectory",),
}
CHANGING = ("put_if_absent", "put_auxiliary_if_absent", "delete", "make_directory")
READING = ("read", "open", "status", "read_together", "tails", "slices", "absent")
_INNER = (
    # Module, class or None, function, the argument that tells the path, what comes before it, what it does.
    ("deltaflow.store.local", None, "_sync_file", 0, "temporary file written", "temporary file synced"),
    ("deltaflow.store.local", "LocalLogStore", "_link", 2, None, "linked"),
    ("deltaflow.store.local", None, "_sync_directory", 0, "directory changed", "directory synced"),
    ("deltaflow.store.local_directory", "LocalDataDirectory", "_unlink", 2, None, "unlinked"),
    ("deltaflow.spark.hadoop.java_files", "JavaFiles", "create", 2, None, "created"),
    ("deltaflow.spark.hadoop.java_files", "JavaFiles", "create_conditionally", 2, None, "created"),
    ("deltaflow.spark.hadoop.java_files", "JavaFiles", "rename", 2, None, "renamed"),
)
"""What the stores' methods do one after the other."""

LISTING, PUT = "list_from", ("put_if_absent", "put_auxiliary_if_absent", "open_output")


@dataclass(slots=True)
class Step:
    """The calling thread is before or after something that has an effect, on a file or a table at `path`."""

    path: str
    what: str
    """What is done or has been done, such as "after put_if_absent" or "commit put"."""
    of_store: bool
    code: str
    """Where the code takes it: a method, and before or after it, or the name that an operation gives it."""
    listing: list[FileStatus] | None = None
    """What a listing has found; a hook may put something else here, which the caller gets."""

    @property
    def reads(self) -> bool:
        """Whether nothing changes here: a kill would leave what a kill at the step before leaves."""
        return self.of_store and self.what.removeprefix("before ") in READING


Hook = Callable[[Step], None]
"""Called by the thread that takes the step. It may return, block or raise."""
_local = threading.local()
_hook: Hook | None = None
_states_are_hidden = False


def watch_steps(hook: Hook) -> None:
    """Calls the hook at every step of this process from now on. A process has one hook, for good."""
    global _hook
    if _hook is not None:
        raise RuntimeError("The steps of this process are watched already.")
    _hook = hook
    for module, names in _STORES.items():
        for name in names:
            _wrap_store(getattr(importlib.import_module(module), name))
    for module, names in _DIRECTORIES.items():
        for name in names:
            _wrap_directory(getattr(importlib.import_module(module), name))
    for module, owner, function, argument, before, after in _INNER:
        holder: Any = importlib.import_module(module)
        _wrap_inner(getattr(holder, owner) if owner else holder, function, argument, before, after)
    set_observer(_observed)


def load_wrapped_modules() -> None:
    """Imports what `watch_steps` will wrap."""
    for module in {*_STORES, *_DIRECTORIES, *(inner[0] for inner in _INNER)}:
        importlib.import_module(module)


def wrapped_steps() -> Iterator[str]:
    """The `code` of every step that is a call of a store or a part of one."""
    both = ("before", "after")
    for tables, methods in (
        (_STORES, {**dict.fromkeys((*CHANGING, LISTING), both), **dict.fromkeys(READING, both[:1])}),
        (_DIRECTORIES, dict.fromkeys(("entries", "delete", "delete_if_empty"), both)),
    ):
        for module, names in tables.items():
            for name in names:
                has = vars(getattr(importlib.import_module(module), name))
                all_methods = {**methods, "open_output": ("before", "content given", "after")}
                for method, moments in all_methods.items():
                    if method in has:
                        yield from (f"{name}.{method}: {moment}" for moment in moments)
    for module, owner, function, _, before, _ in _INNER:
        holder = owner or module.rpartition(".")[2]
        yield from (f"{holder}.{function}: {moment}" for moment in both[before is None :])


def hide_directory_states(hidden: bool) -> None:
    """Whether stores tell no state of a directory: with one, a stale listing is believed until it changes."""
    global _states_are_hidden
    _states_are_hidden = hidden


@contextmanager
def unwatched() -> Iterator[None]:
    """The calling thread takes no steps meanwhile."""
    before = getattr(_local, "silent", False)
    _local.silent = True
    try:
        yield
    finally:
        _local.silent = before


def _observed(point: str, facts: dict[str, Any]) -> None:
    path = facts.get("path", facts.get("table"))
    if path is not None:
        _take(Step(str(path), point, of_store=False, code=point))


def _take(step: Step) -> None:
    if _hook is not None and not getattr(_local, "silent", False):
        _hook(step)


@contextmanager
def _one_call() -> Iterator[None]:
    """The calls that a store's method makes of the store's own methods are a part of it."""
    before = getattr(_local, "inside", False)
    _local.inside = True
    try:
        yield
    finally:
        _local.inside = before


def _is_inside() -> bool:
    return bool(getattr(_local, "inside", False))


def _wrap_store(store: type) -> None:
    for name in CHANGING:
        _replace(store, name, _changing)
    for name in READING:
        _replace(store, name, _reading)
    _replace(store, LISTING, _listing)
    _replace(store, "open_output", _opening)
    _replace(store, "directory_state", _state)


def _wrap_directory(directory: type) -> None:
    _replace(directory, "entries", _entries)
    _replace(directory, "delete", _deleting)
    _replace(directory, "delete_if_empty", _deleting_directory)


def _replace(owner: Any, name: str, wrap: Callable[[Any, str], Any]) -> None:
    """Wraps a method that the class has itself."""
    original = vars(owner).get(name)
    if original is not None:
        setattr(owner, name, wraps(original)(wrap(original, f"{owner.__name__}.{name}")))


def _changing(original: Any, code: str) -> Any:
    name = original.__name__

    def call(self: Any, path: str, *arguments: Any) -> Any:
        if _is_inside():
            return original(self, path, *arguments)
        _take(_before(path, name, code))
        with _one_call():
            result = original(self, path, *arguments)
        _take(_after(path, name, code))
        return result

    return call


def _before(path: str, name: str, code: str) -> Step:
    return Step(path, f"before {name}", of_store=True, code=f"{code}: before")


def _after(path: str, name: str, code: str, listing: list[FileStatus] | None = None) -> Step:
    return Step(path, f"after {name}", of_store=True, code=f"{code}: after", listing=listing)


def _reading(original: Any, code: str) -> Any:
    def call(self: Any, given: Any, *arguments: Any) -> Any:
        if not _is_inside():
            # A path, or a sequence of paths or of tuples that begin with one.
            first = given if isinstance(given, str) else next(iter(given), "")
            path = first if isinstance(first, str) else first[0]
            _take(_before(path, original.__name__, code))
        with _one_call():
            return original(self, given, *arguments)

    return call


def _listing(original: Any, code: str) -> Any:
    def call(self: Any, directory: str, name: str) -> Any:
        if _is_inside():
            return original(self, directory, name)
        _take(_before(directory, LISTING, code))
        with _one_call():
            listing = original(self, directory, name)
        step = _after(directory, LISTING, code, listing)
        _take(step)
        return step.listing

    return call


def _opening(original: Any, code: str) -> Any:
    @contextmanager
    def call(self: Any, path: str) -> Iterator[Any]:
        if _is_inside():
            with original(self, path) as file:
                yield file
            return
        _take(_before(path, "open_output", code))
        with original(self, path) as file:
            yield file
            _take(Step(path, "content given to open_output", of_store=True, code=f"{code}: content given"))
        _take(_after(path, "open_output", code))

    return call


def _state(original: Any, code: str) -> Any:
    def call(self: Any, directory: str) -> str | None:
        return None if _states_are_hidden else original(self, directory)

    return call


def _entries(original: Any, code: str) -> Any:
    def call(self: Any, directory: str, **options: Any) -> Iterator[Any]:
        path = f"{self.path}/{directory}".rstrip("/")
        _take(_before(path, "entries", code))
        found = list(original(self, directory, **options))
        _take(_after(path, "entries", code))
        yield from found

    return call


def _deleting(original: Any, code: str) -> Any:
    def call(self: Any, directory: str, names: Any) -> Any:
        path, names = f"{self.path}/{directory}".rstrip("/"), list(names)
        try:
            _take(_before(path, "delete", code))
            result = original(self, directory, names)
            _take(_after(path, "delete", code))
        except StoreError as error:  # this method returns its failures
            return 0, [error]
        return result

    return call


def _deleting_directory(original: Any, code: str) -> Any:
    def call(self: Any, directory: str) -> Any:
        path = f"{self.path}/{directory}"
        _take(_before(path, "delete_if_empty", code))
        result = original(self, directory)
        _take(_after(path, "delete_if_empty", code))
        return result

    return call


def _wrap_inner(owner: Any, name: str, argument: int, before: str | None, after: str) -> None:
    original = getattr(owner, name)
    code = f"{owner.__name__.rpartition('.')[2]}.{name}"

    @wraps(original)
    def call(*arguments: Any, **options: Any) -> Any:
        given = arguments[argument]
        path = given if isinstance(given, str) else getattr(given, "name", None)
        if owner.__name__ == "LocalDataDirectory":
            path = f"{arguments[0].path}/{given}"
        if before is not None:
            _take(Step(str(path), before, of_store=False, code=f"{code}: before"))
        result = original(*arguments, **options)
        _take(Step(str(path), after, of_store=False, code=f"{code}: after"))
        return result

    setattr(owner, name, call)


_RANDOM = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_TEMPORARY = re.compile(r"\.([^/]*)\.[0-9a-f]{32}\.tmp$")
_KINDS = [
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"_delta_log/\.?\d{20}\.json\b", "commit"),
        (r"_delta_log/\.?\d{20}\.checkpoint\.", "checkpoint"),
        (r"_delta_log/\.?\d{20}\.crc\b", "checksum"),
        (r"_delta_log/\.?_last_checkpoint\b", "_last_checkpoint"),
        (r"_delta_log/_sidecars/.", "sidecar"),
        (r"_delta_log$", "log"),
        (r"deletion_vector_.*\.bin$", "vector file"),
        (r"_change_data/.*\.parquet$", "change file"),
        (r"\.parquet$", "data file"),
    )
]


def name_of(step: Step, folder: str) -> str:
    """The name of a step in a pipeline's folder: equal in every run, whatever ids and versions there are."""
    place = step.path[step.path.index(folder) + len(folder) :].strip("/")
    place = _TEMPORARY.sub(r"\1", place)
    table, found, _ = place.partition("_delta_log")
    kind = next((kind for pattern, kind in _KINDS if pattern.search(place)), None)
    if kind is None or not found:
        # The partitions and files of a table are alike, and so are the batches of a stream.
        place = re.sub(r"\d+", "N", _RANDOM.sub("*", place))
        parts = place.split("/")
        if kind is not None:
            parts = [part for part in parts[:-1] if "=" not in part]
        table = "/".join(parts)
    words = [table.strip("/"), ":", step.what, *(["of", kind] if kind else [])]
    return " ".join(words).replace(" :", ":").strip(": ")
