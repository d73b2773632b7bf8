"""Bytes of a transaction log: list, read, put if absent."""

from deltaflow.store.base import FileStatus, LogStore
from deltaflow.store.data_directory import DataDirectory, Entry, EntryType, data_directory
from deltaflow.store.exclusion import ExclusionTrial
from deltaflow.store.fsspec_store import FsspecLogStore, MemoryLogStore
from deltaflow.store.hadoop import storage_options_from_hadoop
from deltaflow.store.local import LocalLogStore
from deltaflow.store.location import is_same_directory, scheme_of, store_for, table_path, use_stores_of_spark
from deltaflow.store.retries import RetryPolicy
from deltaflow.store.s3 import S3LogStore

__all__ = [
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
    "data_directory",
    "is_same_directory",
    "scheme_of",
    "storage_options_from_hadoop",
    "store_for",
    "table_path",
    "use_stores_of_spark",
]
