"""The table, version and partition that the path and the options of a load name.

Sources: delta-spark's DeltaDataSource, DeltaTimeTravelSpec.
"""

from __future__ import annotations

import logging
import math
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.batch.named_table import enclosing_table
from deltaflow.batch.options import option
from deltaflow.errors import (
    DeltaAnalysisException,
    DeltaIllegalArgumentException,
    DeltaTableNotFoundError,
)
from deltaflow.log import LOG_DIRECTORY, DeltaLog, Snapshot
from deltaflow.log.files.partition_values import folder_values, typed_values, without_char_padding
from deltaflow.log.protocol.column_mapping import physical_name
from deltaflow.log.protocol.properties import SESSION_TIME_ZONE, TIME_TRAVEL_BY_PATH_ENABLED
from deltaflow.spark.expressions.timestamps import timestamp_of_text, timestamp_or_none
from deltaflow.store import given_path, real_path, scheme_part, store_for, table_path

_LOG = logging.getLogger(__name__)

# delta-spark reads these suffixes in the same way, and has the setting that turns them off.
_AT_VERSION = re.compile(r"(?P<path>.*)@[vV](?P<version>\d+)", re.DOTALL | re.ASCII)
_AT_TIMESTAMP = re.compile(r"(?P<path>.*)@(?P<timestamp>\d{17})", re.DOTALL | re.ASCII)

_VERSION_OF_NAME = "deltaflow.versionOfName"
"""An option that the catalog sets: the version of a table by name. It outranks other options and the path."""


