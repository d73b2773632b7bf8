"""A history whose rows are the changes of some columns: upserts that change none of them are shown in the row
that is valid at that time.

The target shows less than what is needed to find the place of an older change, so the whole history is kept
in a table beside it, and the target's rows of a key follow from that.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from deltaflow.streaming.cdc.changes import END_AT, START_AT, ChangeColumns, column, comparable
from deltaflow.streaming.cdc.history_rows import REMOVED, REPLACED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RUN, _LAST, _NEW, _OLD, _START = "\0run", "\0last", "\0new", "\0old", "\0start"


def shown_rows(
    history: DataFrame, target: DataFrame, columns: ChangeColumns, tracked: Sequence[str]
) -> DataFrame:
    """The rows of the target that are to be added, changed or removed, so that it shows the history.

    Both frames have all rows of the keys that changes were about.
    """
    keys = [column(key) for key in columns.key_names]
    in_order = Window.partitionBy(*keys).orderBy(START_AT)
    history, target = _with_values(history, columns), _with_values(target, columns)
    wanted = {name.lower() for name in tracked}
    same = [F.lag(END_AT).over(in_order).eqNullSafe(F.col(START_AT))]
    shown_changes = comparable([value for value in columns.values if value.name.lower() in wanted])
    same.append(shown_changes.eqNullSafe(F.lag(shown_changes).over(in_order)))
    begins = ~F.coalesce(functools.reduce(operator.and_, same), F.lit(False))
    runs = history.withColumn("\0begins", begins.cast("int")).withColumn(
        _RUN, F.sum("\0begins").over(in_order)
    )
    values = [column(value.name) for value in columns.values]
    # A row that has always been valid has none: in a struct it is one, and the least.
    start = F.struct(F.col(START_AT).alias("at"))
    shown = (
        runs.groupBy(*keys, _RUN)
        .agg(F.min(start).alias(_START), F.max_by(F.struct(*values, END_AT), start).alias(_LAST))
        .select(*keys, _START, F.lit(True).alias(_NEW), F.col(f"`{_LAST}`.*"))
    )
    all_values = comparable(columns.values)
    old = target.select(*keys, start.alias(_START), F.col(END_AT).alias("\0old_end"), all_values.alias(_OLD))
    new = shown.withColumn("\0values", all_values)
    joined = new.join(old, [*columns.key_names, _START], "full")
    removed = F.col(_NEW).isNull()
    is_same = F.col(END_AT).eqNullSafe(F.col("\0old_end")) & F.col("\0values").eqNullSafe(F.col(_OLD))
    rows = joined.where(removed | ~is_same)
    start_at = F.col(_START).getField("at").alias(START_AT)
    # What the target has beside the history is its own.
    return rows.select(*keys, *values, start_at, END_AT, removed.alias(REMOVED), F.lit(False).alias(REPLACED))


def _with_values(rows: DataFrame, columns: ChangeColumns) -> DataFrame:
    """The rows with all these columns; those that they lack are null."""
    known = {name.lower() for name in rows.columns}
    lacking = [value for value in columns.values if value.name.lower() not in known]
    return rows.select("*", *[F.lit(None).cast(value.dataType).alias(value.name) for value in lacking])
