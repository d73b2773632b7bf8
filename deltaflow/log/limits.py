"""How large a log's content may be: far above what tables have, and below what ends a process.

Whoever can write a table's log chooses its content (SECURITY.md). A log beyond a limit is refused by a
CorruptLogError that names it.
"""

from typing import Final

MAX_JSON_FILE_BYTES: Final = 8 << 30
"""Of a commit, of a log compaction and of a checkpoint in JSON, which are read as a whole."""
MAX_CHECKPOINT_EXPANSION: Final = 1_000
"""Decoded bytes for each byte of a checkpoint in Parquet, once they are more than MIN_EXPANDED_BYTES."""
MIN_EXPANDED_BYTES: Final = 1 << 30
"""As many decoded bytes a checkpoint may have, however small it is."""
MIN_ROW_BYTES: Final = 8
"""As many decoded bytes a row of a checkpoint counts at least."""
MAX_SCHEMA_DEPTH: Final = 100
"""Of types within types. Python and Spark walk through schemas by recursion."""
MAX_DELETION_VECTOR_BYTES: Final = 1 << 30
"""Of the bitmap of one data file: without any compression, one of eight billion rows."""
