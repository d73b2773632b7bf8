"""A better error for an INSERT that Spark refuses."""

from __future__ import annotations

from deltaflow.errors import DeltaUnsupportedOperationException


def insert_into_view_error() -> DeltaUnsupportedOperationException:
    """The error for an INSERT into a view over a Delta table, which Spark refuses for its two paths."""
    return DeltaUnsupportedOperationException(
        "Cannot insert into a view over a Delta table: it would go past the table's log. Insert into the "
        "table itself, by its name or as delta.`path`. (Spark 4.0 takes the table itself for one if the "
        "statement's query reads it under the same name: use DataFrame.writeTo or insertInto there.)",
        error_class="DELTA_UNSUPPORTED_INSERT_INTO_VIEW",
    )
