"""Bytes of a transaction log: list, read, put if absent."""

from deltaflow.store.base import FileStatus, LogStore
from deltaflow.store.local import LocalLogStore
from deltaflow.store.location import store_for, table_path

__all__ = ["FileStatus", "LocalLogStore", "LogStore", "store_for", "table_path"]
