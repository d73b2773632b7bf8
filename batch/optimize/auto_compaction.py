"""autoCompact: after a commit, small files of the partitions that it added to are rewritten into larger ones.

The table's newest version alone decides what is rewritten. Other writers go first: after a lost race the
rewrite is planned anew and tried again, a few times. Any other error is logged as a warning. The commit
stands.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltaflow.batch.files.partition_predicates import partition_predicates
from deltaflow.batch.optimize.bin_rewrite import BinRewrite
from deltaflow.batch.optimize.compaction import PartitionValues, bins_after_commit
from deltaflow.batch.optimize.optimize_metrics import describe
from deltaflow.batch.options import boolean_option, option
from deltaflow.errors import DeltaConcurrentModificationException, traceback_text
from deltaflow.log import AddFile, DeltaLog, OptimisticTransaction
from deltaflow.log.protocol.properties import (
    AUTO_COMPACT,
    AUTO_COMPACT_ENABLED,
    AUTO_COMPACT_MAX_FILE_SIZE,
    AUTO_COMPACT_MIN_FILE_SIZE,
    AUTO_COMPACT_MIN_NUM_FILES,
    AUTO_OPTIMIZE,
)
from deltaflow.spark.expressions.frames import is_cancelled_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)

_ATTEMPTS = 3


def auto_compaction(
    transaction: OptimisticTransaction, options: Mapping[str, str], file_options: Mapping[str, str]
) -> AutoCompaction | None:
    """The compaction that follows a write, by its option, the session's setting or the table's property.

    `file_options` are the options of the write's files. Raises DeltaIllegalArgumentException for a wrong
    value of the option, setting or property.
    """
    session, path = transaction.session, transaction.path
    assert transaction.metadata is not None
    configuration = transaction.metadata.configuration
    of_table = AUTO_OPTIMIZE.of(configuration, path) or AUTO_COMPACT.of(configuration, path)
    of_session = AUTO_COMPACT_ENABLED.of(session, path)
    is_wanted = bool(of_table) if of_session is None else of_session
    if option(options, "autoCompact") is not None:
        is_wanted = boolean_option(options, "autoCompact")
    if not is_wanted:
        return None
    target_size = AUTO_COMPACT_MAX_FILE_SIZE.of(session, path)
    smaller_than = AUTO_COMPACT_MIN_FILE_SIZE.of(session, path)
    return AutoCompaction(
        path,
        session,
        file_options,
        AUTO_COMPACT_MIN_NUM_FILES.of(session, path),
        target_size if smaller_than is None else smaller_than,
        target_size,
    )


@dataclass(frozen=True)
class AutoCompaction:
    """The rules of one table's compaction, with sizes in bytes. See `bins_after_commit`."""

    path: str
    session: Mapping[str, str]
    file_options: Mapping[str, str]
    min_num_files: int
    smaller_than: int
    target_size: int

    def after_commit(self, adds: Sequence[AddFile]) -> AutoRewrite | None:
        """The rewrite that is due after a commit of these files; None if nothing is due."""
        changed = frozenset(frozenset(add.partition_values.items()) for add in adds)
        first = self.plan(changed)
        return None if first is None else AutoRewrite(self, changed, first)

    def plan(self, changed: frozenset[PartitionValues]) -> BinRewrite | None:
        """The rewrite that is due in these partitions of the table's newest version. Raises nothing."""
        if not changed:
            return None
        try:
            transaction = DeltaLog.for_table(self.path).start_transaction(self.session)
            snapshot = transaction.snapshot
            if snapshot is None or snapshot.num_files < self.min_num_files:
                return None
            bins = bins_after_commit(
                snapshot.files,
                tuple(snapshot.physical_partition_columns.values()),
                changed,
                min_num_files=self.min_num_files,
                smaller_than=self.smaller_than,
                target_size=self.target_size,
            )
            if not bins:
                return None
            description = describe(partition_predicates(snapshot, bins), auto=True)
            return BinRewrite(transaction, bins, description, self.file_options)
        # No error may look like a failure of the commit, which stands.
        except Exception as error:
            _LOG.warning(
                "%s: autoCompact could not look at the table's files\n%s",
                self.path,
                traceback_text(error),
            )
            return None


class AutoRewrite:
    """The rewrite after a commit. See deltaflow.spark.write.file_write.FollowUp."""

    def __init__(
        self, compaction: AutoCompaction, changed: frozenset[PartitionValues], first: BinRewrite
    ) -> None:
        self._compaction = compaction
        self._changed = changed
        self._rewrite: BinRewrite | None = first
        self._is_cancelled = False

    def run(self, spark: SparkSession) -> None:
        """Rewrites the files; after a lost race plans the rewrite anew and tries again. Raises nothing."""
        path = self._compaction.path
        for _ in range(_ATTEMPTS):
            if self._rewrite is None or self._is_cancelled:
                return
            try:
                self._rewrite.run(spark)
                return
            except DeltaConcurrentModificationException as error:
                _LOG.debug("%s: autoCompact lost a race: %s", path, error)
            except Exception as error:
                level = logging.DEBUG if self._is_cancelled or is_cancelled_job(error) else logging.WARNING
                _LOG.log(level, "%s: autoCompact failed, and left the table unchanged: %s", path, error)
                return
            self._rewrite = self._compaction.plan(self._changed)

    def cancel(self) -> None:
        """Keeps the rewrite from committing from now on."""
        self._is_cancelled = True
        if self._rewrite is not None:
            self._rewrite.cancel()
