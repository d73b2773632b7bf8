"""Bytes of a transaction log: list, read, put if absent."""

from deltaflow.store.base import FileStatus, LogStore
from deltaflow.store.data_directory import DataDirectory, Entry, EntryType, data_directory
from deltaflow.store.fsspec_store import FsspecLogStore, MemoryLogStore
from deltaflow.store.hadoop import storage_options_from_hadoop
from deltaflow.store.local import LocalLogStore
from deltaflow.store.location import is_same_directory, scheme_of, store_for, table_path
from deltaflow.store.s3 import S3LogStore

__all__ = [
    "DataDirectory",
    "Entry",
    "EntryType",
    "FileStatus",
    "FsspecLogStore",
    "LocalLogStore",
    "LogStore",
    "MemoryLogStore",
    "S3LogStore",
    "data_directory",
    "is_same_directory",
    "scheme_of",
    "storage_options_from_hadoop",
    "store_for",
    "table_path",
]
