"""Checks of checkpoints and log compactions: each one is read, and compared with the commits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from deltaflow.errors import CorruptLogError
from deltaflow.log.doctor.finding import NAMED_FILES, Finding, Severity
from deltaflow.log.doctor.log_checks import has_gone
from deltaflow.log.files.file_rows import file_keys
from deltaflow.log.progress import Progress
from deltaflow.log.protocol.commit import read_commit
from deltaflow.log.replay.checkpoint_reader import file_state_of, read_checkpoint
from deltaflow.log.replay.listing import Checkpoint, Compaction, Listing
from deltaflow.log.replay.log_files import LogFiles
from deltaflow.log.replay.segment import load_state
from deltaflow.log.replay.state import TableState
from deltaflow.log.untrusted_json import decode_json

_REPAIR = (
    "Delete {}, so that readers use an earlier checkpoint or the commits, and write a new one: "
    "deltaflow.log.DeltaLog.for_table(path).checkpoint()."
)
_FIELDS = frozenset({"path", "size", "deletionVector"})


def check_checkpoints(log: LogFiles, listing: Listing, progress: Progress) -> Iterator[Finding]:
    """Checkpoints that lack parts, cannot be read, or say something else than the commits.

    A checkpoint can only be compared as far as the log has the commits before it, or an earlier checkpoint
    and the commits since.
    """
    slim = replace(log, file_fields=_FIELDS)
    # A compaction may be what is wrong.
    listing = replace(listing, compactions=())
    for version in sorted(set(listing.incomplete_checkpoints)):
        finding = Finding(
            check="checkpoint-incomplete",
            severity=Severity.WARNING,
            what=f"The checkpoint of version {version} lacks some of its parts: nobody can use it.",
            repair=_REPAIR.format("its parts"),
            version=version,
        )
        yield _if_needed(finding, slim, listing, version)
    wrong: list[Checkpoint] = []
    for number, checkpoint in enumerate(listing.checkpoints):
        progress("checkpoints", number, len(listing.checkpoints))
        read = _read(slim, checkpoint)
        others = [other for other in listing.checkpoints if other not in (checkpoint, *wrong)]
        without = replace(listing, checkpoints=others)
        found: Finding | None
        if isinstance(read, Finding) and any(has_gone(log, status.name) for status in checkpoint.files):
            wrong.append(checkpoint)
            continue
        if isinstance(read, Finding):
            found = _if_needed(read, slim, without, checkpoint.version)
        else:
            found = _different(slim, without, checkpoint, read)
        if found is not None:
            wrong.append(checkpoint)
            yield found


def check_compactions(log: LogFiles, listing: Listing, progress: Progress) -> Iterator[Finding]:
    """Log compactions that cannot be read, or say something else than the commits that they cover."""
    slim = replace(log, file_fields=_FIELDS)
    for number, compaction in enumerate(listing.compactions):
        progress("log compactions", number, len(listing.compactions))
        finding = _finding_of_compaction(slim, listing, compaction)
        if finding is not None:
            yield finding


def _finding_of_compaction(log: LogFiles, listing: Listing, compaction: Compaction) -> Finding | None:
    first, last, name = compaction.first, compaction.last, compaction.file.name
    try:
        compacted = read_commit(log.store, log.directory, compaction.file, last)
    except CorruptLogError as error:
        if has_gone(log, name):
            return None
        return Finding(
            check="compaction-unreadable",
            severity=Severity.WARNING,
            what=f"The compaction of the commits {first} to {last} cannot be read: {error.message}",
            repair=f"Delete {name}. Readers do without it.",
            version=last,
            files=[name],
        )
    earlier = [checkpoint for checkpoint in listing.checkpoints if checkpoint.version < first]
    commits = replace(listing, checkpoints=earlier, compactions=())
    try:
        before = load_state(log, commits, first - 1) if first else TableState(file_state=file_state_of(log))
        expected = before.after(log.commits(commits, first, last), log.path)
    except CorruptLogError:
        # The commits alone do not say what should be in it.
        return None
    finding = Finding(
        check="compaction-differs",
        severity=Severity.ERROR,
        what=f"The compaction of the commits {first} to {last} says something else than they do",
        repair=f"If no version from {first} to {last} was overwritten, the commits are right. Delete {name}: "
        "readers do without it. Checkpoints that were written since may have the same error.",
        version=last,
        files=[name],
    )
    return _if_different(finding, before.after([compacted], log.path), expected, log.path)


def _read(log: LogFiles, checkpoint: Checkpoint) -> Finding | TableState:
    """The state of a checkpoint, or the finding that it cannot be read."""
    try:
        return read_checkpoint(log, checkpoint)
    except CorruptLogError as error:
        names = [status.name for status in checkpoint.files]
        return Finding(
            check="checkpoint-unreadable",
            severity=Severity.WARNING,
            what=f"The checkpoint of version {checkpoint.version} cannot be read: {error.message}",
            repair=_REPAIR.format(checkpoint),
            version=checkpoint.version,
            files=names[:NAMED_FILES],
        )


def _if_needed(finding: Finding, log: LogFiles, without: Listing, version: int) -> Finding:
    """The finding of a broken checkpoint; a graver one if the log without it does not have its version."""
    if _is_readable(log, without, version):
        return finding
    latest = without.latest_version
    return msgspec.structs.replace(
        finding,
        severity=Severity.WARNING if _is_readable(log, without, latest) else Severity.ERROR,
        what=f"{finding.what} Nothing else in the log has this version.",
        repair="Restore what is missing or damaged from a copy, such as an older version of the object in "
        "the bucket. Do not delete what is left: the commits before it are gone.",
    )


def _is_readable(log: LogFiles, listing: Listing, version: int) -> bool:
    try:
        load_state(log, listing, version)
    except CorruptLogError:
        return False
    return True


def _different(log: LogFiles, others: Listing, checkpoint: Checkpoint, state: TableState) -> Finding | None:
    try:
        expected = load_state(log, others, checkpoint.version)
    except CorruptLogError:
        # Without the checkpoint that version cannot be built: there is nothing to compare it with.
        return None
    finding = Finding(
        check="checkpoint-differs",
        severity=Severity.ERROR,
        what=f"The checkpoint of version {checkpoint.version} says something else than the commits up to it",
        repair=f"If no version up to {checkpoint.version} was overwritten, the commits are right. "
        + _REPAIR.format(checkpoint),
        version=checkpoint.version,
        files=[status.name for status in checkpoint.files][:NAMED_FILES],
    )
    return _if_different(finding, state, expected, log.path)


def _if_different(finding: Finding, state: TableState, expected: TableState, path: str) -> Finding | None:
    """The finding, with the differences between the states; None if there are none."""
    said = "; ".join(_differences(state, expected, path))
    what = f"{finding.what}: {said}. What a reader sees depends on which of the two it uses."
    return msgspec.structs.replace(finding, what=what) if said else None


def _differences(state: TableState, expected: TableState, path: str) -> Iterator[str]:
    own, others = state.file_state.files, expected.file_state.files
    keys, other_keys = (file_keys(files, path) for files in (own, others))
    places = pc.index_in(keys, value_set=other_keys)
    missing = len(other_keys) - (len(places) - places.null_count)
    for number, text in ((missing, "are not in it"), (places.null_count, "are in it and should not be")):
        if number:
            yield f"{number} files {text}"
    sizes = pc.take(others["size"].combine_chunks(), places)
    resized = pc.sum(pc.not_equal(own["size"].combine_chunks(), sizes).cast(pa.int64())).as_py() or 0
    if resized:
        yield f"{resized} files have another size"
    if state.protocol != expected.protocol:
        yield "its protocol is another one"
    if _metadata(state) != _metadata(expected):
        yield "its metadata is another one"
    transactions = {app: txn.version for app, txn in state.transactions.items()}
    wanted = {app: txn.version for app, txn in expected.transactions.items()}
    if expected.transactions_expire:
        wanted = {app: version for app, version in wanted.items() if app in transactions}
    if transactions != wanted:
        yield f"the transactions of {len(transactions.items() ^ wanted.items())} applications differ"
    domains, wanted_domains = (
        {name: domain.configuration for name, domain in each.domains.items()} for each in (state, expected)
    )
    if domains != wanted_domains:
        yield "its domain metadata is another one"


def _metadata(state: TableState) -> object:
    metadata = state.metadata
    return metadata and (
        metadata.id,
        metadata.schema_string and decode_json(metadata.schema_string),
        metadata.partition_columns,
        metadata.configuration,
    )
