"""When the commits were made whose change rows a stream reads."""

from __future__ import annotations

from deltaflow.log import Commit, DeltaLog

_MOST_TIMES = 1_000


class CommitTimes:
    """The times of commits, in milliseconds since 1970, as the batch reader has them: in-commit timestamps,
    or else the modification times of their files, each later than the one before.

    The log is listed for the first commit alone. The time of the next one follows from the one before.
    """

    def __init__(self) -> None:
        self._times: dict[int, int] = {}

    def of(self, commit: Commit, log: DeltaLog) -> int:
        """The time of a commit of the log."""
        info = commit.commit_info
        if info is not None and info.in_commit_timestamp is not None:
            return info.in_commit_timestamp
        return self.of_file(commit.version, commit.timestamp_ms, log)

    def of_file(self, version: int, modified_ms: int, log: DeltaLog) -> int:
        """The time of a version without an in-commit timestamp, whose commit's file was modified then."""
        time_ms = self._times.get(version)
        if time_ms is None:
            before_ms = self._times.get(version - 1)
            if before_ms is None:
                time_ms = log.commit_times_ms(version, version).get(version, modified_ms)
            else:
                time_ms = max(modified_ms, before_ms + 1)
            if len(self._times) == _MOST_TIMES:
                self._times.clear()
            self._times[version] = time_ms
        return time_ms
