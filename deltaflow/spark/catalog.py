"""What the session catalog answers about Delta tables by name: nothing yet, and that clearly.

Left alone, Spark would plan a statement on such a table past the log, so none may get through.
"""

from __future__ import annotations

from typing import Any

from deltaflow.errors import DeltaUnsupportedOperationException
from deltaflow.spark.dispatcher import dispatcher

_BY_PATH = (
    'Use the path instead: spark.read.format("delta").load(path), df.write.format("delta").save(path), '
    'spark.readStream.format("delta").load(path), .writeStream.format("delta")….start(path)'
)


@dispatcher.handle("catalog.refuse")
def _refuse(request: dict[str, Any]) -> None:
    raise DeltaUnsupportedOperationException(
        f"Cannot {request['what']} {request['table']}: Delta tables by name and in SQL are not supported "
        f"yet. {_BY_PATH}",
        error_class="DELTA_UNSUPPORTED_TABLE_BY_NAME",
    )


def insert_into_view_error() -> DeltaUnsupportedOperationException:
    """What to say when Spark refuses an INSERT into a view over a Delta table for having two paths."""
    return DeltaUnsupportedOperationException(
        "Cannot insert into a view over a Delta table: it would go past the table's log. " + _BY_PATH,
        error_class="DELTA_UNSUPPORTED_INSERT_INTO_VIEW",
    )
