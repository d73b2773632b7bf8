"""Change data capture: streams of changes applied to tables.

`apply_changes` keeps a table that is the newest state, or the history, of what the changes tell.
"""

from deltaflow.streaming.cdc.apply_changes import apply_changes

__all__ = ["apply_changes"]
