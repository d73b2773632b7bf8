"""What a commit records for a table's change data feed (PROTOCOL.md, "Change Data Files").

Readers of the feed take the rows of added and removed files, and those in which two deletion vectors differ,
for inserts and deletes. A commit that updates rows, or copies rows of files that it removes, has to record
all of its change rows in files instead. Rows that are new or have new values go to data files of their own,
which are change files as well; rows as they were before go to CHANGE_FOLDER.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltaflow.log import AddCDCFile, AddFile
from deltaflow.log.files.change_files import CHANGE_TYPE
from deltaflow.log.protocol.schema import CURRENT_DEFAULT

if TYPE_CHECKING:
    from pyspark.sql import Column

CHANGE_FOLDER: Final = "_change_data"


def change_type(kind: str) -> Column:
    """The column CHANGE_TYPE of rows that are changes of one kind."""
    return F.lit(kind).alias(CHANGE_TYPE)


def with_change_type(schema: T.StructType, default: str | None = None) -> T.StructType:
    """The schema of files that have CHANGE_TYPE, too; `default`: of rows that lack it."""
    metadata = {} if default is None else {CURRENT_DEFAULT: f"'{default}'"}
    return T.StructType([*schema.fields, T.StructField(CHANGE_TYPE, T.StringType(), True, metadata)])


def as_change_file(file: AddFile) -> AddCDCFile:
    """The action by which a data file is a change file, too: it has CHANGE_TYPE, and no copied row."""
    return AddCDCFile(
        path=file.path, partition_values=file.partition_values, size=file.size, data_change=False
    )
