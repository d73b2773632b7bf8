"""GENERATE: writes manifests, by which other engines read a table (delta-spark's DeltaGenerateCommand)."""

from __future__ import annotations

from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.log import DeltaLog
from deltaflow.spark.sql.statements import NamedTable

_MODE = "symlink_format_manifest"


def generate(table: NamedTable, mode: str) -> None:
    """Writes the manifests of a table (deltaflow.log.maintenance.manifests).

    DELTA_MODE_NOT_SUPPORTED unless `mode` is symlink_format_manifest, in any case.
    """
    assert table.path is not None
    if mode.lower() != _MODE:
        raise DeltaIllegalArgumentException(
            error_class="DELTA_MODE_NOT_SUPPORTED", mode=mode, supported_modes=_MODE, table=table.path
        )
    DeltaLog.for_table(table.path).write_manifests()
