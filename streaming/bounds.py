"""Where a stream begins and ends, by its starting and ending versions and timestamps."""

from __future__ import annotations

from deltaflow.errors import DeltaIllegalArgumentException, VersionNotFoundError
from deltaflow.log import Snapshot
from deltaflow.log.protocol.features import has_in_commit_timestamps
from deltaflow.log.streams.source_offset import BASE_INDEX, DeltaSourceOffset
from deltaflow.streaming.commits import check_data_loss
from deltaflow.streaming.reading import Reading


def first_offset(
    reading: Reading, newest: Snapshot, last_version: int, bound: int | None
) -> DeltaSourceOffset:
    """Where a query without a checkpoint begins: at its starting version, or else with a snapshot.

    `bound` is the last version by the ending options, `last_version` the last one that this run reads. If the
    stream starts after `last_version` only, the next run begins to read it. Raises VersionNotFoundError if
    the table does not have the version or time that the options name.
    """
    version = starting_version(reading, newest)
    if version is None:
        if bound is not None and reading.options.ending_timestamp_ms is not None:
            # Raises that the log cannot give the snapshot of that time.
            reading.log.version_at_timestamp(reading.options.ending_timestamp_ms)
        return DeltaSourceOffset(reading.table_id, min(newest.version, last_version), BASE_INDEX, True)
    if bound is not None and bound < version <= newest.version:
        raise DeltaIllegalArgumentException(
            error_class="DELTA_ILLEGAL_OPTION",
            input=bound,
            name="endingVersion or endingTimestamp",
            explain=f"must not be before the version {version} with which the stream starts",
        )
    return DeltaSourceOffset(reading.table_id, version, BASE_INDEX, False)


def offset_before(reading: Reading, newest: Snapshot, end: DeltaSourceOffset) -> DeltaSourceOffset:
    """Where the first batch of a query began. It was planned before a restart, and goes to `end`.

    Of a start by its time, commits may have gone since then: nobody can tell if the log begins with the first
    one that it has since that time. It is an error unless the stream may lose data.
    """
    if end.is_starting_version:
        return DeltaSourceOffset(end.reservoir_id, end.reservoir_version, BASE_INDEX, True)
    if reading.options.starting_version == "latest":
        # The first batch of such a query is empty: its end says which version was the latest.
        return DeltaSourceOffset(end.reservoir_id, end.reservoir_version, BASE_INDEX, False)
    version = starting_version(reading, newest)
    if version is not None:
        may_be_later = reading.options.allow_start_out_of_range
        if reading.options.starting_timestamp_ms is not None and 0 < version == _first_commit(reading):
            check_data_loss(reading, version - 1, version)
            may_be_later = True
        # A start in the future became the version after the newest, with an empty batch.
        if may_be_later:
            version = min(version, end.reservoir_version)
        return DeltaSourceOffset(end.reservoir_id, version, BASE_INDEX, False)
    return DeltaSourceOffset(end.reservoir_id, end.reservoir_version - 1, BASE_INDEX, True)


def starting_version(reading: Reading, newest: Snapshot) -> int | None:
    """The version that the starting options name; None without such an option."""
    options = reading.options
    if options.starting_version == "latest":
        return newest.version + 1
    if isinstance(options.starting_version, int):
        _check_version_exists(reading, options.starting_version, newest)
        return options.starting_version
    if options.starting_timestamp_ms is None:
        return None
    return reading.log.first_version_since(
        options.starting_timestamp_ms, may_be_later=options.allow_start_out_of_range
    )


def ending_version(reading: Reading, newest: Snapshot, without_end: int | None = None) -> int | None:
    """The last version that a stream may read; None without a bound, or as long as it is not certain.

    Of a time from before all commits that the log still has, it is the version before them: no stream may
    read them. `without_end`: the newest version at an earlier look, which found none. Then only what has come
    since is listed.
    """
    options = reading.options
    if options.ending_timestamp_ms is None:
        return options.ending_version
    if newest.timestamp_ms <= options.ending_timestamp_ms:
        if without_end == newest.version or has_in_commit_timestamps(newest.protocol, newest.metadata):
            return None
        # By the times of files, the newest version may be earlier than one before it, where clocks differ.
        if without_end is not None:
            times = reading.log.commit_times_ms(without_end + 1, newest.version)
            if all(time_ms <= options.ending_timestamp_ms for time_ms in times.values()):
                return None
    # Commits can be read of which the log can no longer give the state.
    beyond = reading.log.first_version_since(options.ending_timestamp_ms + 1, may_be_later=True)
    return None if beyond > newest.version else beyond - 1


def _first_commit(reading: Reading) -> int:
    return min(reading.log.commit_versions(), default=0)


def _check_version_exists(reading: Reading, version: int, newest: Snapshot) -> None:
    if version > newest.version and reading.options.allow_start_out_of_range:
        return
    versions = reading.log.commit_versions()
    if not versions or not versions[0] <= version <= newest.version:
        available = f"[{versions[0]}, {newest.version}]" if versions else "none"
        raise VersionNotFoundError(
            f"Cannot time travel Delta table to version {version}. Available versions: {available}. "
            "Correct the option startingVersion.",
            table=reading.path,
        )
