"""What a load's path and options name: a table, a version of it, a partition of it.

Sources: delta-spark's DeltaDataSource, DeltaTimeTravelSpec.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.batch.options import option
from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaIllegalArgumentException,
    DeltaTableNotFoundError,
)
from deltaflow.log import LOG_DIRECTORY, DeltaLog, Snapshot
from deltaflow.log.files.partition_values import folder_values, typed_values, without_char_padding
from deltaflow.log.protocol.properties import SESSION_TIME_ZONE, TIME_TRAVEL_BY_PATH_ENABLED
from deltaflow.spark.expressions.timestamps import timestamp_of_text, timestamp_or_none
from deltaflow.store import table_path

_LOG = logging.getLogger(__name__)

# As delta-spark reads them; the setting that turns them off is its own as well.
_AT_VERSION = re.compile(r"(?P<path>.*)@[vV](?P<version>\d+)", re.DOTALL | re.ASCII)
_AT_TIMESTAMP = re.compile(r"(?P<path>.*)@(?P<timestamp>\d{17})", re.DOTALL | re.ASCII)

_VERSION_OF_NAME = "deltaflow.versionOfName"
"""Set by the catalog: the version that a name was resolved to, whatever options and path say."""


@dataclass(frozen=True)
class LoadPath:
    """A table, and what is asked of it; at most one of the two is not None."""

    table: str
    version_as_of: int | None = None
    timestamp_ms: int | None = None
    partition: dict[str, str | None] = field(default_factory=dict)
    """Values of partition columns as the path's folders have them."""
    path: str = ""
    """That of the table or its partition, as given, without `@v12` and the like."""
    time_zone: str = "UTC"
    """The session's, in which timestamps without a zone are read."""

    @property
    def travels(self) -> bool:
        return self.version_as_of is not None or self.timestamp_ms is not None

    def version(self, log: DeltaLog) -> int | None:
        """The version that is travelled to; None for the newest."""
        if self.timestamp_ms is not None:
            return log.version_at_timestamp(self.timestamp_ms)
        return self.version_as_of

    def check_partition(self, snapshot: Snapshot) -> None:
        """DELTA_NON_PARTITION_COLUMN_SPECIFIED unless the path's folders are those of partition columns,
        DELTA_INVALID_PARTITION_PATH unless their values are of the columns' types."""
        fragment = "/".join(f"{name}={value}" for name, value in self.partition.items())
        strange = [name for name in self.partition if name not in snapshot.partition_columns]
        if strange:
            raise DeltaAnalysisException(
                error_class="DELTA_NON_PARTITION_COLUMN_SPECIFIED",
                columns=", ".join(strange),
                fragment=fragment,
                table=snapshot.path,
            )
        for name, value in self.partition.items():
            try:
                typed_values(pa.array([value], pa.string()), snapshot.schema[name].dataType, self.time_zone)
            except pa.ArrowInvalid as e:
                raise DeltaAnalysisException(
                    error_class="DELTA_INVALID_PARTITION_PATH",
                    path=fragment,
                    table=snapshot.path,
                    column=name,
                ) from e


def load_path(given: str, options: Mapping[str, str], settings: Mapping[str, str]) -> LoadPath:
    """What the path and the options of a load name. Times are of the session's time zone."""
    of_name = option(options, _VERSION_OF_NAME)
    time_zone = SESSION_TIME_ZONE.of(settings, given)
    if of_name is not None:
        table, partition = _table_and_partition(given)
        return LoadPath(table, int(of_name), None, partition, given, time_zone)
    version, timestamp = option(options, "versionAsOf"), option(options, "timestampAsOf")
    if version is not None and timestamp is not None:
        raise DeltaIllegalArgumentException(error_class="DELTA_ONEOF_IN_TIMETRAVEL")
    path, at_version, at_timestamp = _split(given, settings)
    if path != given and (version is not None or timestamp is not None):
        raise DeltaIllegalArgumentException(error_class="DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS")
    timestamp_ms = None
    if timestamp is not None:
        timestamp_ms = timestamp_of_text(timestamp).ms
    if at_timestamp is not None:
        timestamp_ms = _timestamp_ms_of_path(at_timestamp)
    table, partition = _table_and_partition(path)
    return LoadPath(table, version_number(version or at_version), timestamp_ms, partition, path, time_zone)


