"""ALTER TABLE and COMMENT ON TABLE, as Spark's parser gives them."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyspark.sql.types import StructField

from deltaflow.batch.ddl.clustering import change_clustering
from deltaflow.batch.ddl.column_defaults import check_defaults
from deltaflow.batch.ddl.columns import (
    ColumnChange,
    NewColumn,
    add_columns,
    change_columns,
    column_field,
    replace_columns,
    type_of_json,
)
from deltaflow.batch.ddl.constraints import add_constraint, drop_constraint
from deltaflow.batch.ddl.drop_column_mapping import is_mapped, remove_column_mapping
from deltaflow.batch.ddl.drop_feature import drop_feature
from deltaflow.batch.ddl.identity_columns import sync_identity
from deltaflow.batch.ddl.mapped_columns import drop_columns, rename_column
from deltaflow.batch.ddl.table_location import set_table_location
from deltaflow.batch.ddl.table_properties import (
    check_settable,
    check_unsettable,
    set_properties,
    unset_properties,
)
from deltaflow.batch.sql_names import quoted
from deltaflow.errors import DeltaAnalysisException
from deltaflow.log import DeltaLog
from deltaflow.log.protocol.properties import COLUMN_MAPPING_MODE
from deltaflow.spark.sql.statements import Rows, Statement, refused, statement

_MAPPING_MODE = COLUMN_MAPPING_MODE.name


@statement("SetTableProperties", changes=True)
def _set_properties(statement: Statement) -> Rows:
    properties = statement.fields["properties"]
    others = {name: value for name, value in properties.items() if name.lower() != _MAPPING_MODE.lower()}
    modes = [value for name, value in properties.items() if name not in others]
    if any(mode.lower() == "none" for mode in modes):
        check_settable(_log(statement), others, statement.settings)
        _remove_mapping(statement, unset=False)
    set_properties(_log(statement), properties, statement.settings)
    return ()


def _remove_mapping(statement: Statement, *, unset: bool) -> None:
    log = _log(statement)
    if is_mapped(log):
        remove_column_mapping(statement.session, log, statement.settings, unset=unset)


@statement("UnsetTableProperties", changes=True)
def _unset_properties(statement: Statement) -> Rows:
    fields = statement.fields
    names, if_exists = fields["propertyKeys"], fields["ifExists"]
    if any(name.lower() == _MAPPING_MODE.lower() for name in names):
        check_unsettable(_log(statement), names, if_exists)
        is_set = is_mapped(_log(statement))
        _remove_mapping(statement, unset=True)
        if_exists = if_exists or is_set
    unset_properties(_log(statement), names, if_exists, statement.settings)
    return ()


@statement("CommentOnTable", changes=True)
def _comment(statement: Statement) -> Rows:
    set_properties(_log(statement), {"comment": statement.fields["comment"]}, statement.settings)
    return ()


@statement("SetTableLocation", changes=True)
def _set_location(statement: Statement) -> Rows:
    table, fields = statement.table, statement.fields
    assert table is not None
    if fields["partitionSpec"] is not None:
        advice = "A partition has no location: its files are in the table's log."
        raise refused("ALTER TABLE PARTITION SET LOCATION", table, advice)
    set_table_location(statement.session, table, fields["location"], statement.settings)
    return ()


@statement("AddColumns", changes=True)
def _add_columns(statement: Statement) -> Rows:
    columns = [
        NewColumn(
            () if column["path"] is None else column["path"]["name"],
            _field(statement, column),
            _position(column["position"]),
        )
        for column in statement.fields["columnsToAdd"]
    ]
    add_columns(_log(statement), columns, statement.settings)
    return ()


@statement("ReplaceColumns", changes=True)
def _replace_columns(statement: Statement) -> Rows:
    columns = [_field(statement, column) for column in statement.fields["columnsToAdd"]]
    replace_columns(_log(statement), columns, statement.settings)
    return ()


@statement("AlterColumns", changes=True)
def _change_columns(statement: Statement) -> Rows:
    changes = []
    for spec in statement.fields["specs"]:
        change = ColumnChange(
            spec["column"]["name"],
            None if spec["newDataType"] is None else type_of_json(spec["newDataType"]),
            spec["newNullability"],
            "" if spec.get("dropComment") else spec["newComment"],
            _position(spec["newPosition"]),
            _default(spec),
        )
        changes.append(change)
    check = partial(check_defaults, statement.session, changes=changes)
    change_columns(_log(statement), changes, statement.settings, check)
    return ()


@statement("SyncIdentity", changes=True)
def _sync_identity(statement: Statement) -> Rows:
    """ALTER COLUMN … SYNC IDENTITY; `column` has the parts of the column's name."""
    sync_identity(statement.session, _log(statement), statement.fields["column"], statement.settings)
    return ()


