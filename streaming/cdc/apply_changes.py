"""`apply_changes`: the public function."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from deltaflow.batch.delta_table import DeltaTable
from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.interface.arguments import is_connect_session
from deltaflow.log.protocol.intervals import interval_ms
from deltaflow.streaming.cdc.applier import Applier
from deltaflow.streaming.cdc.changes import ByConditions, Current, Envelope
from deltaflow.streaming.cdc.data_columns import DataColumns
from deltaflow.streaming.cdc.target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_OF_PATH = "delta.`"


def apply_changes(
    source: DataFrame,
    target: str | DeltaTable,
    *,
    keys: str | Sequence[str],
    sequence_by: str | Column | None = None,
    deletes: str | Column | None = None,
    truncates: str | Column | None = None,
    envelope: Envelope | None = None,
    scd_type: int = 1,
    columns: str | Sequence[str] | None = None,
    except_columns: str | Sequence[str] = (),
    ignore_null_updates: bool = False,
    track_history_columns: str | Sequence[str] | None = None,
    track_history_except_columns: str | Sequence[str] | None = None,
    delete_horizon: str | timedelta = "7 days",
) -> DataStreamWriter:
    """A writer that applies a stream of changes to a table, each micro-batch in one commit and once.

        query = (
            apply_changes(changes, "/tables/customers", keys=["id"], sequence_by="ts", deletes="op = 'd'")
            .option("checkpointLocation", checkpoint)
            .start()
        )

    `source` is a streaming frame, `target` a path (it has a slash), a name in the catalog, or a DeltaTable;
    the first batch makes the table. The target is the same for every order of the changes and for every way
    to cut them into batches, as long as no two changes of a key have equal sequences. Truncates and snapshots
    are ordered: they come after the changes that they follow.

    `keys`: the columns that name a row. `sequence_by`: an expression (SQL or a Column) of which the greater
    value is newer; of equal ones of a key a delete wins, and of two upserts the one whose columns are greater
    (the first that differs decides). `deletes`, `truncates`: conditions over the source; other records insert
    or update. `envelope` reads records of another form (`deltaflow.streaming.cdc`); it says itself what
    deletes are.

    `scd_type`: 1 keeps the newest state of each key, with its sequence in __SEQUENCE; 2 keeps the history, a
    row for each upsert, valid from __START_AT until before __END_AT. `columns` or `except_columns` choose
    what is stored. `ignore_null_updates`: a null in an upsert leaves the column as it is.
    `track_history_columns` or `track_history_except_columns`: only changes of these columns make new rows of
    history.

    A delete is remembered for `delete_horizon` (a timedelta, or a text such as "7 days"). A change that comes
    later than that, and may be older than a forgotten delete, goes to the table `_changes/late` in the
    target's directory.

    Raises DeltaIllegalArgumentException for arguments that do not fit together, or name columns that the
    source lacks, and Spark's AnalysisException for expressions that do. The query fails with
    DELTA_INVALID_CHANGE for a record without key or sequence.
    """
    data_columns = DataColumns(
        _names(keys),
        None if columns is None else _names(columns),
        _names(except_columns),
        None if track_history_columns is None else _names(track_history_columns),
        None if track_history_except_columns is None else _names(track_history_except_columns),
    )
    _check(bool(data_columns.keys), "keys", "names no column")
    names = [name.lower() for name in data_columns.keys]
    _check(len(set(names)) == len(names), "keys", "names a column twice")
    _check(source.isStreaming, "source", "is no streaming frame; read it with spark.readStream")
    is_of_client = is_connect_session(source.sparkSession)
    _check(not is_of_client, "source", "is of a client of Spark Connect; run the stream in a classic session")
    _check(scd_type in (1, 2), "scd_type", f"is {scd_type!r}; it has to be 1 or 2")
    _check(columns is None or not except_columns, "columns", "is given together with except_columns")
    tracks = (track_history_columns, track_history_except_columns)
    _check(None in tracks, "track_history_columns", "is given together with track_history_except_columns")
    _check(
        scd_type == 2 or tracks == (None, None), "track_history_columns", "is of use with scd_type=2 alone"
    )
    if envelope is None:
        _check(sequence_by is not None, "sequence_by", "is missing: it says which change of a key is newer")
        envelope = ByConditions(_expression(sequence_by), _condition(deletes), _condition(truncates))
        # A name that the source lacks is an error now, and not in the first batch.
        stored = DataColumns(data_columns.keys, data_columns.columns, data_columns.except_columns)
        stored.of(envelope.changes(source, Current(None, lambda: None, stored.keys)), None, by_columns=False)
    else:
        given = sequence_by is None and deletes is None and truncates is None
        _check(
            given,
            "envelope",
            "is given together with sequence_by, deletes or truncates, which it says itself",
        )
    applier = Applier(
        target=_target(target),
        envelope=envelope,
        data_columns=data_columns,
        scd_type=scd_type,
        ignore_null_updates=ignore_null_updates,
        horizon_ms=_horizon_ms(delete_horizon),
    )
    return source.writeStream.foreachBatch(applier)


def _check(holds: bool, argument: str, problem: str) -> None:
    if not holds:
        raise DeltaIllegalArgumentException(
            error_class="DELTA_APPLY_CHANGES_ARGUMENT", argument=argument, problem=problem
        )


def _names(given: str | Sequence[str]) -> list[str]:
    """A str is one name, and no sequence of letters."""
    return [given] if isinstance(given, str) else list(given)


def _expression(given: str | Column | None) -> Column:
    assert given is not None
    return F.expr(given) if isinstance(given, str) else given


def _condition(given: str | Column | None) -> Column | None:
    return None if given is None else _expression(given)


def _horizon_ms(given: str | timedelta) -> int:
    if isinstance(given, timedelta):
        _check(given >= timedelta(0), "delete_horizon", f"is {given}, which is negative")
        return given // timedelta(milliseconds=1)
    try:
        return interval_ms(given)
    except ValueError as error:
        raise DeltaIllegalArgumentException(
            error_class="DELTA_APPLY_CHANGES_ARGUMENT",
            argument="delete_horizon",
            problem=f"is {given!r}, and {error}; give a timedelta, or a text such as '7 days'",
        ) from error


def _target(given: str | DeltaTable) -> Target:
    if isinstance(given, DeltaTable):
        return Target(given._path, None)
    if given.lower().startswith(_OF_PATH) and given.endswith("`"):
        return Target(given[len(_OF_PATH) : -1].replace("``", "`"), None)
    return Target(given, None) if "/" in given else Target(None, given)
