"""Change data capture: streams of changes applied to tables.

`apply_changes` keeps a table that is the newest state, or the history, of what the changes tell.
An envelope reads records of another form: those of `Debezium`, `Flat` ones, which have an operation, and full
`Snapshots`.
"""

from deltaflow.streaming.cdc.apply_changes import apply_changes
from deltaflow.streaming.cdc.debezium import Debezium
from deltaflow.streaming.cdc.flat import Flat
from deltaflow.streaming.cdc.snapshots import Snapshots

__all__ = ["Debezium", "Flat", "Snapshots", "apply_changes"]
