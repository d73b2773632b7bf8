"""SQL statements that deltaflow refuses, since Spark would change the table without a commit in its log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn
from urllib.parse import unquote

from deltaflow.batch.named_table import enclosing_table, is_table
from deltaflow.spark.sql.statements import Statement, refused, statement


class _Refusal(NamedTuple):
    name: str
    """The statement's name in SQL."""
    table_field: str | None
    """The field of Spark's plan that names the table."""
    advice: str


_KEPT_STATISTICS = "Each file's statistics are in the table's log since it was written."
_REFUSED: Mapping[str, _Refusal] = {
    "AddConstraint": _Refusal(
        "PRIMARY KEY, UNIQUE or FOREIGN KEY", "table", "Delta tables have CHECK constraints alone."
    ),
    "AddPartitions": _Refusal(
        "ALTER TABLE ADD PARTITION", "table", "A partition is there when it has rows: write some."
    ),
    "AlterTableCollation": _Refusal(
        "ALTER TABLE DEFAULT COLLATION",
        "table",
        "It needs the table feature collations, which deltaflow lacks.",
    ),
    "AnalyzeColumn": _Refusal("ANALYZE TABLE", "child", _KEPT_STATISTICS),
    "AnalyzeTable": _Refusal("ANALYZE TABLE", "child", _KEPT_STATISTICS),
    "DropPartitions": _Refusal(
        "ALTER TABLE DROP PARTITION",
        "table",
        "A partition goes with its rows: overwrite with the option replaceWhere.",
    ),
    "LoadData": _Refusal("LOAD DATA", "child", "Read the files with Spark, and append their rows."),
    "RecoverPartitions": _Refusal(
        "ALTER TABLE RECOVER PARTITIONS", "child", "The log has the partitions: nothing can be missing."
    ),
    "RenamePartitions": _Refusal(
        "ALTER TABLE PARTITION RENAME",
        "table",
        "The rows tell their partition: overwrite them with the option replaceWhere.",
    ),
    "ReorgUniform": _Refusal(
        "REORG TABLE APPLY (UPGRADE UNIFORM)", "table", "deltaflow does not write metadata for Iceberg."
    ),
    "RepairTable": _Refusal(
        "MSCK REPAIR TABLE", "child", "The log has the partitions: nothing can be missing."
    ),
    "SetTableSerDeProperties": _Refusal("ALTER TABLE SET SERDE", "child", "Use SET TBLPROPERTIES."),
    "TruncatePartition": _Refusal(
        "TRUNCATE TABLE PARTITION", "table", "Overwrite with the option replaceWhere."
    ),
    "Union": _Refusal("FROM … INSERT … INSERT", None, "Write one INSERT statement for each table."),
}


def _refuse(statement: Statement) -> NoReturn:
    refusal = _REFUSED[statement.name]
    raise refused(refusal.name, statement.table, refusal.advice)


for _name, _refusal in _REFUSED.items():
    statement(_name, table_field=_refusal.table_field)(_refuse)


def _writes_into_table(fields: Mapping[str, Any]) -> bool:
    location = fields["storage"]["locationUri"]
    return _is_delta(fields["provider"]) or (location is not None and _is_in_table(location))


@statement("InsertIntoDir", table_field=None, concerns=_writes_into_table)
def _insert_into_directory(statement: Statement) -> NoReturn:
    raise refused(
        "INSERT OVERWRITE DIRECTORY",
        statement.table,
        "It would replace files past the log. INSERT OVERWRITE the table, or write into another directory.",
    )


def _is_delta(provider: str | None) -> bool:
    return provider is not None and provider.lower() == "delta"


def _is_in_table(uri: str) -> bool:
    """Whether a directory is a Delta table's, or inside one's."""
    place = unquote(uri)
    return is_table(place) or enclosing_table(place) is not None
