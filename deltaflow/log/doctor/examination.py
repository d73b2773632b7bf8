"""All checks of one table, in the order in which a repair would go: log, checkpoints, files, statistics."""

from __future__ import annotations

from collections.abc import Iterator

from deltaflow.errors import CorruptLogError, UnsupportedFeatureError
from deltaflow.log.doctor.checkpoint_checks import check_checkpoints, check_compactions
from deltaflow.log.doctor.file_checks import check_files, check_orphans, check_small_files, check_vectors
from deltaflow.log.doctor.finding import Finding, Severity
from deltaflow.log.doctor.log_checks import (
    check_checksum,
    check_commits,
    check_end,
    check_gaps,
    check_hint,
    checksum_versions,
)
from deltaflow.log.doctor.property_checks import check_properties
from deltaflow.log.doctor.statistics_checks import check_statistics
from deltaflow.log.progress import Progress, no_progress
from deltaflow.log.replay.log_files import LogFiles, existing_log
from deltaflow.log.replay.snapshot import Snapshot, newest_snapshot


def examine(path: str, progress: Progress = no_progress) -> Iterator[Finding]:
    """What is wrong with the table at `path`, or could be better. Only reads, and starts no JVM.

    The findings come as they are found. The log, every checkpoint and the footer of every data file are read,
    files in parallel and a thousand at a time. DeltaTableNotFoundError if there is no table.
    """
    log = existing_log(path)
    listing = log.list(0)
    yield from check_gaps(listing)
    checksums = checksum_versions(log)
    yield from check_end(log, listing, checksums)
    yield from check_hint(log, listing)
    yield from check_commits(log, listing, checksums, progress)
    yield from check_checkpoints(log, listing, progress)
    yield from check_compactions(log, listing, progress)
    progress("the newest version", 0, None)
    try:
        yield from _examine_snapshot(log, newest_snapshot(log), progress)
    except (CorruptLogError, UnsupportedFeatureError) as error:
        repair = "Repair the log first, and examine the table again: it has not been examined to its end."
        if isinstance(error, UnsupportedFeatureError):
            repair = "Examine the table with a Delta implementation that has this."
        # Others may have committed since the log was listed.
        version = listing.latest_version if error.version is None else error.version
        yield Finding(
            check="table-unreadable",
            severity=Severity.ERROR,
            what=f"The newest version cannot be read: {error.message}",
            repair=repair,
            version=version,
        )


def _examine_snapshot(log: LogFiles, snapshot: Snapshot, progress: Progress) -> Iterator[Finding]:
    yield from check_checksum(log, snapshot)
    yield from check_properties(snapshot)
    progress("the table's directory", 0, None)
    findings, sound = check_files(log, snapshot)
    yield from findings
    yield from check_vectors(log, snapshot, progress)
    yield from check_statistics(log, snapshot, sound, progress)
    progress("files that no version needs", 0, None)
    yield from check_orphans(log, snapshot)
    yield from check_small_files(snapshot)
