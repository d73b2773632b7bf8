"""DELETE FROM, UPDATE and MERGE INTO, as Spark's parser gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltaflow.batch.dml.delete import delete
from deltaflow.batch.dml.merge import merge
from deltaflow.batch.dml.merge_clauses import Clause
from deltaflow.batch.dml.update import update
from deltaflow.interface.merge_builder import When
from deltaflow.spark.expressions.expressions import name_parts, sql_text
from deltaflow.spark.sql.statements import AFFECTED_ROWS, MERGED_ROWS, Rows, Statement, refused, statement

# The number of deleted rows if files have no statistics, as in delta-spark.
_UNKNOWN = -1

_CLAUSES = {
    "matchedActions": When.MATCHED,
    "notMatchedActions": When.NOT_MATCHED,
    "notMatchedBySourceActions": When.NOT_MATCHED_BY_SOURCE,
}
_ACTIONS = {
    "UpdateAction": "update",
    "UpdateStarAction": "update",
    "DeleteAction": "delete",
    "InsertAction": "insert",
    "InsertStarAction": "insert",
}


@statement("DeleteFromTable", views=True, output=AFFECTED_ROWS)
def _delete(statement: Statement) -> Rows:
    path = _path(statement, "DELETE")
    condition = statement.fields["condition"]
    # Spark's condition for a DELETE without one. Its text is also that of a column named `true`.
    if sql_text(condition) == "true" and name_parts(condition) is None:
        condition = None
    deleted = delete(statement.session, path, condition, named=statement.under_its_name)
    return [(_UNKNOWN if deleted is None else deleted,)]


@statement("UpdateTable", views=True, output=AFFECTED_ROWS)
def _update(statement: Statement) -> Rows:
    path, fields = _path(statement, "UPDATE"), statement.fields
    values = [(assignment["key"], assignment["value"]) for assignment in fields["assignments"]]
    updated = update(statement.session, path, values, fields["condition"], named=statement.under_its_name)
    return [(updated,)]


@statement("MergeIntoTable", table_field="targetTable", views=True, changes=True, output=MERGED_ROWS)
def _merge(statement: Statement) -> Rows:
    path, fields = _path(statement, "MERGE INTO"), statement.fields
    done = merge(
        statement.session,
        path,
        statement.frame("sourceTable"),
        fields["mergeCondition"],
        [_clause(when, parsed) for name, when in _CLAUSES.items() for parsed in fields[name]],
        named=statement.under_its_name,
        with_schema_evolution=fields["withSchemaEvolution"],
    )
    return [] if done is None else [done]


def _clause(when: When, parsed: Mapping[str, Any]) -> Clause:
    is_star = parsed["action"] in ("UpdateStarAction", "InsertStarAction")
    assignments = [(assigned["key"], assigned["value"]) for assigned in parsed.get("assignments", ())]
    return Clause(when, _ACTIONS[parsed["action"]], parsed["condition"], None if is_star else assignments)


def _path(statement: Statement, name: str) -> str:
    """The path of the statement's table, which a temporary view may stand for."""
    table = statement.table
    assert table is not None
    path = table.changed_path
    if path is None:
        advice = (
            "It is a view, and not a temporary one of all rows and columns of a table's newest version: "
            "name the table itself."
        )
        raise refused(name, table, advice)
    return path
