"""DELETE FROM and UPDATE, as Spark's parser gives them."""

from __future__ import annotations

from deltaflow.batch.dml.delete import delete
from deltaflow.batch.dml.update import update
from deltaflow.spark.expressions.expressions import sql_text
from deltaflow.spark.sql.statements import AFFECTED_ROWS, Rows, Statement, refused, statement

# By delta-spark: it does not count the rows of files without statistics.
_UNKNOWN = -1


@statement("DeleteFromTable", views=True, output=AFFECTED_ROWS)
def _delete(statement: Statement) -> Rows:
    path = _path(statement, "DELETE")
    condition = statement.fields["condition"]
    if sql_text(condition) == "true":  # Spark's, where there is none
        condition = None
    deleted = delete(statement.session, path, condition, named=statement.under_its_name)
    return [(_UNKNOWN if deleted is None else deleted,)]


@statement("UpdateTable", views=True, output=AFFECTED_ROWS)
def _update(statement: Statement) -> Rows:
    path, fields = _path(statement, "UPDATE"), statement.fields
    values = [(assignment["key"], assignment["value"]) for assignment in fields["assignments"]]
    updated = update(statement.session, path, values, fields["condition"], named=statement.under_its_name)
    return [(updated,)]


def _path(statement: Statement, name: str) -> str:
    assert statement.table is not None
    if statement.table.path is None:
        raise refused(name, statement.table, "It is a view: name the table itself.")
    return statement.table.path
