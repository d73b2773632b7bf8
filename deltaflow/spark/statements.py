"""SQL statements on Delta tables: which there are, and who answers them.

The JVM asks once which kinds of statement concern us and where their table is named, and for each
statement on a Delta table, when Spark runs it, for its rows. A kind is the name of the class of Spark's
parsed plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from deltaflow.spark.dispatcher import dispatcher


class NamedTable(msgspec.Struct, frozen=True):
    """The Delta table that a statement names, or the view over one."""

    name: str
    path: str | None
    """None for a view."""


@dataclass(frozen=True)
class Statement:
    """A statement on a Delta table."""

    kind: str
    table: NamedTable | None
    """None where no Delta table is named, but something else makes the statement ours."""
    fields: Mapping[str, Any]
    """What Spark parsed: the fields of its plan, options as value or None, types as their JSON."""
    settings: Mapping[str, str]
    """The session's settings spark.databricks.delta.*."""


Rows = Sequence[Sequence[str | bool | int | None]]
Run = Callable[[Statement], Rows]
Concerns = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class _Kind:
    run: Run
    table: str | None
    views: bool
    changes: bool
    concerns: Concerns | None


_kinds: dict[str, _Kind] = {}


def statement(
    *kinds: str,
    table: str | None = "table",
    views: bool = False,
    changes: bool = False,
    concerns: Concerns | None = None,
) -> Callable[[Run], Run]:
    """Decorator: the function runs statements of these kinds on Delta tables, and answers with their rows.

    `table` is the field of the parsed plan that names the table, or has the relation over it. `views`: also
    on views over Delta tables. `changes`: the table is another one afterwards. `concerns` tells by the
    plan's fields whether a statement is ours that names no Delta table.
    """

    def add(function: Run) -> Run:
        for kind in kinds:
            _kinds[kind] = _Kind(function, table, views, changes, concerns)
        return function

    return add


@dispatcher.handle("statement.kinds")
def _describe_kinds(request: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {"table": kind.table, "views": kind.views, "asks": kind.concerns is not None}
        for name, kind in _kinds.items()
    }


@dispatcher.handle("statement.concerns")
def _concerns(request: dict[str, Any]) -> dict[str, Any]:
    concerns = _kinds[request["kind"]].concerns
    return {"concerns": concerns is not None and concerns(request["statement"])}


@dispatcher.handle("statement.run")
def _run(request: dict[str, Any]) -> dict[str, Any]:
    table = msgspec.json.decode(request["table"], type=NamedTable | None)
    kind = _kinds[request["kind"]]
    rows = kind.run(Statement(request["kind"], table, request["statement"], request["settings"]))
    # What Spark has cached of the table is read anew.
    changed = table.path if kind.changes and table is not None else None
    return {"rows": rows, "changed": changed}
