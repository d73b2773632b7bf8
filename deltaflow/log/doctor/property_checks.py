"""Checks of a table's properties."""

from __future__ import annotations

from collections.abc import Iterator

from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.log.doctor.finding import Finding, Severity
from deltaflow.log.protocol.properties import KNOWN
from deltaflow.log.replay.snapshot import Snapshot


def check_properties(snapshot: Snapshot) -> Iterator[Finding]:
    """Properties of the newest version whose values are none: whatever asks for one of them fails."""
    configuration = snapshot.metadata.configuration
    for known in KNOWN.values():
        try:
            known.of(configuration, snapshot.path)
        except DeltaIllegalArgumentException as error:
            yield Finding(
                check="property-wrong",
                severity=Severity.ERROR,
                what=f"A table property has a wrong value, and what asks for it fails: {error.message}",
                repair=f"ALTER TABLE delta.`{snapshot.path}` UNSET TBLPROPERTIES ('{known.name}'), or SET it "
                "to another value.",
                version=snapshot.version,
            )
