"""Manifests list a table's data files for Presto, Athena and Redshift Spectrum, one for each partition.

They are `_symlink_format_manifest/[column=value/…/]manifest`, one complete path per line (delta-spark's
GenerateSymlinkManifest). Each is replaced as a whole, but several of them are not replaced at once.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import StoreError, UnsupportedFeatureError, after_commit
from deltaflow.log.files.data_path import complete_paths
from deltaflow.log.files.file_key import file_key
from deltaflow.log.files.file_rows import file_keys
from deltaflow.log.files.partition_values import partition_folder
from deltaflow.log.protocol.actions import AddFile, Metadata, RemoveFile
from deltaflow.log.protocol.column_mapping import mapping_mode
from deltaflow.log.protocol.properties import SYMLINK_MANIFEST_ENABLED
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.segment import list_newest
from deltaflow.log.replay.snapshot import Snapshot, snapshot_at
from deltaflow.store import DataDirectory, EntryType, real_path, scheme_of

DIRECTORY = "_symlink_format_manifest"
_NAME = "manifest"
_THREADS = 8
_ROUNDS = 10
"""How often the manifests are written for one commit while other commits come in between."""


def write_manifests(log: LogFiles, snapshot: Snapshot) -> None:
    """Write the manifests of all partitions, and remove those of partitions that the version lacks.

    An unpartitioned table has one manifest, also without files. UnsupportedFeatureError for a table with
    deletion vectors, whose removed rows the readers of manifests would show, and for one with column mapping,
    whose columns they would not find.
    """
    _check(snapshot)
    written = _write(log, snapshot)
    directory = log.store.data_directory(_root(snapshot))
    folders = [""]
    while folders:
        deeper: list[str] = []
        for folder in folders:
            entries = list(directory.entries(folder))
            deeper += [posixpath.join(folder, e.name) for e in entries if e.type is EntryType.DIRECTORY]
            if folder not in written and any(entry.name == _NAME for entry in entries):
                _remove(directory, folder)
        folders = deeper


def update_manifests(
    log: LogFiles,
    version: int,
    metadata: Metadata,
    read: Snapshot | None,
    actions: Iterable[Any],
) -> None:
    """Write the manifests of the partitions that the commit of `version` touched with these actions.

    Nothing happens unless the table's `metadata` asks for it. If there are no manifests yet, all are written.
    PostCommitHookError if it fails: the commit stands.
    """
    if not SYMLINK_MANIFEST_ENABLED.of(metadata.configuration, log.path):
        return
    failure = f"its manifests in {DIRECTORY} could not be brought up to date"
    advice = "Mend the cause, and run GENERATE symlink_format_manifest."
    with after_commit(failure, advice, table=log.path, version=version):
        snapshot = snapshot_at(log, version, read)
        is_other = read is None or read.partition_columns != snapshot.partition_columns
        folders = None if is_other or not log.store.exists(_root(snapshot)) else _touched(snapshot, actions)
        for _ in range(_ROUNDS):
            if folders is None:
                write_manifests(log, snapshot)
            elif folders:
                _check(snapshot)
                _replace(log, snapshot, folders)
            # These may just have replaced the manifests of a newer commit.
            newest = list_newest(log).latest_version
            if newest <= snapshot.version:
                return
            snapshot = snapshot_at(log, newest, snapshot)


def check_manifests_possible(
    snapshot: Snapshot | None, metadata: Metadata, actions: Iterable[Any], table: str
) -> None:
    """UnsupportedFeatureError if a commit makes a table that has both manifests and column mapping, or if it
    switches manifests on, and leaves a file of the snapshot that has a deletion vector."""
    if not SYMLINK_MANIFEST_ENABLED.of(metadata.configuration, table):
        return
    was_on = snapshot is not None and SYMLINK_MANIFEST_ENABLED.of(snapshot.metadata.configuration, table)
    was_mapped = snapshot is not None and snapshot.mapping_mode != "none"
    if mapping_mode(metadata, table) != "none" and not (was_on and was_mapped):
        raise _mapped(table, None if snapshot is None else snapshot.version)
    if snapshot is None or was_on:
        return
    marked = snapshot.files.filter(snapshot.files["deletion_vector"].is_valid())
    removed = {file_key(action, table) for action in actions if isinstance(action, RemoveFile)}
    left = [key for key in file_keys(marked, table).to_pylist() if key not in removed]
    if left:
        raise UnsupportedFeatureError(
            f"Manifests cannot express that rows of a file are deleted, and {len(left)} files of the table "
            "have deletion vectors. Rewrite these files first: REORG TABLE ... APPLY (PURGE).",
            features=["deletionVectors"],
            error_class="DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED",
            table=table,
            version=snapshot.version,
        )


def _check(snapshot: Snapshot) -> None:
    if snapshot.mapping_mode != "none":
        raise _mapped(snapshot.path, snapshot.version)
    if snapshot.num_deletion_vectors:
        raise UnsupportedFeatureError(
            "Manifests cannot express that rows of a file are deleted, and the table has deletion vectors. "
            "Rewrite these files first: REORG TABLE ... APPLY (PURGE).",
            features=["deletionVectors"],
            error_class="DELTA_UNSUPPORTED_GENERATE_WITH_DELETION_VECTORS",
            table=snapshot.path,
            version=snapshot.version,
        )


def _mapped(table: str, version: int | None) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        features=["columnMapping"],
        error_class="DELTA_UNSUPPORTED_MANIFEST_GENERATION_WITH_COLUMN_MAPPING",
        table=table,
        version=version,
    )


def _root(snapshot: Snapshot) -> str:
    return f"{snapshot.path}/{DIRECTORY}"


def _touched(snapshot: Snapshot, actions: Iterable[Any]) -> set[str] | None:
    """The folders of the partitions in which a commit added or removed files; None if that is not known."""
    folders = set()
    for action in actions:
        if isinstance(action, AddFile | RemoveFile):
            if action.partition_values is None:
                return None
            folders.add(partition_folder(snapshot.partition_columns, action.partition_values))
    return folders


def _replace(log: LogFiles, snapshot: Snapshot, folders: Set[str]) -> None:
    """Write the manifests of these folders, and remove those of folders without files."""
    directory = log.store.data_directory(_root(snapshot))
    for folder in folders - _write(log, snapshot, folders):
        _remove(directory, folder)


def _write(log: LogFiles, snapshot: Snapshot, only: Set[str] | None = None) -> set[str]:
    """Write the manifests of partitions that have files, of those in `only`; their folders."""

    _refuse_links(snapshot, "")

    def write(manifest: tuple[str, Sequence[str]]) -> str:
        folder, paths = manifest
        _refuse_links(snapshot, folder)
        with log.store.open_output(posixpath.join(_root(snapshot), folder, _NAME)) as output:
            output.writelines(f"{path}\n".encode() for path in sorted(paths))
        return folder

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="deltaflow-manifests") as pool:
        return set(pool.map(write, _manifests(snapshot, only)))


def _refuse_links(snapshot: Snapshot, folder: str) -> None:
    """StoreError if the folder of a manifest is a link or behind one: whose files are there, nobody knows."""
    if scheme_of(snapshot.path) is not None:
        return
    place = posixpath.join(DIRECTORY, folder).rstrip("/")
    real = real_path(f"{snapshot.path}/{place}")
    if real != f"{real_path(snapshot.path)}/{place}":
        raise StoreError(
            f"Manifests are not written to {snapshot.path}/{place}: it is a link, or behind one, to {real}. "
            "Remove the link.",
            table=snapshot.path,
            version=snapshot.version,
            file=f"{snapshot.path}/{place}",
        )


def _manifests(snapshot: Snapshot, only: Set[str] | None) -> Iterator[tuple[str, Sequence[str]]]:
    """Each partition's folder and its files, of partitions in `only`."""
    columns = snapshot.partition_columns
    paths = complete_paths(snapshot.path, snapshot.files["path"])
    if not columns:
        yield "", paths.to_pylist()
        return
    values = [_values(snapshot.files, name) for name in columns]
    grouped = pa.table([*values, paths], names=[*map(str, range(len(columns))), "path"])
    grouped = grouped.group_by([*map(str, range(len(columns)))]).aggregate([("path", "list")])
    paths_of_partitions = grouped["path_list"]
    for i, row in enumerate(zip(*(grouped[str(i)].to_pylist() for i in range(len(columns))), strict=True)):
        folder = partition_folder(columns, dict(zip(columns, row, strict=True)))
        if only is None or folder in only:
            yield folder, paths_of_partitions[i].as_py()


def _values(files: pa.Table, name: str) -> pa.ChunkedArray:
    values = pc.map_lookup(files["partition_values"], name, "first")
    return pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)


def _remove(directory: DataDirectory, folder: str) -> None:
    """Remove a manifest, and its folders as far as they are empty then."""
    _, failures = directory.delete(folder, [_NAME])
    if failures:
        raise failures[0]
    while folder and directory.delete_if_empty(folder):
        folder = posixpath.dirname(folder)