@statement("RenameColumn", changes=True)
def _rename_column(statement: Statement) -> Rows:
    path, new_name = statement.fields["column"]["name"], statement.fields["newName"]
    rename_column(statement.session, _log(statement), tuple(path), new_name, statement.settings)
    return ()


@statement("DropColumns", changes=True)
def _drop_columns(statement: Statement) -> Rows:
    paths = [tuple(column["name"]) for column in statement.fields["columnsToDrop"]]
    if_exists = statement.fields["ifExists"]
    drop_columns(statement.session, _log(statement), paths, if_exists, statement.settings)
    return ()


@statement("AlterTableClusterBy", changes=True)
def _cluster_by(statement: Statement) -> Rows:
    """CLUSTER BY (…), or NONE."""
    spec = statement.fields["clusterBySpec"]
    names = [] if spec is None else [".".join(map(quoted, name["parts"])) for name in spec["columnNames"]]
    change_clustering(_log(statement), names, statement.settings)
    return ()


@statement("AddCheckConstraint", table_field="child", changes=True)
def _add_constraint(statement: Statement) -> Rows:
    """ADD CONSTRAINT … CHECK; `checkConstraint` has the `userProvidedName` and the `condition` as text."""
    assert statement.table is not None
    constraint = statement.fields["checkConstraint"]
    if constraint["userProvidedName"] is None:
        raise refused("ADD CHECK without a name", statement.table, "Write ADD CONSTRAINT name CHECK (…).")
    if constraint.get("userProvidedCharacteristic", {}).get("rely") is not None:
        raise refused("RELY and NORELY", statement.table, "Leave it out: constraints are enforced.")
    add_constraint(
        statement.session,
        statement.table,
        constraint["userProvidedName"],
        constraint["condition"],
        statement.settings,
    )
    return ()


@statement("DropConstraint", changes=True)
def _drop_constraint(statement: Statement) -> Rows:
    assert statement.table is not None
    fields = statement.fields
    drop_constraint(statement.table, fields["name"], fields["ifExists"], statement.settings)
    return ()


@statement("DropFeature", changes=True)
def _drop_feature(statement: Statement) -> Rows:
    fields = statement.fields
    drop_feature(
        _log(statement),
        fields["featureName"],
        fields["truncateHistory"],
        statement.settings,
        statement.session,
    )
    return ()


def _log(statement: Statement) -> DeltaLog:
    return DeltaLog.for_table(statement.path)


def _position(position: dict[str, Any] | None) -> str | None:
    return None if position is None else str(position["position"])


def _field(statement: Statement, column: dict[str, Any]) -> StructField:
    _refuse_default(statement, column)
    return column_field(
        column["colName"], column["dataType"], nullable=column["nullable"], comment=column["comment"]
    )


def _refuse_default(statement: Statement, column: dict[str, Any]) -> None:
    if column.get("default") is not None:
        raise DeltaAnalysisException(
            error_class="WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED",
            table=statement.path,
        )


def _default(spec: dict[str, Any]) -> str | None:
    """What SET DEFAULT says, "" for DROP DEFAULT, None for neither. Spark 4.0 has the text alone."""
    if spec.get("dropDefault"):
        return ""
    found = spec.get("newDefaultExpression")
    return found if found is None or isinstance(found, str) else str(found["originalSQL"])
