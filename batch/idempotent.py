"""Idempotent writes: a write is skipped if the table has a write of the same application and number.

The application (txnAppId) and the number (txnVersion) come from the write's options, or else from the
session's settings. The commit records them in a `txn` action, as delta-spark's DeltaCommand does.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from deltaflow.batch.options import option
from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.log import OptimisticTransaction, SetTransaction
from deltaflow.log.protocol.properties import TXN_VERSION_AUTO_RESET_ENABLED

_LOG = logging.getLogger(__name__)

OPTIONS = ("txnAppId", "txnVersion")
SESSION_SETTINGS = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")


@dataclass(frozen=True)
class IdempotentWrite:
    """The application and the number of one write."""

    app_id: str
    version: int
    settings_to_unset: tuple[str, ...]
    """Settings of the session that hold for this write alone: they are unset when it is done or skipped."""

    def record_read_and_compare(self, transaction: OptimisticTransaction) -> bool:
        """Records the read of the application's number, so that a rival with the same application is a
        conflict. Returns whether the table has this write or a later one."""
        newest = transaction.record_read_of_txn(self.app_id)
        if newest is None or newest < self.version:
            return False
        _LOG.warning(
            "%s: skipped the write with txnVersion %s of txnAppId %s: the table has version %s of it already",
            transaction.path,
            self.version,
            self.app_id,
            newest,
        )
        return True

    def action(self, transaction: OptimisticTransaction) -> SetTransaction:
        """The `txn` action of the commit."""
        return SetTransaction(app_id=self.app_id, version=self.version, last_updated=transaction.log.clock())


def idempotent_write(
    options: Mapping[str, str], settings: Mapping[str, str], path: str
) -> IdempotentWrite | None:
    """The application and number that the options or the session give to a write; None without them.

    DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS if only one of the two is given, DELTA_ILLEGAL_OPTION if the
    version is no number.
    """
    given = [option(options, name) for name in OPTIONS]
    version_name, missing = (
        OPTIONS[1],
        "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS.MISSING_DATAFRAME_WRITE_OPTIONS",
    )
    to_unset: tuple[str, ...] = ()
    if given == [None, None]:
        given = [settings.get(name) for name in SESSION_SETTINGS]
        version_name = SESSION_SETTINGS[1]
        missing = "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS.MISSING_SESSION_CONFS"
        if TXN_VERSION_AUTO_RESET_ENABLED.of(settings, path):
            to_unset = (version_name,)
    app_id, version = given
    if app_id is None and version is None:
        return None
    if app_id is None or version is None:
        raise DeltaIllegalArgumentException(error_class=missing, table=path)
    if not (version.isascii() and version.isdigit() and int(version) < 2**63):
        raise DeltaIllegalArgumentException(
            error_class="DELTA_ILLEGAL_OPTION",
            input=version,
            name=version_name,
            explain="must be a non-negative integer",
            table=path,
        )
    return IdempotentWrite(app_id, int(version), to_unset)
