"""ALTER TABLE … SET and UNSET TBLPROPERTIES: one commit that changes a table's configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from deltaflow.batch.ddl.changes import begin_change, commit_change
from deltaflow.batch.ddl.row_tracking import give_row_ids
from deltaflow.errors import DeltaAnalysisException
from deltaflow.log import DeltaLog, Metadata, Operation, OptimisticTransaction
from deltaflow.log.protocol.configuration import canonical_name, checked_name
from deltaflow.log.protocol.properties import CONSTRAINTS_PREFIX, ENABLE_ROW_TRACKING

_COMMENT = "comment"
_RESERVED = {"location": "DELTA_CANNOT_CHANGE_LOCATION", "provider": "DELTA_CANNOT_CHANGE_PROVIDER"}


def set_properties(log: DeltaLog, properties: Mapping[str, str], settings: Mapping[str, str]) -> int:
    """Sets properties of a table, and its description by `comment`. Returns the commit's version.

    `settings` are the session's. Raises for names and values that Delta refuses.
    """
    transaction, metadata, checked = _setting(log, properties, settings)
    new = transaction.metadata
    assert new is not None
    tags = {}
    if ENABLE_ROW_TRACKING.of(new.configuration, log.path) and not ENABLE_ROW_TRACKING.of(
        metadata.configuration, log.path
    ):
        give_row_ids(log, new.configuration, settings)
        transaction, _, checked = _setting(log, properties, settings)
        if len(checked) == 1:
            tags = {"rowTrackingEnablementOnly": "true"}
    return transaction.commit(
        [], Operation("SET TBLPROPERTIES", {"properties": _json(checked)}, tags=tags)
    ).version


def check_settable(log: DeltaLog, properties: Mapping[str, str], settings: Mapping[str, str]) -> None:
    """Raises what `set_properties` would raise for names and values, and commits nothing."""
    _setting(log, properties, settings)


def _setting(
    log: DeltaLog, properties: Mapping[str, str], settings: Mapping[str, str]
) -> tuple[OptimisticTransaction, Metadata, dict[str, str]]:
    """The transaction that is to set the properties, the metadata before it, and their canonical names."""
    transaction, metadata = begin_change(log, settings)
    _refuse_reserved_names(properties, log.path)
    checked = {checked_name(name, value, settings, log.path): value for name, value in properties.items()}
    new = {name: value for name, value in checked.items() if name != _COMMENT}
    transaction.update_metadata(
        msgspec.structs.replace(
            metadata,
            description=checked.get(_COMMENT, metadata.description),
            configuration={**metadata.configuration, **new},
        )
    )
    return transaction, metadata, checked


def unset_properties(
    log: DeltaLog, names: Sequence[str], if_exists: bool, settings: Mapping[str, str]
) -> int:
    """Removes properties of a table, or its description by `comment`. Returns the commit's version.

    DELTA_UNSET_NON_EXISTENT_PROPERTY for a property that is not set, unless `if_exists`.
    """
    transaction, metadata = begin_change(log, settings)
    canonical = _unsettable(metadata, names, if_exists, log.path)
    kept = {name: value for name, value in metadata.configuration.items() if name not in canonical}
    return commit_change(
        transaction,
        msgspec.structs.replace(
            metadata,
            description=None if _COMMENT in canonical else metadata.description,
            configuration=kept,
        ),
        Operation("UNSET TBLPROPERTIES", {"properties": _json(canonical), "ifExists": _json(if_exists)}),
    )


def check_unsettable(log: DeltaLog, names: Sequence[str], if_exists: bool) -> None:
    """Raises what `unset_properties` would raise, and commits nothing."""
    _unsettable(log.snapshot().metadata, names, if_exists, log.path)


def _unsettable(metadata: Metadata, names: Sequence[str], if_exists: bool, path: str) -> list[str]:
    """The canonical names of properties that can be removed."""
    canonical = [canonical_name(name) for name in names]
    present = {*metadata.configuration, *([] if metadata.description is None else [_COMMENT])}
    for name in canonical:
        if name not in present and not if_exists:
            raise DeltaAnalysisException(
                error_class="DELTA_UNSET_NON_EXISTENT_PROPERTY",
                property=name,
                table_name=path,
                table=path,
            )
    return canonical


def _refuse_reserved_names(properties: Mapping[str, str], path: str) -> None:
    for name in properties:
        if name.lower().startswith(CONSTRAINTS_PREFIX):
            raise DeltaAnalysisException(error_class="DELTA_ADD_CONSTRAINTS", table=path)
        if name in _RESERVED:
            raise DeltaAnalysisException(error_class=_RESERVED[name], table=path)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
