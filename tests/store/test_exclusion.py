from __future__ import annotations

from pathlib import Path

import pytest

from deltaflow.errors import CommitOutcomeUnknownError, StoreError, WriteRefusedError
from deltaflow.log import DeltaLog
from deltaflow.store import ExclusionTrial, LocalLogStore
from tests.log.hand_written import WRITE, add_file, append, create


class FailingTrial:
    """A server whose puts lose their answers, or do not arrive."""

    def __init__(self, failures: int, *, arrives: bool) -> None:
        self.failures, self.arrives = failures, arrives
        self.there: set[str] = set()

    def put(self, path: str) -> None:
        failed = self.failures > 0
        self.failures -= failed
        if failed and not self.arrives:
            raise StoreError("The connection broke.", file=path)
        if path in self.there:
            raise FileExistsError(path)
        self.there.add(path)
        if failed:  # the client tries again
            raise FileExistsError(path)

    def check(self, trial: ExclusionTrial) -> None:
        trial.check("place", "directory", put=self.put, delete=self.there.discard, needed="")


def test_the_own_put_that_was_tried_again_is_refused() -> None:
    trial, server = ExclusionTrial(), FailingTrial(1, arrives=True)
    server.check(trial)
    assert not server.there
    FailingTrial(2, arrives=False).check(trial)  # it is not tried again


def test_what_cannot_be_tried_is_refused_and_tried_the_next_time() -> None:
    trial, server = ExclusionTrial(), FailingTrial(1, arrives=False)
    with pytest.raises(WriteRefusedError, match="The connection broke") as raised:
        server.check(trial)
    assert raised.value.file is not None
    server.check(trial)


def test_a_commit_for_which_that_was_to_be_tried_is_certainly_not_there(tmp_path: Path) -> None:
    class Store(LocalLogStore):
        failed_put_never_lands = False
        trial, server = ExclusionTrial(), FailingTrial(1, arrives=False)

        def put_if_absent(self, path: str, data: bytes) -> None:
            self.server.check(self.trial)
            super().put_if_absent(path, data)

    log = DeltaLog(Store(), str(tmp_path / "t"))
    create(DeltaLog(LocalLogStore(), log.path))
    transaction = log.start_transaction()
    with pytest.raises(StoreError, match="The connection broke") as raised:
        transaction.commit([add_file("a")], WRITE)
    assert not isinstance(raised.value, CommitOutcomeUnknownError)
    assert transaction.cancel()
    assert append(log, "a") == 1
