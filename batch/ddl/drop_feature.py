"""ALTER TABLE … DROP FEATURE: removes a table feature from the protocol.

First the newest version loses its traces of the feature. If older versions use it, and readers need it for
them, the log gets three checkpoints without it, and the table the feature checkpointProtection, by which no
writer may delete these checkpoints and keep what is older. With TRUNCATE HISTORY, or while
spark.databricks.delta.tableFeatures.fastDropFeature.enabled is false, those versions have to be gone from the
log instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import pyarrow.compute as pc

from deltaflow.batch.ddl.changes import begin_change
from deltaflow.batch.ddl.drop_column_mapping import is_mapped, remove_column_mapping
from deltaflow.batch.ddl.drop_deletion_vectors import remove_deletion_vectors
from deltaflow.batch.ddl.drop_type_widening import remove_type_changes
from deltaflow.batch.ddl.row_tracking import files_with_row_ids, take_row_ids
from deltaflow.batch.ddl.table_properties import set_properties
from deltaflow.errors import ConcurrentWriteException, DeltaAnalysisException, DeltaError
from deltaflow.log import DeltaLog, DomainMetadata, Metadata, Operation, Snapshot
from deltaflow.log.maintenance.log_cleanup import KEPT_MS
from deltaflow.log.protocol.features import (
    CLUSTERING,
    FEATURES,
    asks_for_v2_checkpoints,
    check_writable,
    supported_features,
)
from deltaflow.log.protocol.in_commit_timestamps import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION
from deltaflow.log.protocol.properties import (
    CHECKPOINTS_PROTECTED_BEFORE,
    DROP_FEATURE_RETENTION_MS,
    ENABLE_ROW_TRACKING,
    FAST_DROP_FEATURE_ENABLED,
    KNOWN,
    LOG_RETENTION_MS,
    MAX_COMMIT_ATTEMPTS,
    ROW_TRACKING_SUSPENDED,
    check_constraints,
)
from deltaflow.log.protocol.protocols import without_feature
from deltaflow.log.protocol.row_tracking import DOMAIN as ROW_TRACKING_DOMAIN
from deltaflow.log.protocol.row_tracking import FEATURE as ROW_TRACKING
from deltaflow.log.protocol.row_tracking import without_row_tracking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"
_ATTEMPTS = 5
_TRACELESS = ("checkConstraints", "identityColumns", "vacuumProtocolCheck")
"""They leave no trace in a table whose metadata does not ask for them."""
_CHECKPOINT_PROTECTION = "checkpointProtection"
_IN_HISTORY = ("columnMapping", "deletionVectors", "typeWidening", "v2Checkpoint")
"""Features whose traces in older versions need a reader that has them."""
_OF_HISTORY = (*_IN_HISTORY, "vacuumProtocolCheck", _CHECKPOINT_PROTECTION)
"""Features for which delta-spark accepts TRUNCATE HISTORY."""
_ENABLES_PARTITION_COLUMNS_IN_FILES = "delta.enableMaterializePartitionColumnsFeature"
_PARTITION_COLUMNS_IN_FILES = "materializePartitionColumns"
_OTHERS = (
    "domainMetadata",
    "inCommitTimestamp",
    CLUSTERING,
    ROW_TRACKING,
    _CHECKPOINT_PROTECTION,
    _PARTITION_COLUMNS_IN_FILES,
)
_REMOVABLE = (*_TRACELESS, *_IN_HISTORY, *_OTHERS)
_BARRIERS = 3
"""So many checkpoints a reader of delta-spark tries, one before the other, until it gives up."""


def drop_feature(
    log: DeltaLog,
    name: str,
    truncate_history: bool,
    settings: Mapping[str, str],
    spark: SparkSession | None = None,
) -> int:
    """Drops a feature, whose name may be in any case. Returns the commit's version.

    The protocol becomes the weakest one that the other features allow. `spark` rewrites files, for
    columnMapping, deletionVectors and typeWidening. A DeltaAnalysisException with a condition
    DELTA_FEATURE_DROP_… says why the feature cannot be dropped, or what to wait for.
    """
    snapshot = log.snapshot()
    feature = _removable(name, truncate_history, snapshot)
    check_writable(snapshot.protocol, snapshot.metadata, log.path, snapshot.version)
    is_fast = not truncate_history and bool(FAST_DROP_FEATURE_ENABLED.of(settings, log.path))
    _check_not_needed(feature, snapshot)
    match feature:
        case "checkConstraints":
            _check_no_constraints(snapshot)
        case "domainMetadata":
            _remove_domains(log, settings)
        case "rowTracking":
            _leave_row_tracking(log, settings)
        case "checkpointProtection":
            _leave_protected_history(log, truncate_history, settings)
    if feature in _IN_HISTORY:
        is_new = _remove_traces(log, feature, settings, spark)
        if is_fast and (is_new or _is_in_history(log, feature)):
            _add_barriers(log, settings)
            version = _commit(log, feature, truncate_history, settings, protects=True)
            log.checkpoint(settings)
            return version
        _leave_history(log, feature, truncate_history, settings, is_new=is_new)
    return _commit(log, feature, truncate_history, settings)


def _removable(given: str, truncate_history: bool, snapshot: Snapshot) -> str:
    """The feature's name in its own case. Raises unless the table has the feature and it can be dropped."""
    known = {name.lower(): name for name in FEATURES}
    supported = {name.lower(): name for name in supported_features(snapshot.protocol)}
    name = given.lower()
    if name in supported and supported[name] in _REMOVABLE:
        if truncate_history and supported[name] not in _OF_HISTORY:
            raise _error("DELTA_FEATURE_DROP_HISTORY_TRUNCATION_NOT_ALLOWED", snapshot, supported[name])
        return supported[name]
    if name in supported:
        raise _error("DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE", snapshot, supported[name])
    if name in KNOWN:
        raise _error("DELTA_FEATURE_DROP_FEATURE_IS_DELTA_PROPERTY", snapshot, given)
    if name in known:
        raise _error("DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT", snapshot, known[name])
    raise _error("DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE", snapshot, given)


