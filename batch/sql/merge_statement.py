"""MERGE INTO, as Spark's parser gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltaflow.batch.dml.merge import merge
from deltaflow.batch.dml.merge_clauses import Clause, When
from deltaflow.spark.sql.statements import MERGED_ROWS, Rows, Statement, refused, statement

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


@statement("MergeIntoTable", table="targetTable", views=True, changes=True, output=MERGED_ROWS)
def _merge(statement: Statement) -> Rows:
    assert statement.table is not None
    if statement.table.path is None:
        raise refused("MERGE INTO", statement.table, "It is a view: merge into the table itself.")
    fields = statement.fields
    done = merge(
        statement.session,
        statement.table.path,
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
