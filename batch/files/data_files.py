"""Makes the add actions of a commit from the data files that Spark has written."""

from __future__ import annotations

import logging
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from pyspark.sql.types import LongType, StructField, StructType

from deltaflow.batch.files.file_layout import random_prefix
from deltaflow.errors import DeltaIllegalStateException, StoreError
from deltaflow.log import AddCDCFile, AddFile, Metadata
from deltaflow.log.files.data_path import encoded_uri, hadoop_path, store_path
from deltaflow.log.files.footers import collect_statistics, numbers_of_rows
from deltaflow.log.files.partition_values import partition_values_of
from deltaflow.log.protocol.column_mapping import physical_indexed_leaves, physical_name, table_schema
from deltaflow.log.protocol.identity_columns import Identity, identity_columns
from deltaflow.log.protocol.properties import DATA_SKIPPING_STRING_PREFIX_LENGTH
from deltaflow.spark.write.file_write import WrittenFile
from deltaflow.store import store_for

_LOG = logging.getLogger(__name__)


class DataFiles:
    """Makes the add actions of new files of the table at `path`, which has `metadata` after the commit.

    Raises DeltaIllegalArgumentException for a wrong property of the table, before any file is written.
    """

    def __init__(self, metadata: Metadata, path: str, folder: str | None = None) -> None:
        """`folder`: the folder inside of the table for the files; by default the one of the properties."""
        schema = table_schema(metadata, table=path)
        self._path = path
        self.folder = folder or random_prefix(metadata.configuration, path)
        """The folder inside of the table for the files; None for the table's own directory."""
        partition_columns = [schema[name] for name in metadata.partition_columns]
        # Files lie in folders of the physical names.
        self._partition_schema = StructType(
            [StructField(physical_name(column), column.dataType) for column in partition_columns]
        )
        self._indexed_leaves = physical_indexed_leaves(metadata, path)
        self._numbered: list[Identity] = []
        self._identities = identity_columns(schema)
        self.numbers: dict[str, int] = {}
        """Of each column of `track_numbers`, by its physical name, the last number in the files so far."""
        self._string_prefix_length = DATA_SKIPPING_STRING_PREFIX_LENGTH.of(metadata.configuration, path)

    def track_numbers(self, columns: Iterable[str]) -> None:
        """Notes in `numbers`, of all files from now on, the values of these identity columns."""
        self._numbered = [self._identities[name] for name in columns]

    def add_actions(
        self, files: Sequence[WrittenFile], *, data_change: bool = True
    ) -> tuple[list[AddFile], int]:
        """The add actions of the files that hold rows, and the number of those rows.

        Reads the footer of each file, and removes files without rows.
        """
        paths = [store_path(file.path) for file in files]
        indexed = {path for path, _ in self._indexed_leaves}
        only_tracked = [(c.physical_name,) for c in self._numbered if (c.physical_name,) not in indexed]
        statistics = collect_statistics(
            [(path, file.size) for path, file in zip(paths, files, strict=True)],
            [*self._indexed_leaves, *((path, LongType()) for path in only_tracked)],
            self._string_prefix_length,
            ours=True,
        )
        if self._numbered:
            statistics = [
                self._noted(text, path, only_tracked) for text, path in zip(statistics, paths, strict=True)
            ]
        adds: list[AddFile] = []
        rows = 0
        empty: list[str] = []
        for file, path, stats in zip(files, paths, statistics, strict=True):
            records = msgspec.json.decode(stats, type=_NumRecords).num_records
            if records == 0:
                # Spark writes such a file for a frame without rows. No commit names it.
                empty.append(path)
                continue
            rows += records
            relative, partition_values = self._named(file.path, path)
            adds.append(
                AddFile(
                    path=relative,
                    partition_values=partition_values,
                    size=file.size,
                    modification_time=file.modification_time,
                    data_change=data_change,
                    stats=stats,
                )
            )
        if empty:
            self._remove(empty)
        return adds, rows

    def change_actions(self, files: Sequence[WrittenFile]) -> tuple[list[AddCDCFile], int]:
        """The cdc actions of files of change rows, and the number of these rows, by the files' footers.

        Removes files without rows.
        """
        paths = [store_path(file.path) for file in files]
        counted = numbers_of_rows([(path, file.size) for path, file in zip(paths, files, strict=True)])
        actions: list[AddCDCFile] = []
        for file, path, rows in zip(files, paths, counted, strict=True):
            if rows:
                relative, partition_values = self._named(file.path, path)
                actions.append(
                    AddCDCFile(
                        path=relative, partition_values=partition_values, size=file.size, data_change=False
                    )
                )
        self._remove([path for path, rows in zip(paths, counted, strict=True) if not rows])
        return actions, sum(counted)

    def _named(self, encoded: str, path: str) -> tuple[str, dict[str, str | None]]:
        """How the log names a file, and its partition values."""
        relative = _relative(encoded, path, self._path)
        partition = relative if self.folder is None else relative.removeprefix(f"{self.folder}/")
        return relative, partition_values_of(partition, self._partition_schema)

    def written_file(self, name: str, size: int) -> WrittenFile:
        """A file in the table that is not one of Spark's, for `discard`."""
        return WrittenFile(encoded_uri(hadoop_path(f"{self._path}/{name}")), size, 0)

    def put(self, name: str, content: bytes) -> None:
        """Writes a new file into the table, such that it survives a crash. Nobody else may know its name."""
        store, root = store_for(self._path)
        place = f"{root}/{name}"
        if "/" in name:
            store.make_directory(posixpath.dirname(place))
        with suppress(FileExistsError):  # by this put itself, if its answer was lost and a client tried again
            store.put_if_absent(place, content)

    def _noted(self, statistics: str, file: str, only_tracked: Sequence[tuple[str]]) -> str:
        """Notes the numbers in the statistics of a file; returns these without what is not indexed."""
        found: dict[str, Any] = msgspec.json.decode(statistics)
        low, high, nulls = (found[key] for key in ("minValues", "maxValues", "nullCount"))
        for column in self._numbered:
            name = column.physical_name
            if name in low and name in high:
                bounds = [low[name], high[name], *([self.numbers[name]] if name in self.numbers else [])]
                self.numbers[name] = column.furthest(min(bounds), max(bounds))
            elif nulls.get(name) != found["numRecords"]:
                raise DeltaIllegalStateException(
                    f"The footer of data file {file} has no bounds of identity column {column.name}, so the "
                    "table cannot note which numbers it has given. Nothing was committed. Switch the "
                    "statistics of Spark's Parquet writer on (parquet.column.statistics.enabled).",
                    error_class="DELTA_STATS_COLLECTION_COLUMN_NOT_FOUND",
                    table=self._path,
                    file=file,
                    column=column.name,
                )
        for (name,) in only_tracked:
            for values in (low, high, nulls):
                values.pop(name, None)
        return msgspec.json.encode(found).decode()

    def discard(
        self, files: Sequence[WrittenFile] | None, *, is_certain: bool, log_level: int = logging.WARNING
    ) -> None:
        """Removes the files of a write that has ended without a commit, and logs what stays, at `log_level`.

        Removes nothing unless it `is_certain` that no commit names the files, now or later. `files` is None
        if Spark's job has failed; Spark then removes the files itself.
        """
        if files is None:
            _LOG.log(
                log_level,
                "%s: a write failed before its commit; nothing of it is in the table. Spark removes its "
                "files, except those of tasks that were killed with their executors. VACUUM removes these.",
                self._path,
            )
            return
        paths = [store_path(file.path) for file in files]
        if not is_certain:
            _LOG.log(
                log_level,
                "%s: a write ended early, and its commit is or may be in the table; its %s files stay: %s",
                self._path,
                len(paths),
                ", ".join(paths),
            )
            return
        failures = self._remove(paths)
        if failures:
            _LOG.log(
                log_level,
                "%s: a write was not committed, and some of its files could not be removed; VACUUM removes "
                "them: %s",
                self._path,
                ", ".join(failure.message for failure in failures),
            )
        _LOG.log(
            log_level,
            "%s: a write was not committed; %s of its %s files were removed.",
            self._path,
            len(paths) - len(failures),
            len(paths),
        )

    def _remove(self, paths: Sequence[str]) -> list[StoreError]:
        """Removes files of the table, and returns the failures."""
        store, root = store_for(self._path)
        directory = store.data_directory(root)
        names: defaultdict[str, list[str]] = defaultdict(list)
        for path in paths:
            folder, name = posixpath.split(path.removeprefix(f"{root.rstrip('/')}/"))
            names[folder].append(name)
        return [failure for folder in names for failure in directory.delete(folder, names[folder])[1]]


class _NumRecords(msgspec.Struct):
    num_records: int = msgspec.field(name="numRecords")


def _relative(encoded: str, path: str, root: str) -> str:
    """The URI-encoded path relative to the table."""
    # The encoding does not change the number of folders.
    depth = path.removeprefix(root + "/").count("/") + 1
    return "/".join(encoded.split("/")[-depth:])