def no_table_at(path: str) -> DeltaTableNotFoundError:
    """What a query says of a path without a table: PATH_NOT_FOUND, as Spark says it for every format, or
    DELTA_TABLE_NOT_FOUND where there is something else."""
    if not os.path.exists(table_path(path)):
        return DeltaTableNotFoundError(error_class="PATH_NOT_FOUND", path=path, table=path)
    return DeltaTableNotFoundError(
        f"{path} is not a Delta table: it has no directory {LOG_DIRECTORY} with commits. Check the path, or "
        "write a table there first.",
        error_class="DELTA_TABLE_NOT_FOUND",
        table=path,
    )


def _split(path: str, settings: Mapping[str, str]) -> tuple[str, str | None, str | None]:
    """The path without `@v12` or `@yyyyMMddHHmmssSSS`, and these; what exists under its whole name stays."""
    if not TIME_TRAVEL_BY_PATH_ENABLED.of(settings) or os.path.exists(table_path(path)):
        return path, None, None
    if match := _AT_TIMESTAMP.fullmatch(path):
        return match["path"], None, match["timestamp"]
    if match := _AT_VERSION.fullmatch(path):
        return match["path"], match["version"], None
    return path, None, None


def version_number(value: str | None) -> int | None:
    """A version as options and VERSION AS OF have it."""
    if value is None:
        return None
    if not re.fullmatch(r"\d{1,19}", value, re.ASCII):
        raise DeltaIllegalArgumentException(error_class="DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE", value=value)
    return int(value)


def _timestamp_ms_of_path(digits: str) -> int:
    """Of yyyyMMddHHmmssSSS."""
    date = f"{digits[:4]}-{digits[4:6]}-{digits[6:8]}"
    found = timestamp_or_none(f"{date} {digits[8:10]}:{digits[10:12]}:{digits[12:14]}.{digits[14:]}")
    if found is None:
        raise DeltaIllegalArgumentException(
            error_class="DELTA_INVALID_TIMESTAMP_FORMAT", timestamp=digits, format="yyyyMMddHHmmssSSS"
        )
    return found.ms


def _table_and_partition(path: str) -> tuple[str, dict[str, str | None]]:
    """The table that the path is, or that the path lies in as folders `column=value`."""
    given = table_path(path)
    root = given
    while not os.path.isdir(os.path.join(root, "_delta_log")):
        parent = os.path.dirname(root)
        if parent == root:
            return given, {}  # no table at all: whoever opens it says so
        root = parent
    if root == given:
        return given, {}
    fragment = given.removeprefix(root.rstrip("/") + "/")
    if not all("=" in folder for folder in fragment.split("/")):
        raise DeltaAnalysisException(error_class="DELTA_INVALID_PARTITION_PATH", path=fragment, table=root)
    partition = folder_values(fragment)
    condition = " and ".join(f"{name} = '{value}'" for name, value in partition.items())
    _LOG.warning(
        "%s is a part of the Delta table %s: loading partitions by their path is not recommended. Load the "
        'table and filter it: spark.read.format("delta").load("%s").where("%s")',
        given,
        root,
        root,
        condition,
    )
    return root, partition


def files_of_partition(snapshot: Snapshot, partition: Mapping[str, str | None], time_zone: str) -> pa.Table:
    """The files of the snapshot that have these values of partition columns, given as in folder names.

    Timestamps without a zone, here and there, are read in `time_zone`.
    """
    files = snapshot.files
    for name, value in partition.items():
        field = snapshot.schema[name]
        values = pc.map_lookup(files["partition_values"], name, "first").combine_chunks()
        found = without_char_padding(typed_values(values, field.dataType, time_zone), field)
        given = typed_values(pa.array([value], pa.string()), field.dataType, time_zone)
        wanted = without_char_padding(given, field)[0]
        files = files.filter(pc.equal(found, wanted) if wanted.is_valid else pc.is_null(found))
    return files
