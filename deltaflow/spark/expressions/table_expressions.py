"""The expressions that a table's log has, as columns (see TableExpressions.java)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltaflow.errors import DeltaUnsupportedOperationException
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.spark.bridge.java_classes import java_classes_of_context
from deltaflow.spark.bridge.messages import Message

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class RefusedExpressionRequest(Message, frozen=True):
    """expressions.refused: an expression of a table has a part that none may have."""

    expression: str
    part: str
    table: str


def table_expression(sql: str, table: str) -> Column:
    """An expression of a constraint, a generated column or a default of the table at the path `table`.

    DELTA_UNSAFE_EXPRESSION for one that has more than columns and Spark's own functions. Variables (`${…}`)
    are not replaced. Raises Spark's ParseException for what is no expression.
    """
    from pyspark.sql.classic.column import Column as ClassicColumn

    return ClassicColumn(java_classes_of_context().expressions.TableExpressions.column(sql, table))


def table_expression_over(rows: DataFrame, sql: str, table: str) -> Column:
    """The same, analysed over a frame whose CHAR has the blanks that readers see: it compares with them."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    return ClassicColumn(java_classes_of_context().expressions.TableExpressions.over(rows._jdf, sql, table))


@dispatcher.handle("expressions.refused")
def _refused(request: RefusedExpressionRequest) -> None:
    raise DeltaUnsupportedOperationException(
        error_class="DELTA_UNSAFE_EXPRESSION",
        expression=request.expression,
        part=request.part,
        table=request.table,
    )
