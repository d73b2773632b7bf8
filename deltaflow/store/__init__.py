"""Storages of tables: the log's files, which are put if absent, and what is done with data files."""

from deltaflow.store.base import FileStatus, LogStore, check_sizes
from deltaflow.store.data_directory import DataDirectory, Entry, EntryType, place_below
from deltaflow.store.data_files import NO_STORES, Stores, absent, slices, tails
from deltaflow.store.exclusion import ExclusionTrial
from deltaflow.store.fsspec_store import FsspecLogStore, MemoryLogStore
from deltaflow.store.hadoop import storage_options_from_hadoop
from deltaflow.store.local import LocalLogStore
from deltaflow.store.location import (
    directories_above,
    file_system_part,
    fsspec_store,
    given_path,
    is_absolute_path,
    is_same_directory,
    local_path,
    qualified_path,
    real_path,
    scheme_of,
    scheme_part,
    store_for,
    table_path,
    use_stores_of_spark,
)
from deltaflow.store.retries import RetryPolicy
from deltaflow.store.s3 import S3LogStore

__all__ = [
    "NO_STORES",
    "DataDirectory",
    "Entry",
    "EntryType",
    "ExclusionTrial",
    "FileStatus",
    "FsspecLogStore",
    "LocalLogStore",
    "LogStore",
    "MemoryLogStore",
    "RetryPolicy",
    "S3LogStore",
    "Stores",
    "absent",
    "check_sizes",
    "directories_above",
    "file_system_part",
    "fsspec_store",
    "given_path",
    "is_absolute_path",
    "is_same_directory",
    "local_path",
    "place_below",
    "qualified_path",
    "real_path",
    "scheme_of",
    "scheme_part",
    "slices",
    "storage_options_from_hadoop",
    "store_for",
    "table_path",
    "tails",
    "use_stores_of_spark",
]