def _check_no_constraints(snapshot: Snapshot) -> None:
    # A change of the protocol must not remove constraints.
    names = check_constraints(snapshot.metadata.configuration)
    if names:
        raise DeltaAnalysisException(
            error_class="DELTA_CANNOT_DROP_CHECK_CONSTRAINT_FEATURE",
            constraints=", ".join(names),
            table=snapshot.path,
        )


def _check_not_needed(feature: str, snapshot: Snapshot) -> None:
    for name in sorted(supported_features(snapshot.protocol)):
        if name in FEATURES and FEATURES[name].requires == feature:
            raise DeltaAnalysisException(
                error_class="DELTA_FEATURE_DROP_DEPENDENT_FEATURE",
                feature=feature,
                dependent=name,
                table=snapshot.path,
            )


def _leave_row_tracking(log: DeltaLog, settings: Mapping[str, str]) -> None:
    """No new file gets row ids from now on, and no file of the newest version has some."""
    metadata = log.snapshot().metadata
    enabled = ENABLE_ROW_TRACKING.of(metadata.configuration, log.path)
    if enabled or not ROW_TRACKING_SUSPENDED.of(metadata.configuration, log.path):
        off = {ENABLE_ROW_TRACKING.name: "false", ROW_TRACKING_SUSPENDED.name: "true"}
        set_properties(log, off, settings)
    take_row_ids(log, settings)


def _remove_domains(log: DeltaLog, settings: Mapping[str, str]) -> None:
    transaction, _ = begin_change(log, settings)
    assert transaction.snapshot is not None
    domains = list(transaction.snapshot.domains.values())
    if domains:
        removed: list[DomainMetadata] = [msgspec.structs.replace(domain, removed=True) for domain in domains]
        parameters = {"domainMetadataRemovedCount": str(len(removed))}
        transaction.commit(removed, Operation("DOMAIN METADATA CLEANUP", parameters))


def _remove_traces(
    log: DeltaLog, feature: str, settings: Mapping[str, str], spark: SparkSession | None
) -> bool:
    """Takes the feature out of the newest version. True if there was something to take."""
    if feature == "deletionVectors":
        assert spark is not None
        return remove_deletion_vectors(spark, log, settings)
    if feature == "typeWidening":
        assert spark is not None
        return remove_type_changes(spark, log, settings)
    if feature == "columnMapping":
        was_mapped = is_mapped(log)
        if was_mapped:
            assert spark is not None
            remove_column_mapping(spark, log, settings, unset=True)
        return was_mapped
    if asks_for_v2_checkpoints(log.snapshot().metadata):
        set_properties(log, {"delta.checkpointPolicy": "classic"}, settings)
        return True
    return False


def _add_barriers(log: DeltaLog, settings: Mapping[str, str]) -> None:
    """Checkpoints at new versions: no reader has to look at what is before."""
    for _ in range(_BARRIERS):
        log.start_transaction(settings).commit([], Operation("Empty Commit", {}))
        log.checkpoint(settings)


def _leave_history(
    log: DeltaLog, feature: str, truncate_history: bool, settings: Mapping[str, str], *, is_new: bool
) -> None:
    """Raises while the log has a version that uses the feature."""
    if is_new:
        log.checkpoint(settings)
        raise _error("DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD", log.snapshot(), feature)
    if truncate_history:
        _truncate(log, settings)
    if _is_in_history(log, feature):
        if not truncate_history:
            log.checkpoint(settings)
        raise _error("DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST", log.snapshot(), feature)


def _is_in_history(log: DeltaLog, feature: str) -> bool:
    return log.has_v2_checkpoint_history() if feature == "v2Checkpoint" else log.has_feature_history(feature)


