"""What Spark refuses for us of tables by name, in words that help."""

from __future__ import annotations

from deltaflow.errors import DeltaUnsupportedOperationException


def insert_into_view_error() -> DeltaUnsupportedOperationException:
    """What to say when Spark refuses an INSERT into a view over a Delta table for having two paths."""
    return DeltaUnsupportedOperationException(
        "Cannot insert into a view over a Delta table: it would go past the table's log. Insert into the "
        "table itself, by its name or as delta.`path`.",
        error_class="DELTA_UNSUPPORTED_INSERT_INTO_VIEW",
    )
