"""ALTER TABLE … DROP FEATURE: removes a table feature from the protocol.

First the newest version loses its traces of the feature. If readers of older versions need the feature, those
versions have to be gone from the log. delta-spark can drop such features at once with the feature
checkpointProtection, which deltaflow lacks: it behaves as delta-spark does under
spark.databricks.delta.tableFeatures.fastDropFeature.enabled=false.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from deltaflow.batch.ddl.table_properties import begin_change, set_properties
from deltaflow.errors import ConcurrentWriteException, DeltaAnalysisException, DeltaError
from deltaflow.log import DeltaLog, DomainMetadata, Metadata, Operation, Snapshot
from deltaflow.log.protocol.features import (
    FEATURES,
    asks_for_v2_checkpoints,
    check_writable,
    supported_features,
)
from deltaflow.log.protocol.in_commit_timestamps import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION
from deltaflow.log.protocol.properties import (
    DROP_FEATURE_RETENTION_MS,
    KNOWN,
    LOG_RETENTION_MS,
    MAX_COMMIT_ATTEMPTS,
)
from deltaflow.log.protocol.protocols import without_feature

_IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"
_CONSTRAINTS_PREFIX = "delta.constraints."
_ATTEMPTS = 5
_TRACELESS = ("checkConstraints", "identityColumns", "vacuumProtocolCheck")
"""They leave no trace in a table whose metadata does not ask for them."""
_REMOVABLE = (*_TRACELESS, "domainMetadata", "inCommitTimestamp", "v2Checkpoint")
_OF_HISTORY = ("v2Checkpoint", "vacuumProtocolCheck")
"""Features for readers, for which delta-spark accepts TRUNCATE HISTORY."""


def drop_feature(log: DeltaLog, name: str, truncate_history: bool, settings: Mapping[str, str]) -> int:
    """Drops a feature, whose name may be in any case. Returns the commit's version.

    The protocol becomes the weakest one that the other features allow. A DeltaAnalysisException with a
    condition DELTA_FEATURE_DROP_… says why the feature cannot be dropped, or what to wait for.
    """
    snapshot = log.snapshot()
    feature = _removable(name, truncate_history, snapshot)
    check_writable(snapshot.protocol, snapshot.metadata, log.path, snapshot.version)
    match feature:
        case "checkConstraints":
            _check_no_constraints(snapshot)
        case "domainMetadata":
            _remove_domains(log, settings)
        case "v2Checkpoint":
            _leave_v2_checkpoints(log, truncate_history, settings)
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
    names = [name for name in snapshot.metadata.configuration if name.startswith(_CONSTRAINTS_PREFIX)]
    if names:
        constraints = ", ".join(name.removeprefix(_CONSTRAINTS_PREFIX) for name in names)
        raise DeltaAnalysisException(
            error_class="DELTA_CANNOT_DROP_CHECK_CONSTRAINT_FEATURE",
            constraints=constraints,
            table=snapshot.path,
        )


def _remove_domains(log: DeltaLog, settings: Mapping[str, str]) -> None:
    transaction, _ = begin_change(log, settings)
    assert transaction.snapshot is not None
    domains = list(transaction.snapshot.domains.values())
    if domains:
        removed: list[DomainMetadata] = [msgspec.structs.replace(domain, removed=True) for domain in domains]
        parameters = {"domainMetadataRemovedCount": str(len(removed))}
        transaction.commit(removed, Operation("DOMAIN METADATA CLEANUP", parameters))


def _leave_v2_checkpoints(log: DeltaLog, truncate_history: bool, settings: Mapping[str, str]) -> None:
    """Raises while the log has a V2 checkpoint, or a version at which one may be written."""
    if asks_for_v2_checkpoints(log.snapshot().metadata):
        set_properties(log, {"delta.checkpointPolicy": "classic"}, settings)
        log.checkpoint(settings)
        raise _error("DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD", log.snapshot(), "v2Checkpoint")
    if truncate_history:
        log.truncate_history(DROP_FEATURE_RETENTION_MS.of(log.snapshot().metadata.configuration, log.path))
    if log.has_v2_checkpoint_history():
        log.checkpoint(settings)
        raise _error("DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST", log.snapshot(), "v2Checkpoint")


def _commit(log: DeltaLog, feature: str, truncate_history: bool, settings: Mapping[str, str]) -> int:
    """Commits right after the version that was checked, since a rival may have used the feature."""
    once = {**settings, MAX_COMMIT_ATTEMPTS.name: "1"}
    operation = Operation("DROP FEATURE", {"featureName": feature, "truncateHistory": truncate_history})
    for _ in range(_ATTEMPTS):
        transaction, metadata = begin_change(log, once)
        snapshot = transaction.snapshot
        assert snapshot is not None
        metadata = _without_timestamps(metadata) if feature == "inCommitTimestamp" else metadata
        if FEATURES[feature].is_active(metadata) or (feature == "domainMetadata" and snapshot.domains):
            break
        transaction.update_protocol(without_feature(snapshot.protocol, feature), metadata)
        with suppress(ConcurrentWriteException):
            return transaction.commit([], operation).version
    raise _error("DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL", log.snapshot(), feature)


def _without_timestamps(metadata: Metadata) -> Metadata:
    configuration = {
        name: "false" if name == _IN_COMMIT_TIMESTAMPS else value
        for name, value in metadata.configuration.items()
        if name not in (ENABLEMENT_VERSION, ENABLEMENT_TIMESTAMP)
    }
    return msgspec.structs.replace(metadata, configuration=configuration)


def _error(error_class: str, snapshot: Snapshot, feature: str) -> DeltaError:
    configuration = snapshot.metadata.configuration
    return DeltaAnalysisException(
        error_class=error_class,
        feature=feature,
        retention=configuration.get(LOG_RETENTION_MS.name, "30 days"),
        truncated_retention=configuration.get(DROP_FEATURE_RETENTION_MS.name, "24 hours"),
        table=snapshot.path,
    )
