"""Checks of a log's files: commits that are missing, broken or overwritten, the hint, and checksums."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from deltaflow.errors import CorruptLogError, StoreError
from deltaflow.log.doctor.finding import Finding, Severity
from deltaflow.log.progress import Progress
from deltaflow.log.protocol.commit import commit_name, read_commit
from deltaflow.log.replay.last_checkpoint import LAST_CHECKPOINT, hinted_version
from deltaflow.log.replay.listing import Listing
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.snapshot import Snapshot
from deltaflow.log.replay.version_checksum import checksum_differences
from deltaflow.log.untrusted_json import decode_json

_THREADS = 8
_AT_ONCE = 256
_CHECKSUM_NAME = re.compile(r"(\d{20})\.crc")
_RESTORE = "Restore these commits from a copy, such as an older version of the objects in the bucket"
_WRITE_CHECKPOINT = "write a new checkpoint: deltaflow.log.DeltaLog.for_table(path).checkpoint()"


def has_gone(log: LogFiles, name: str) -> bool:
    """Whether a file that a listing of the log has named is not there any more, as after its clean-up."""
    return not log.store.exists(f"{log.directory}/{name}")


def checksum_versions(log: LogFiles) -> set[int]:
    """The versions of which there is a checksum."""
    names = (_CHECKSUM_NAME.fullmatch(status.name) for status in log.store.list_from(log.directory, "0"))
    return {int(name[1]) for name in names if name}


def check_gaps(listing: Listing) -> Iterator[Finding]:
    """Commits that are missing between others, or before the first one without a checkpoint there."""
    latest, rebuildable = listing.latest_version, listing.rebuildable_versions()
    is_readable = latest in rebuildable
    first = min(listing.commits, default=latest)
    gaps = listing.missing_versions(first, latest)
    if not gaps and not is_readable:
        gaps = [(0, first - 1)]
    restore = f"{_RESTORE}. "
    for begin, end in gaps:
        named = _named(begin, end)
        if is_readable:
            yield Finding(
                check="log-gap",
                severity=Severity.WARNING,
                what=f"{named} missing. Version {latest} can be read, because a checkpoint bridges the gap, "
                "but streams and time travel to these versions fail.",
                repair=restore + "Without a copy, start streams that have yet to read them from a later "
                "version.",
                version=begin,
            )
        else:
            newest = f"{rebuildable[-1]} with the option versionAsOf" if rebuildable else "none"
            yield Finding(
                check="log-gap",
                severity=Severity.ERROR,
                what=f"{named} missing, and no checkpoint bridges the gap: version {latest} cannot be read.",
                repair=restore + f"Without a copy, the newest version that can be read is {newest}: write it "
                "to a new table.",
                version=begin,
            )


def check_end(log: LogFiles, listing: Listing, checksums: Collection[int]) -> Iterator[Finding]:
    """Commits after the newest one that are gone, and have left the checksums of their versions."""
    end = max(checksums, default=-1)
    if end <= listing.latest_version:
        return
    # A checksum is written after its commit, so a commit that came since the first listing is in this one.
    begin = log.list(0).latest_version + 1
    if begin <= end:
        yield Finding(
            check="log-gap",
            severity=Severity.ERROR,
            what=f"{_named(begin, end)} missing: there is a checksum of version {end}. The table is read as "
            f"it was in version {begin - 1}.",
            repair=f"{_RESTORE}, before anybody writes to the table: the next commit takes the number "
            f"{begin}. Without a copy, run the lost operations again, and delete the checksums from "
            "there on; data files that these operations wrote are among those that no version needs.",
            version=begin,
            files=[f"{end:020}.crc"],
        )


def check_hint(log: LogFiles, listing: Listing) -> Iterator[Finding]:
    """A file _last_checkpoint that cannot be read, or that names a checkpoint that is not there."""
    if not log.store.exists(f"{log.directory}/{LAST_CHECKPOINT}"):
        return
    hint = hinted_version(log)
    if any(checkpoint.version == hint for checkpoint in listing.checkpoints):
        return
    # A checkpoint that came since that listing is in this one.
    if any(checkpoint.version == hint for checkpoint in log.list(hint).checkpoints):
        return
    named = f"names version {hint}, of which there is no complete checkpoint" if hint else "cannot be read"
    yield Finding(
        check="checkpoint-hint",
        severity=Severity.WARNING,
        what=f"The file {LAST_CHECKPOINT} {named}. deltaflow lists the whole log instead; other readers may "
        "fail.",
        repair=f"Delete the file, or {_WRITE_CHECKPOINT}.",
        files=[LAST_CHECKPOINT],
    )


class _Seen(NamedTuple):
    """What a commit and the checksum of its version say of themselves."""

    version: int
    txn_id: str | None = None
    writer: str = ""
    checksum_txn_id: str | None = None
    is_empty: bool = False
    error: str | None = None
    checksum_error: str | None = None


def _named(begin: int, end: int) -> str:
    return f"The commit of version {begin} is" if begin == end else f"Commits {begin} to {end} are"


class _Checksum(msgspec.Struct):
    txn_id: str | None = msgspec.field(default=None, name="txnId")


def check_commits(
    log: LogFiles, listing: Listing, checksums: Collection[int], progress: Progress
) -> Iterator[Finding]:
    """Commits and checksums that cannot be read, and commits that have replaced another one."""

    def look(version: int) -> _Seen:
        try:
            commit = read_commit(log.store, log.directory, listing.commits[version], version)
        except CorruptLogError as error:
            return _Seen(version, error=None if has_gone(log, commit_name(version)) else error.message)
        info = commit.commit_info
        seen = _Seen(version, is_empty=not commit.actions)
        if info is not None:
            writer = (
                f"{info.operation or 'an unnamed operation'} of {info.engine_info or 'an unnamed writer'}"
            )
            seen = _Seen(version, info.txn_id, writer)
        if version not in checksums:
            return seen
        try:
            checksum = decode_json(log.store.read(f"{log.directory}/{version:020}.crc"), as_type=_Checksum)
        except FileNotFoundError:
            return seen
        except (msgspec.MsgspecError, StoreError) as error:
            return seen._replace(checksum_error=str(error))
        return seen._replace(checksum_txn_id=checksum.txn_id)

    versions = sorted(listing.commits)
    with ThreadPoolExecutor(_THREADS, "deltaflow-doctor") as pool:
        for start in range(0, len(versions), _AT_ONCE):
            progress("commits", start, len(versions))
            for seen in pool.map(look, versions[start : start + _AT_ONCE]):
                yield from _findings(seen)


def _findings(seen: _Seen) -> Iterator[Finding]:
    version, checksum = seen.version, f"{seen.version:020}.crc"
    if seen.error is not None:
        yield Finding(
            check="commit-unreadable",
            severity=Severity.ERROR,
            what=f"The commit of version {version} cannot be read: {seen.error}",
            repair="Restore the file from a copy.",
            version=version,
            files=[commit_name(version)],
        )
    if seen.is_empty:
        yield Finding(
            check="commit-empty",
            severity=Severity.ERROR,
            what=f"The commit of version {version} has no actions: its file was cut off, or never got "
            "its content. Readers take it for a commit that changed nothing.",
            repair="Restore the file from a copy. Without a copy, run its operation again; data files that "
            "it wrote are among those that no version needs.",
            version=version,
            files=[commit_name(version)],
        )
    if seen.checksum_error is not None:
        yield Finding(
            check="checksum-unreadable",
            severity=Severity.WARNING,
            what=f"The checksum of version {version} cannot be read: {seen.checksum_error}",
            repair=f"Delete {checksum}. Readers do without it, and the next commit writes its own.",
            version=version,
            files=[checksum],
        )
    if seen.txn_id and seen.checksum_txn_id and seen.txn_id != seen.checksum_txn_id:
        yield Finding(
            check="version-overwritten",
            severity=Severity.ERROR,
            what=f"Version {version} was committed twice. Its checksum is of the transaction "
            f"{seen.checksum_txn_id}, and the log has the transaction {seen.txn_id} ({seen.writer}) in its "
            "place. The changes of the first one are not in the table.",
            repair="Run the operation of the lost transaction again; its data files are among those that no "
            f"version needs. Then delete {checksum}. Let one writer at a time write to the table until all "
            "of them use a store that never replaces a commit.",
            version=version,
            files=[commit_name(version), checksum],
        )


def check_checksum(log: LogFiles, snapshot: Snapshot) -> Iterator[Finding]:
    """A checksum of the newest version that says something else than the log."""
    differences = checksum_differences(log, snapshot)
    if not differences:
        return
    said = "; ".join(
        f"{name} is {own!r}, by the log {of_log!r}" for name, (of_log, own) in differences.items()
    )
    checksum = f"{snapshot.version:020}.crc"
    yield Finding(
        check="checksum-differs",
        severity=Severity.WARNING,
        what=f"The checksum of version {snapshot.version} says something else than the log: {said}.",
        repair=f"Look at the last commits (deltaflow log PATH commit {snapshot.version}): if the table is "
        f"right, delete {checksum}. If not, another writer has changed the log: restore the version before.",
        version=snapshot.version,
        files=[checksum],
    )
