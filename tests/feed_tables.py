"""A table that records its changes, by another writer, for readers in batch and streams."""

from __future__ import annotations

import deltalake
import pyarrow as pa

from tests.tables import commit_file, set_time

FEED = {"delta.enableChangeDataFeed": "true"}
START_MS = 1_700_000_000_000
SECOND_MS = 1_000


def feed_table(path: str) -> str:
    """A table by deltalake, with a commit a second.

    0: ids 0 to 5 in partitions by p; 1: id 1 gets v = 10 (with change files); 2: partition b is deleted as a
    whole; 3: id 0 is deleted (with a change file); 4: id 9 is added.
    """
    first = pa.table({"id": range(6), "v": range(6), "p": ["a", "a", "b", "b", "c", "c"]})
    deltalake.write_deltalake(path, first, partition_by=["p"], configuration=FEED)
    deltalake.DeltaTable(path).update(updates={"v": "10"}, predicate="id = 1")
    deltalake.DeltaTable(path).delete("p = 'b'")
    deltalake.DeltaTable(path).delete("id = 0")
    last = pa.table({"id": [9], "v": [9], "p": ["d"]})
    deltalake.write_deltalake(path, last, mode="append")
    for version in range(5):
        set_time(commit_file(path, version), START_MS + version * SECOND_MS)
    return path
