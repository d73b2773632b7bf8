"""Change data capture: streams of changes applied to tables.

`apply_changes` keeps a table that is the newest state, or the history, of what the changes tell.
An envelope reads records of another form: those of `Debezium`, `Flat` ones, which have an operation, full
`Snapshots`, and the `ChangeRows` of another Delta table.
"""

from deltaflow.streaming.cdc.apply_changes import apply_changes
from deltaflow.streaming.cdc.change_rows import ChangeRows
from deltaflow.streaming.cdc.debezium import Debezium
from deltaflow.streaming.cdc.flat import Flat
from deltaflow.streaming.cdc.snapshots import Snapshots

__all__ = ["ChangeRows", "Debezium", "Flat", "Snapshots", "apply_changes"]