@dataclass(frozen=True)
class LoadPath:
    """A table, and the version and partition of it that a load names."""

    table_path: str
    version_as_of: int | None = None
    timestamp_ms: int | None = None
    """None if `version_as_of` is not."""
    partition: dict[str, str | None] = field(default_factory=dict)
    """The values of partition columns in the path's folders."""
    path: str = ""
    """The given path of the table or its partition, without `@v12` and similar suffixes."""
    time_zone: str = "UTC"
    """The session's time zone, in which timestamps without a zone are read."""

    @property
    def travels(self) -> bool:
        return self.version_as_of is not None or self.timestamp_ms is not None

    def version(self, log: DeltaLog) -> int | None:
        """The version of the time travel; None without time travel."""
        if self.timestamp_ms is not None:
            return log.version_at_timestamp(self.timestamp_ms)
        return self.version_as_of

    def check_partition(self, snapshot: Snapshot) -> None:
        """Checks that the path's folders name partition columns and values of their types.

        Raises DELTA_NON_PARTITION_COLUMN_SPECIFIED or DELTA_INVALID_PARTITION_PATH if they do not.
        """
        fragment = "/".join(f"{name}={value}" for name, value in self.partition.items())
        unknown = [name for name in self.partition if name not in snapshot.partition_columns]
        if unknown:
            raise DeltaAnalysisException(
                error_class="DELTA_NON_PARTITION_COLUMN_SPECIFIED",
                columns=", ".join(unknown),
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
    """The table, version and partition that a load names. Times are in the session's time zone."""
    of_name = option(options, _VERSION_OF_NAME)
    time_zone = SESSION_TIME_ZONE.of(settings, given)
    if of_name is not None:
        root, partition = _table_and_partition(given)
        return LoadPath(root, int(of_name), None, partition, given, time_zone)
    version, timestamp = option(options, "versionAsOf"), option(options, "timestampAsOf")
    if version is not None and timestamp is not None:
        raise DeltaIllegalArgumentException(error_class="DELTA_ONEOF_IN_TIMETRAVEL")
    path, at_version, at_timestamp = _split_time_travel(given, settings)
    if path != given and (version is not None or timestamp is not None):
        raise DeltaIllegalArgumentException(error_class="DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS")
    timestamp_ms = None
    if timestamp is not None:
        timestamp_ms = timestamp_of_text(timestamp).ms
    if at_timestamp is not None:
        timestamp_ms = _timestamp_ms_of_path(at_timestamp)
    root, partition = _table_and_partition(path)
    number = version_number(at_version if version is None else version)
    return LoadPath(root, number, timestamp_ms, partition, path, time_zone)


def no_table_at(path: str) -> DeltaTableNotFoundError:
    """The error for a path without a table.

    It is PATH_NOT_FOUND, as for every format of Spark, or DELTA_TABLE_NOT_FOUND if the path exists.
    """
    store, place = store_for(path)
    if not store.exists(place):
        return DeltaTableNotFoundError(error_class="PATH_NOT_FOUND", path=path, table=path)
    return DeltaTableNotFoundError(
        f"{path} is not a Delta table: it has no directory {LOG_DIRECTORY} with commits. Check the path, or "
        "write a table there first.",
        error_class="DELTA_TABLE_NOT_FOUND",
        table=path,
    )


def _split_time_travel(path: str, settings: Mapping[str, str]) -> tuple[str, str | None, str | None]:
    """The path without `@v12` or `@yyyyMMddHHmmssSSS`, and this version or timestamp.

    A path that exists with its suffix is taken as it is.
    """
    at_timestamp, at_version = _AT_TIMESTAMP.fullmatch(path), _AT_VERSION.fullmatch(path)
    found = at_timestamp or at_version
    if found is None or not TIME_TRAVEL_BY_PATH_ENABLED.of(settings) or _exists(path):
        return path, None, None
    if at_timestamp is not None:
        return found["path"], None, found["timestamp"]
    return found["path"], found["version"], None


def _exists(path: str) -> bool:
    store, place = store_for(table_path(path))
    return store.exists(place)


def version_number(value: str | None) -> int | None:
    """The version in an option or in VERSION AS OF."""
    if value is None:
        return None
    if not re.fullmatch(r"\d{1,19}", value, re.ASCII):
        raise DeltaIllegalArgumentException(error_class="DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE", value=value)
    return int(value)


def _timestamp_ms_of_path(digits: str) -> int:
    """The time of the digits yyyyMMddHHmmssSSS, in milliseconds since 1970."""
    date = f"{digits[:4]}-{digits[4:6]}-{digits[6:8]}"
    found = timestamp_or_none(f"{date} {digits[8:10]}:{digits[10:12]}:{digits[12:14]}.{digits[14:]}")
    if found is None:
        raise DeltaIllegalArgumentException(
            error_class="DELTA_INVALID_TIMESTAMP_FORMAT", timestamp=digits, format="yyyyMMddHHmmssSSS"
        )
    return found.ms


def _table_and_partition(path: str) -> tuple[str, dict[str, str | None]]:
    """The path of the table, and the partition of it that the given path's folders `column=value` name."""
    store, given = store_for(table_path(path))
    # A look is a request where the table is not local: there only a partition's path is looked at.
    if scheme_part(given) is not None and "=" not in posixpath.basename(given):
        return given, {}
    is_root = store.exists(posixpath.join(given, LOG_DIRECTORY))
    root = None if is_root else enclosing_table(given_path(given))
    if root is None:  # if there is no table, opening it raises the error
        return given, {}
    prefix = root.rstrip("/") + "/"
    place = given if given.startswith(prefix) else real_path(given)
    fragment = place.removeprefix(prefix)
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
    """The files of the snapshot with these values of partition columns, written as in folder names.

    Timestamps without a zone, in the log and in `partition`, are read in `time_zone`.
    """
    files = snapshot.files
    for name, value in partition.items():
        field = snapshot.schema[name]
        values = pc.map_lookup(files["partition_values"], physical_name(field), "first").combine_chunks()
        found = without_char_padding(typed_values(values, field.dataType, time_zone), field)
        given = typed_values(pa.array([value], pa.string()), field.dataType, time_zone)
        wanted = without_char_padding(given, field)[0]
        is_nan = pa.types.is_floating(wanted.type) and wanted.is_valid and math.isnan(wanted.as_py())
        matching = pc.equal(found, wanted) if wanted.is_valid else pc.is_null(found)
        files = files.filter(pc.is_nan(found) if is_nan else matching)
    return files
