"""The part of a log that makes one version: its newest usable checkpoint and the commits after it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

from deltaflow.errors import CorruptLogError, StoreError
from deltaflow.log.protocol.commit import Commit
from deltaflow.log.protocol.features import has_in_commit_timestamps
from deltaflow.log.replay.checkpoint_reader import file_state_of, read_checkpoint
from deltaflow.log.replay.last_checkpoint import hinted_version
from deltaflow.log.replay.listing import Checkpoint, Listing
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.state import TableState

_LOG = logging.getLogger(__name__)
_MOST_CLEAN_UPS = 3
"""While one version, or the newest one, is read."""


@dataclass(frozen=True, slots=True)
class LogSegment:
    """A checkpoint (None: nothing is before version 0) and the commits after it up to `version`."""

    log: LogFiles
    listing: Listing
    version: int
    checkpoint: Checkpoint | None

    def base(self) -> TableState:
        """The state at the checkpoint; CorruptLogError if the checkpoint cannot be read."""
        if self.checkpoint is None:
            return TableState(file_state=file_state_of(self.log))
        state = read_checkpoint(self.log, self.checkpoint)
        own_commit = self.listing.commits.get(self.checkpoint.version)
        if self.checkpoint.version < self.version or own_commit is None:
            return state
        timestamp_ms = own_commit.modification_time_ms
        if (
            state.protocol is not None
            and state.metadata is not None
            and has_in_commit_timestamps(state.protocol, state.metadata)
        ):
            (commit,) = self.log.commits(self.listing, self.version, self.version)
            timestamp_ms = commit.timestamp_ms
        return replace(state, timestamp_ms=timestamp_ms)

    def commits(self) -> Iterator[Commit]:
        """The commits after the checkpoint, read lazily; CorruptLogError at once if some are missing."""
        first = 0 if self.checkpoint is None else self.checkpoint.version + 1
        return self.log.commits_or_compactions(self.listing, first, self.version)


def list_newest(log: LogFiles) -> Listing:
    """A listing in which the newest version can be built: from the hinted checkpoint on, if it is there."""
    hint = hinted_version(log)
    listing = log.list(hint)
    if hint == 0 or any(checkpoint.version >= hint for checkpoint in listing.checkpoints):
        return listing
    _LOG.warning("No complete checkpoint of version %d, which _last_checkpoint names, in %s", hint, log.path)
    return log.list(0)


def load_newest(log: LogFiles) -> tuple[Listing, TableState] | None:
    """The newest version, and a listing that has it; None without a version.

    Beside commits that go on, log clean-up may delete it while it is read: then a newer one is read.
    CorruptLogError as of `load_state`.
    """
    listing = list_newest(log)
    for _ in range(_MOST_CLEAN_UPS):
        if listing.latest_version < 0:
            return None
        try:
            return listing, load_state(log, listing, listing.latest_version)
        except CorruptLogError:
            newer = list_newest(log)
            if newer.latest_version <= listing.latest_version:
                raise
            listing = newer
    return listing, load_state(log, listing, listing.latest_version)


def load_state(log: LogFiles, listing: Listing, version: int) -> TableState:
    """The state at a version of the listing, from the newest checkpoint that can be read.

    A checkpoint that is broken, or that the storage fails to give, is passed over, with a warning, for an
    earlier one. If log clean-up deletes files of the listing meanwhile, the version is built from those that
    are there then. CorruptLogError names the commits that are missing, or the checkpoint without which they
    are needed; StoreError if the storage failed to give that.
    """
    for _ in range(_MOST_CLEAN_UPS):
        try:
            return _load_state(log, listing, version)
        except CorruptLogError:
            newer = log.list(0)
            if listing.file_names() <= newer.file_names() or version not in newer.rebuildable_versions():
                raise
            listing = newer
    return _load_state(log, listing, version)


def _load_state(log: LogFiles, listing: Listing, version: int) -> TableState:
    passed_over: dict[Checkpoint, CorruptLogError | StoreError] = {}
    while True:
        usable = (
            checkpoint
            for checkpoint in reversed(listing.checkpoints)
            if checkpoint.version <= version and checkpoint not in passed_over
        )
        segment = LogSegment(log, listing, version, next(usable, None))
        if segment.checkpoint is None and listing.start > 0:
            listing = log.list(0)
            continue
        try:
            commits = segment.commits()
        except CorruptLogError as error:
            if not passed_over:
                raise
            for unreadable in passed_over.values():
                if isinstance(unreadable, StoreError):
                    raise unreadable from unreadable.__cause__
            damage = " ".join(unreadable.message for unreadable in passed_over.values())
            raise CorruptLogError(
                f"{error.message} They are needed because a checkpoint is damaged: if log clean-up deleted "
                f"them, restore the checkpoint: {damage}",
                error_class=error.error_class,
                table=error.table,
                missing=error.parameters["missing"],
            ) from error
        try:
            base = segment.base()
        except (CorruptLogError, StoreError) as error:
            if segment.checkpoint is None:
                raise
            _LOG.warning("An earlier checkpoint, or commits alone, are used: %s", error)
            passed_over[segment.checkpoint] = error
        else:
            return base.after(commits, log.path)