def _truncate(log: DeltaLog, settings: Mapping[str, str]) -> None:
    retention_ms = DROP_FEATURE_RETENTION_MS.of(log.snapshot().metadata.configuration, log.path)
    log.truncate_history(retention_ms, settings)


def _leave_protected_history(log: DeltaLog, truncate_history: bool, settings: Mapping[str, str]) -> None:
    """Raises while the log has a version before the one whose checkpoints are protected."""
    snapshot = log.snapshot()
    if not truncate_history:
        raise _error(
            "DELTA_FEATURE_CAN_ONLY_DROP_CHECKPOINT_PROTECTION_WITH_HISTORY_TRUNCATION",
            snapshot,
            _CHECKPOINT_PROTECTION,
        )
    _truncate(log, settings)
    protected = CHECKPOINTS_PROTECTED_BEFORE.of(snapshot.metadata.configuration, log.path)
    if min(log.available_versions()) < protected:
        raise _error(
            "DELTA_FEATURE_DROP_CHECKPOINT_PROTECTION_WAIT_FOR_RETENTION_PERIOD",
            snapshot,
            _CHECKPOINT_PROTECTION,
        )


def _commit(
    log: DeltaLog,
    feature: str,
    truncate_history: bool,
    settings: Mapping[str, str],
    *,
    protects: bool = False,
) -> int:
    """Commits right after the version that was checked, since a rival may have used the feature.

    `protects`: whether the checkpoints of the versions until then get protected.
    """
    once = {**settings, MAX_COMMIT_ATTEMPTS.name: "1"}
    operation = Operation("DROP FEATURE", {"featureName": feature, "truncateHistory": truncate_history})
    for _ in range(_ATTEMPTS):
        transaction, metadata = begin_change(log, once)
        snapshot = transaction.snapshot
        assert snapshot is not None
        metadata = _without_timestamps(metadata) if feature == "inCommitTimestamp" else metadata
        removed: list[DomainMetadata] = []
        if feature == _PARTITION_COLUMNS_IN_FILES:
            metadata = _with_property(metadata, _ENABLES_PARTITION_COLUMNS_IN_FILES, None)
        if feature == ROW_TRACKING:
            metadata = without_row_tracking(metadata)
            if ROW_TRACKING_DOMAIN in snapshot.domains:
                domain = snapshot.domains[ROW_TRACKING_DOMAIN]
                removed.append(msgspec.structs.replace(domain, removed=True))
        if FEATURES[feature].is_active(metadata) or _has_traces(snapshot, feature):
            break
        if protects:
            metadata = _with_property(metadata, CHECKPOINTS_PROTECTED_BEFORE.name, str(snapshot.version + 1))
        elif feature == _CHECKPOINT_PROTECTION:
            metadata = _with_property(metadata, CHECKPOINTS_PROTECTED_BEFORE.name, None)
        if feature == CLUSTERING:
            transaction.clustering.remove()
        instead = (_CHECKPOINT_PROTECTION,) if protects else ()
        transaction.update_protocol(without_feature(snapshot.protocol, feature, instead=instead), metadata)
        with suppress(ConcurrentWriteException):
            return transaction.commit(removed, operation).version
    raise _error("DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL", log.snapshot(), feature)


def _has_traces(snapshot: Snapshot, feature: str) -> bool:
    """Whether the version uses the feature apart from its metadata."""
    match feature:
        case "domainMetadata":
            return bool(snapshot.domains)
        case "deletionVectors":
            return snapshot.num_deletion_vectors > 0
        case "rowTracking":
            return bool(pc.any(files_with_row_ids(snapshot.files)).as_py())
    return False


def _with_property(metadata: Metadata, name: str, value: str | None) -> Metadata:
    """The metadata with this value of a property, without it for None."""
    configuration = {other: text for other, text in metadata.configuration.items() if other != name}
    if value is not None:
        configuration[name] = value
    return msgspec.structs.replace(metadata, configuration=configuration)


def _without_timestamps(metadata: Metadata) -> Metadata:
    configuration = {
        name: "false" if name == _IN_COMMIT_TIMESTAMPS else value
        for name, value in metadata.configuration.items()
        if name not in (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP)
    }
    return msgspec.structs.replace(metadata, configuration=configuration)


def _error(error_class: str, snapshot: Snapshot, feature: str) -> DeltaError:
    configuration = snapshot.metadata.configuration
    truncated_retention = configuration.get(DROP_FEATURE_RETENTION_MS.name, "24 hours")
    if DROP_FEATURE_RETENTION_MS.of(configuration, snapshot.path) < KEPT_MS:
        truncated_retention += ", which is one minute at least on other storages than local disks"
    return DeltaAnalysisException(
        error_class=error_class,
        feature=feature,
        retention=configuration.get(LOG_RETENTION_MS.name, "30 days"),
        truncated_retention=truncated_retention,
        table=snapshot.path,
    )
