"""What Spark refuses for us of tables by name, in words that help."""

from __future__ import annotations

from deltaflow.errors import DeltaUnsupportedOperationException


def insert_into_view_error() -> DeltaUnsupportedOperationException:
    """What to say when Spark refuses an INSERT into a view over a Delta table for having two paths."""
    return DeltaUnsupportedOperationException(
        "Cannot insert into a view over a Delta table: it would go past the table's log. Insert into the "
        "table itself, by its name or as delta.`path`. (Spark 4.0 takes the table itself for one if the "
        "statement's query reads it under the same name: use DataFrame.writeTo or insertInto there.)",
        error_class="DELTA_UNSUPPORTED_INSERT_INTO_VIEW",
    )
