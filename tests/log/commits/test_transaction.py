from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from deltaflow.errors import (
    CommitOutcomeUnknownError,
    ConcurrentAppendException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    CorruptLogError,
    DeltaAnalysisException,
    DeltaError,
    DeltaIllegalStateException,
    DeltaUnsupportedOperationException,
    MetadataChangedException,
    OperationCancelledError,
    ProtocolChangedException,
    StoreError,
    UnsupportedFeatureError,
)
from deltaflow.log import (
    CommitInfo,
    Committed,
    Conflict,
    DeltaLog,
    Operation,
    OptimisticTransaction,
    SetTransaction,
    Unknown,
    commit_name,
    encode_actions,
    remove_files,
    schema_to_string,
    set_observer,
)
from deltaflow.log import delta_log as delta_log_module
from deltaflow.log.commits import transaction as transaction_module
from deltaflow.log.maintenance.log_cleanup import clean_up
from deltaflow.log.protocol.actions import AnyAction
from deltaflow.log.replay.log_files import LogFiles, random_id, system_clock
from deltaflow.store import FileStatus, LocalLogStore, RetryPolicy
from deltaflow.store.base import check_sizes
from tests.log.hand_written import (
    SCHEMA,
    WRITE,
    HandWrittenTable,
    add,
    add_file,
    append,
    create,
    meta_data,
    new_metadata,
    paths,
    protocol,
)
from tests.tables import set_time


@pytest.fixture(autouse=True)
def _silence_the_observer() -> Iterator[None]:
    yield
    set_observer(None)


def lines(log: DeltaLog, version: int) -> list[dict[str, Any]]:
    text = (Path(log.path) / "_delta_log" / commit_name(version)).read_text()
    return [json.loads(line) for line in text.splitlines()]


def action_names(log: DeltaLog, version: int) -> list[str]:
    return [next(iter(line)) for line in lines(log, version)]


def test_the_first_commit_holds_protocol_and_metadata_and_later_ones_do_not(log: DeltaLog) -> None:
    create(log, "a")
    append(log, "b")
    assert action_names(log, 0) == ["commitInfo", "protocol", "metaData", "add"]
    assert action_names(log, 1) == ["commitInfo", "add"]
    assert lines(log, 0)[1] == {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    assert paths(log) == ["a", "b"]


def test_metadata_is_written_again_only_when_it_changes(log: DeltaLog) -> None:
    create(log)
    for description in ("new", "new"):
        transaction = log.start_transaction()
        transaction.update_metadata(new_metadata(description=description))
        transaction.commit([], WRITE)
    assert action_names(log, 1) == ["commitInfo", "metaData"]
    assert action_names(log, 2) == ["commitInfo"]
    assert log.snapshot().metadata.description == "new"


def test_the_column_in_which_spark_counts_rows_is_refused(log: DeltaLog) -> None:
    """Unless the table has it already: the other columns may change."""
    names = StructType([StructField("id", LongType()), StructField("_TMP_metadata_row_index", LongType())])
    create(log)
    with pytest.raises(DeltaAnalysisException, match="INTERNAL_NAME"):
        log.start_transaction().update_metadata(new_metadata(schema_string=names.json()))
    lines_of_table = lines(log, 0)
    metadata = next(line for line in lines_of_table if "metaData" in line)
    metadata["metaData"]["schemaString"] = names.json()
    text = "".join(json.dumps(line) + "\n" for line in lines_of_table)
    Path(log.path, "_delta_log", f"{0:020}.json").write_text(text)
    with_column = DeltaLog(LocalLogStore(), log.path)
    more = StructType([*names.fields, StructField("more", LongType())])
    with_column.start_transaction().update_metadata(new_metadata(schema_string=more.json()))


def test_what_a_commit_says_of_itself(tmp_path: Path) -> None:
    ids = iter(["id-0", "id-1", "id-2"])
    log = DeltaLog(LocalLogStore(), str(tmp_path / "t"), clock=lambda: 1234, ids=lambda: next(ids))
    create(log)
    operation = Operation("WRITE", {"mode": "Append", "partitionBy": '["p"]'}, {"numFiles": "1"}, "mine")
    log.start_transaction().commit([add_file("a")], operation)
    assert "readVersion" not in lines(log, 0)[0]["commitInfo"]
    info = lines(log, 1)[0]["commitInfo"]
    assert info.pop("engineInfo").startswith("deltaflow")
    assert info == {
        "timestamp": 1234,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": '["p"]'},
        "readVersion": 0,
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "dataChange": True,
        "operationMetrics": {"numFiles": "1"},
        "userMetadata": "mine",
        "txnId": "id-1",
    }


def test_a_blind_append_that_loses_takes_the_next_version(log: DeltaLog) -> None:
    create(log)
    first, second, third = (log.start_transaction() for _ in range(3))
    assert second.commit([add_file("b")], WRITE) == Committed(1)
    assert first.commit([add_file("a")], WRITE) == Committed(2)
    assert third.commit([add_file("c")], WRITE) == Committed(3)
    assert paths(log) == ["a", "b", "c"]
    assert [lines(log, version)[0]["commitInfo"]["readVersion"] for version in (1, 2, 3)] == [0, 0, 0]


def test_a_commit_that_read_the_whole_table_raises_when_it_loses(log: DeltaLog) -> None:
    create(log, "a")
    transaction = log.start_transaction()
    transaction.record_read_of_whole_table()
    append(log, "b")
    with pytest.raises(ConcurrentAppendException, match=r"Version 1 of .* \(WRITE\)") as raised:
        transaction.commit([add_file("mine")], WRITE)
    assert raised.value.version == 1
    assert paths(log) == ["a", "b"]


def test_an_overwrite_without_a_rival_replaces_the_files(log: DeltaLog) -> None:
    create(log, "a", "b")
    transaction = log.start_transaction()
    assert transaction.snapshot is not None
    transaction.record_read_of_whole_table()
    removed = remove_files(transaction.snapshot.with_stats(transaction.snapshot.files), 5)
    transaction.commit([*removed, add_file("c")], WRITE)
    assert paths(log) == ["c"]
    assert lines(log, 1)[0]["commitInfo"]["isBlindAppend"] is False


@pytest.mark.parametrize("how", ["reads", "sets"])
def test_the_same_application_twice_is_a_conflict(log: DeltaLog, how: str) -> None:
    create(log)
    transaction = log.start_transaction()
    actions: list[Any] = [add_file("mine")]
    if how == "reads":
        assert transaction.record_read_of_txn("q") is None
    else:
        actions.append(SetTransaction(app_id="q", version=3))
    log.start_transaction().commit([SetTransaction(app_id="q", version=2), add_file("a")], WRITE)
    with pytest.raises(ConcurrentTransactionException, match="stop all but one"):
        transaction.commit(actions, WRITE)
    assert paths(log) == ["a"]


def test_another_application_is_none(log: DeltaLog) -> None:
    create(log)
    transaction = log.start_transaction()
    assert transaction.record_read_of_txn("q") is None
    log.start_transaction().commit([SetTransaction(app_id="other", version=2)], WRITE)
    assert transaction.commit([SetTransaction(app_id="q", version=3)], WRITE) == Committed(2)
    assert log.snapshot().txn_version("q") == 3


@pytest.mark.parametrize(
    ("winner", "error"),
    [(meta_data(table_id="table-1"), MetadataChangedException), (protocol(1, 2), ProtocolChangedException)],
)
def test_metadata_and_protocol_of_a_winner_are_conflicts(
    table: HandWrittenTable, winner: dict[str, Any], error: type[DeltaError]
) -> None:
    table.first_commit()
    transaction = table.log().start_transaction()
    table.commit(1, add("a"))
    table.commit(2, winner)
    with pytest.raises(error) as raised:
        transaction.commit([add_file("mine")], WRITE)
    assert raised.value.version == 2
    assert not (table.log_directory / commit_name(3)).exists()


def test_a_change_of_metadata_comes_after_appends(log: DeltaLog) -> None:
    create(log)
    transaction = log.start_transaction()
    transaction.update_metadata(new_metadata(description="new"))
    append(log, "a")
    assert transaction.commit([], WRITE) == Committed(2)
    assert action_names(log, 2) == ["commitInfo", "metaData"]
    assert log.snapshot().metadata.description == "new"


def test_metadata_is_changed_once(log: DeltaLog) -> None:
    transaction = log.start_transaction()
    transaction.update_metadata(new_metadata())
    with pytest.raises(DeltaIllegalStateException, match="at most once"):
        transaction.update_metadata(new_metadata(description="new"))


def test_a_commit_gives_up_after_its_last_attempt(log: DeltaLog) -> None:
    create(log)

    class Losing(LocalLogStore):
        def put_if_absent(self, path: str, data: bytes) -> None:
            super().put_if_absent(path, encode_actions([CommitInfo(operation="RIVAL", txn_id="rival")]))
            super().put_if_absent(path, data)

    files = LogFiles(Losing(), log.path, system_clock, random_id)
    transaction = OptimisticTransaction(files, log.snapshot(), RetryPolicy(max_attempts=3))
    with pytest.raises(ConcurrentWriteException, match=r"DELTA_MAX_COMMIT_RETRIES_EXCEEDED.*lost 3 races"):
        transaction.commit([add_file("a")], WRITE)
    assert log.latest_version() == 3
    assert paths(log) == []


def test_pauses_between_attempts_are_bounded_and_none_comes_before_the_first_two() -> None:
    pauses = list(RetryPolicy(max_attempts=40, first_pause_ms=1, longest_pause_ms=8).pauses_ms())
    assert len(pauses) == 40
    assert pauses[:2] == [0, 0]
    assert all(pause <= bound for pause, bound in zip(pauses[2:5], (1, 2, 4), strict=True))
    assert max(pauses) <= 8
    assert len(set(pauses[2:])) == 38


class TestCreationRace:
    def loser(self, log: DeltaLog, **metadata: Any) -> Any:
        transaction = log.start_transaction()
        transaction.update_metadata(new_metadata(id="table-2", **metadata))
        return transaction

    def test_the_loser_with_the_same_schema_appends(self, log: DeltaLog) -> None:
        loser = self.loser(log)
        create(log, "a")
        append(log, "b")
        assert loser.commit([add_file("mine")], WRITE) == Committed(2)
        assert action_names(log, 2) == ["commitInfo", "add"]
        assert lines(log, 2)[0]["commitInfo"]["readVersion"] == 1
        assert log.snapshot().table_id == "table-1"
        assert paths(log) == ["a", "b", "mine"]

    @pytest.mark.parametrize(
        "schema",
        [
            StructType([StructField("id", LongType())]),
            StructType([StructField("id", IntegerType()), SCHEMA["part"]]),
            StructType([StructField("ID", LongType()), SCHEMA["part"]]),
            StructType([*SCHEMA.fields, StructField("more", LongType())]),
        ],
    )
    def test_the_loser_with_another_schema_raises(self, log: DeltaLog, schema: StructType) -> None:
        loser = self.loser(log, schema_string=schema_to_string(schema))
        create(log, "a")
        with pytest.raises(ProtocolChangedException, match="created the table"):
            loser.commit([add_file("mine")], WRITE)
        assert paths(log) == ["a"]

    def test_the_loser_with_another_partitioning_raises(self, log: DeltaLog) -> None:
        loser = self.loser(log, partition_columns=["part"])
        create(log, "a")
        with pytest.raises(ProtocolChangedException, match="Partition columns do not match"):
            loser.commit([add_file("mine", partition_values={"part": "x"})], WRITE)
        assert paths(log) == ["a"]

    def test_the_loser_that_needs_no_table_raises(self, log: DeltaLog) -> None:
        loser = self.loser(log)
        loser.record_read_of_whole_table()
        create(log, "a")
        with pytest.raises(ProtocolChangedException, match="requires that there is no table"):
            loser.commit([add_file("mine")], WRITE)

    def test_who_requires_that_there_is_no_table_may_append_blindly(self, log: DeltaLog) -> None:
        loser, winner = self.loser(log), self.loser(log)
        for creator in (loser, winner):
            creator.require_no_table()
        winner.commit([add_file("a")], WRITE)
        assert '"isBlindAppend":true' in Path(log.path, "_delta_log", f"{0:020}.json").read_text()
        with pytest.raises(ProtocolChangedException, match="requires that there is no table"):
            loser.commit([add_file("mine")], WRITE)

    def test_the_loser_of_the_same_application_raises(self, log: DeltaLog) -> None:
        loser, winner = self.loser(log), self.loser(log)
        winner.commit([SetTransaction(app_id="q", version=0)], WRITE)
        with pytest.raises(ConcurrentTransactionException):
            loser.commit([SetTransaction(app_id="q", version=0)], WRITE)

    def test_the_loser_obeys_the_winners_protocol(self, table: HandWrittenTable) -> None:
        loser = self.loser(table.log())
        table.commit(0, protocol(1, 7, writerFeatures=["catalogCommits"]), meta_data())
        with pytest.raises(UnsupportedFeatureError, match="catalogCommits"):
            loser.commit([add_file("mine")], WRITE)


class TestRefusals:
    def test_a_new_table_needs_metadata(self, log: DeltaLog) -> None:
        with pytest.raises(DeltaAnalysisException, match="needs its metadata"):
            log.start_transaction().commit([], WRITE)
        assert not log.exists()

    def test_an_append_only_table_keeps_its_data(self, log: DeltaLog) -> None:
        create(log, "a", configuration={"delta.appendOnly": "true"})
        append(log, "b")
        snapshot = log.snapshot()
        files = snapshot.with_stats(snapshot.files)
        with pytest.raises(DeltaUnsupportedOperationException, match="DELTA_CANNOT_MODIFY_APPEND_ONLY"):
            log.start_transaction().commit(remove_files(files, 5), WRITE)
        ending = log.start_transaction()
        ending.update_metadata(new_metadata(configuration={"delta.appendOnly": "false"}))
        with pytest.raises(DeltaUnsupportedOperationException, match="DELTA_CANNOT_MODIFY_APPEND_ONLY"):
            ending.commit(remove_files(files, 5), WRITE)
        rearranged = [*remove_files(files, 5, data_change=False), add_file("c", data_change=False)]
        log.start_transaction().commit(rearranged, WRITE)
        assert paths(log) == ["c"]

    def test_a_file_named_twice(self, log: DeltaLog) -> None:
        create(log)
        with pytest.raises(DeltaIllegalStateException, match="named twice"):
            append(log, "a", "a")

    @pytest.mark.parametrize("values", [{}, {"id": "1"}, {"part": "x", "id": "1"}])
    def test_files_with_other_partition_columns(self, log: DeltaLog, values: dict[str, str]) -> None:
        create(log, partition_columns=["part"])
        with pytest.raises(DeltaIllegalStateException, match="DELTA_INVALID_PARTITIONING_SCHEMA"):
            log.start_transaction().commit([add_file("a", partition_values=values)], WRITE)
        assert log.latest_version() == 0

    def test_a_transaction_commits_once(self, log: DeltaLog) -> None:
        create(log)
        transaction = log.start_transaction()
        transaction.commit([], WRITE)
        with pytest.raises(DeltaIllegalStateException, match="commits once"):
            transaction.commit([], WRITE)

    def test_an_unwritable_new_table(self, log: DeltaLog) -> None:
        transaction = log.start_transaction()
        transaction.update_metadata(new_metadata(partition_columns=["id", "part"]))
        with pytest.raises(DeltaAnalysisException, match="Cannot use all columns for partition columns"):
            transaction.commit([], WRITE)
        assert not log.exists()


class LostAnswer(LocalLogStore):
    """A store whose puts fail: after the file is there, or before; or after another writer's is there."""

    RIVAL = (CommitInfo(operation="RIVAL", txn_id="rival"),)

    def __init__(
        self,
        when: str,
        *,
        readable: bool = True,
        never_lands: bool = True,
        rival: Sequence[AnyAction] = RIVAL,
    ) -> None:
        self.when = when
        self.rival = rival
        self.readable = readable
        self.failed_put_never_lands = never_lands
        self.puts = 0

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.puts += 1
        if self.puts > 1:
            super().put_if_absent(path, data)
            return
        if self.when == "after":
            super().put_if_absent(path, data)
        if self.when == "rival":
            super().put_if_absent(path, encode_actions(self.rival))
        raise StoreError("The connection broke.")

    def read(self, path: str) -> bytes:
        if not self.readable and self.puts:
            raise StoreError("Still broken.")
        return super().read(path)


class TestUnknownOutcome:
    @pytest.fixture
    def existing(self, log: DeltaLog) -> DeltaLog:
        create(log)
        return log

    def test_an_own_commit_that_is_there_is_committed(self, existing: DeltaLog) -> None:
        transaction = DeltaLog(LostAnswer("after"), existing.path).start_transaction()
        assert transaction.commit([add_file("a")], WRITE) == Committed(1)
        assert existing.latest_version() == 1
        assert paths(existing) == ["a"]

    def test_a_rivals_commit_is_a_lost_race(self, existing: DeltaLog) -> None:
        transaction = DeltaLog(LostAnswer("rival"), existing.path).start_transaction()
        assert transaction.commit([add_file("a")], WRITE) == Committed(2)
        assert paths(existing) == ["a"]

    def test_a_rivals_commit_is_a_conflict_for_a_dependent_write(self, existing: DeltaLog) -> None:
        rival = [*LostAnswer.RIVAL, SetTransaction(app_id="q", version=1)]
        transaction = DeltaLog(LostAnswer("rival", rival=rival), existing.path).start_transaction()
        transaction.record_read_of_txn("q")
        assert isinstance(transaction.try_commit([add_file("a")], WRITE), Conflict)

    def test_an_absent_commit_of_a_store_that_is_sure_failed(self, existing: DeltaLog) -> None:
        transaction = DeltaLog(LostAnswer("before"), existing.path).start_transaction()
        with pytest.raises(StoreError, match="connection broke"):
            transaction.commit([add_file("a")], WRITE)
        assert existing.latest_version() == 0
        assert transaction.cancel()

    @pytest.mark.parametrize(
        "store", [LostAnswer("before", never_lands=False), LostAnswer("after", readable=False)]
    )
    def test_otherwise_it_is_unknown(self, existing: DeltaLog, store: LostAnswer) -> None:
        transaction = DeltaLog(store, existing.path).start_transaction()
        with pytest.raises(
            CommitOutcomeUnknownError, match=r"connection broke.*version 1 of the table"
        ) as raised:
            transaction.commit([add_file("a")], WRITE)
        assert raised.value.version == 1
        assert isinstance(raised.value.__cause__, StoreError)
        assert not transaction.cancel()

    def test_the_core_gives_it_as_a_value(self, existing: DeltaLog) -> None:
        store = LostAnswer("before", never_lands=False)
        outcome = DeltaLog(store, existing.path).start_transaction().try_commit([add_file("a")], WRITE)
        assert isinstance(outcome, Unknown)

    def test_a_store_that_says_taken_after_its_own_success_is_seen_through(self, existing: DeltaLog) -> None:
        class Repeating(LocalLogStore):
            def put_if_absent(self, path: str, data: bytes) -> None:
                super().put_if_absent(path, data)
                super().put_if_absent(path, data)

        transaction = DeltaLog(Repeating(), existing.path).start_transaction()
        assert transaction.commit([add_file("a")], WRITE) == Committed(1)
        assert existing.latest_version() == 1


class Misread(LocalLogStore):
    """A store whose first put lands and fails, and whose next reads of that file are wrong."""

    def __init__(self, how: str, *, lists: str = "", misreads: int = 1) -> None:
        """`lists`: what a listing does then; empty for as it should."""
        self.how, self.lists, self.misreads = how, lists, misreads
        self.put_name = ""

    def put_if_absent(self, path: str, data: bytes) -> None:
        super().put_if_absent(path, data)
        if not self.put_name:
            self.put_name = Path(path).name
            raise FileExistsError(path) if self.how == "absent" else StoreError("The connection broke.")

    def read(self, path: str) -> bytes:
        if Path(path).name != self.put_name or not self.misreads:
            return super().read(path)
        self.misreads -= 1
        if self.how == "absent":
            raise FileNotFoundError(path)
        return super().read(path)[: 40 if self.how == "cut" else 0]

    def read_together(self, directory: str, files: Sequence[FileStatus]) -> list[bytes | None]:
        contents = super().read_together(directory, files)
        check_sizes(directory, files, contents)
        return contents

    def list_from(self, directory: str, name: str) -> list[FileStatus]:
        if self.put_name and self.lists == "fails":
            raise StoreError("Still broken.")
        found = super().list_from(directory, name)
        is_stale = self.put_name and self.lists == "lacks it"
        return [file for file in found if not (is_stale and file.name == self.put_name)]


@pytest.mark.parametrize("how", ["cut", "absent", "empty"])
class TestWrongReadBack:
    """The file of a commit whose put has failed is there, and the storage does not show it at first."""

    @pytest.fixture
    def existing(self, log: DeltaLog) -> DeltaLog:
        create(log, "old")
        return log

    def test_it_is_not_committed_again(self, existing: DeltaLog, how: str) -> None:
        transaction = DeltaLog(Misread(how), existing.path).start_transaction()
        assert transaction.commit([add_file("a")], WRITE) == Committed(1)
        assert existing.latest_version() == 1

    def test_it_is_no_conflict_with_itself(self, existing: DeltaLog, how: str) -> None:
        transaction = DeltaLog(Misread(how), existing.path).start_transaction()
        assert transaction.snapshot is not None
        transaction.record_read_of_whole_table()
        removed = remove_files(transaction.snapshot.with_stats(transaction.snapshot.files), 5)
        assert transaction.commit([*removed, add_file("a")], WRITE) == Committed(1)
        assert not transaction.cancel()
        assert paths(existing) == ["a"]

    @pytest.mark.parametrize(
        "wrong", [{"lists": "fails"}, {"lists": "lacks it"}, {"misreads": 9}], ids=["fails", "lacks", "reads"]
    )
    def test_if_it_stays_wrong_the_outcome_is_unknown(
        self, existing: DeltaLog, how: str, wrong: dict[str, Any]
    ) -> None:
        transaction = DeltaLog(Misread(how, **wrong), existing.path).start_transaction()
        assert isinstance(transaction.try_commit([add_file("a")], WRITE), Unknown)
        assert not transaction.cancel()
        assert existing.latest_version() == 1


class TestCancellation:
    def test_a_cancelled_transaction_never_commits(self, log: DeltaLog) -> None:
        create(log)
        transaction = log.start_transaction()
        assert transaction.cancel() is True
        with pytest.raises(OperationCancelledError):
            transaction.commit([add_file("a")], WRITE)
        assert log.latest_version() == 0

    def test_a_cancellation_between_preparation_and_put(self, log: DeltaLog) -> None:
        create(log)
        transaction = log.start_transaction()
        set_observer(lambda point, facts: point == "commit prepared" and transaction.cancel())
        with pytest.raises(OperationCancelledError):
            transaction.commit([add_file("a")], WRITE)
        assert log.latest_version() == 0

    def test_a_cancellation_after_the_commit_comes_too_late(self, log: DeltaLog) -> None:
        create(log)
        transaction = log.start_transaction()
        transaction.commit([add_file("a")], WRITE)
        assert transaction.cancel() is False

    def test_after_an_interrupted_put_it_does_not_promise_that_nothing_landed(self, log: DeltaLog) -> None:
        create(log)

        class Interrupted(LocalLogStore):
            def put_if_absent(self, path: str, data: bytes) -> None:
                super().put_if_absent(path, data)
                raise KeyboardInterrupt

        transaction = DeltaLog(Interrupted(), log.path).start_transaction()
        with pytest.raises(KeyboardInterrupt):
            transaction.commit([add_file("a")], WRITE)
        assert paths(log) == ["a"]
        assert transaction.cancel() is False

    @pytest.mark.parametrize("lost", [False, True])
    def test_a_cancellation_waits_for_a_put_that_has_begun(self, log: DeltaLog, lost: bool) -> None:
        create(log)

        class SlowStore(LocalLogStore):
            begun = threading.Event()
            go_on = threading.Event()

            def put_if_absent(self, path: str, data: bytes) -> None:
                self.begun.set()
                assert self.go_on.wait(30)
                super().put_if_absent(path, data)

        store = SlowStore()
        transaction = DeltaLog(store, log.path).start_transaction()
        if lost:
            append(log, "winner")
        outcome: list[object] = []

        def commit() -> None:
            try:
                outcome.append(transaction.commit([add_file("a")], WRITE))
            except OperationCancelledError as error:
                outcome.append(error)

        answers: list[bool] = []
        committing = threading.Thread(target=commit)
        cancelling = threading.Thread(target=lambda: answers.append(transaction.cancel()))
        committing.start()
        assert store.begun.wait(30)
        cancelling.start()
        assert answers == []
        store.go_on.set()
        committing.join(30)
        cancelling.join(30)
        if lost:
            assert isinstance(outcome[0], OperationCancelledError)
            assert answers == [True]
            assert paths(log) == ["winner"]
        else:
            assert outcome == [Committed(1)]
            assert answers == [False]
            assert paths(log) == ["a"]


def test_the_observer_is_told_after_the_put(log: DeltaLog) -> None:
    points: list[tuple[str, int, bool]] = []
    set_observer(
        lambda point, facts: points.append(
            (point, facts["version"], log.latest_version() == facts["version"])
        )
    )
    create(log)
    append(log, "a")
    assert points == [
        ("commit prepared", 0, False),
        ("commit put", 0, True),
        ("commit prepared", 1, False),
        ("commit put", 1, True),
    ]


def test_a_table_deleted_during_a_transaction(log: DeltaLog) -> None:
    create(log)

    class Vanishing(LocalLogStore):
        def put_if_absent(self, path: str, data: bytes) -> None:
            for file in Path(path).parent.iterdir():
                file.unlink()
            raise FileExistsError(path)

    with pytest.raises(ConcurrentWriteException, match="was deleted"):
        DeltaLog(Vanishing(), log.path).start_transaction().commit([add_file("a")], WRITE)


@pytest.mark.parametrize("moved", ["new", "new/_delta_log"])
def test_a_table_that_is_moved_away_during_a_transaction_stays_away(
    log: DeltaLog, tmp_path: Path, moved: str
) -> None:
    create(log)
    append(log, "a")
    transaction = log.start_transaction()
    (tmp_path / moved).rename(tmp_path / "elsewhere")
    with pytest.raises(ConcurrentWriteException, match="was deleted or moved") as raised:
        transaction.commit([add_file("b")], WRITE)
    assert (raised.value.table, raised.value.version) == (log.path, 2)
    assert not (tmp_path / moved).exists()


class TestTableMadeAnew:
    """A table that was deleted during a transaction, and another one that was made in its place."""

    MADE_ANEW = "was deleted while this operation ran, and another one was made there"

    @pytest.fixture
    def log(self, log: DeltaLog) -> DeltaLog:
        create(log, "a0")
        for version in range(1, 4):
            append(log, f"a{version}")
        return log

    def make_anew(self, log: DeltaLog, versions: int) -> None:
        shutil.rmtree(log.path)
        anew = DeltaLog(LocalLogStore(), log.path)
        create(anew, "b0", id="table-2")
        for version in range(1, versions):
            append(anew, f"b{version}")

    @pytest.mark.parametrize("versions", [1, 4, 6])
    def test_gets_no_commit_for_the_one_before(self, log: DeltaLog, versions: int) -> None:
        transaction = log.start_transaction()
        self.make_anew(log, versions)
        with pytest.raises(ConcurrentWriteException, match=self.MADE_ANEW) as raised:
            transaction.commit([add_file("mine")], WRITE)
        assert (raised.value.table, raised.value.version) == (log.path, 4)
        assert paths(DeltaLog(LocalLogStore(), log.path)) == [f"b{version}" for version in range(versions)]

    @pytest.mark.parametrize("versions", [1, 4, 6])
    def test_where_a_look_at_a_file_is_a_request_it_is_found_after_some_time(
        self, log: DeltaLog, versions: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(LocalLogStore, "lists_whole_directories", False)
        transaction = log.start_transaction()
        self.make_anew(log, versions)
        monkeypatch.setattr(transaction_module, "system_clock", lambda: 2**42)
        with pytest.raises(ConcurrentWriteException, match=self.MADE_ANEW):
            transaction.commit([add_file("mine")], WRITE)
        assert log.snapshot().table_id == "table-2"
        assert len(paths(log)) == versions

    def test_is_not_one_whose_files_were_copied(self, log: DeltaLog, tmp_path: Path) -> None:
        alone, second = log.start_transaction(), log.start_transaction()
        shutil.copytree(log.path, tmp_path / "copy")
        shutil.rmtree(log.path)
        (tmp_path / "copy").rename(log.path)
        assert alone.commit([add_file("b")], WRITE) == Committed(4)
        assert second.commit([add_file("c")], WRITE) == Committed(5)


class TestCleanedUpLog:
    """Commits that came after what a transaction has read, and that the log's clean-up has removed."""

    @pytest.fixture
    def now_ms(self) -> list[int]:
        return [1_000_000]

    @pytest.fixture
    def log(self, tmp_path: Path, now_ms: list[int], monkeypatch: pytest.MonkeyPatch) -> DeltaLog:
        for module in (transaction_module, delta_log_module):
            monkeypatch.setattr(module, "system_clock", lambda: now_ms[0])
        return DeltaLog(LocalLogStore(), str(tmp_path / "t"), clock=lambda: now_ms[0])

    def clean_up(self, log: DeltaLog, now_ms: list[int]) -> None:
        """An hour later the log has what is from version 10 on, of 12 versions."""
        while (version := log.latest_version() + 1) < 12:
            append(log, f"b{version}") if version else create(log, "b0")
        now_ms[0] += 3_600_000
        clean_up(log._files, log.snapshot(), -(2**42))
        assert log.available_versions() == [10, 11]

    @pytest.mark.parametrize("read", [0, 8])
    def test_a_commit_does_not_take_the_name_of_one_that_is_gone(
        self, log: DeltaLog, now_ms: list[int], read: int
    ) -> None:
        create(log, "a0")
        for version in range(1, read + 1):
            append(log, f"a{version}")
        transaction = log.start_transaction()
        self.clean_up(log, now_ms)
        with pytest.raises(ConcurrentWriteException, match=f"commit of version {read + 1}, .*-up") as raised:
            transaction.commit([add_file("mine")], WRITE)
        assert (raised.value.table, raised.value.version) == (log.path, read + 1)
        assert log.commit_versions() == [10, 11]

    def test_nor_does_the_first_commit_of_a_table(self, log: DeltaLog, now_ms: list[int]) -> None:
        transaction = log.start_transaction()
        transaction.update_metadata(new_metadata())
        self.clean_up(log, now_ms)
        with pytest.raises(ConcurrentWriteException, match=r"commit of version 0, .* clean-up"):
            transaction.commit([add_file("mine")], WRITE)
        assert log.commit_versions() == [10, 11]

    def test_nor_does_one_after_a_version_that_was_not_the_newest(
        self, log: DeltaLog, now_ms: list[int]
    ) -> None:
        self.clean_up(log, now_ms)
        append(log, "b12")
        log.checkpoint()
        (Path(log.path) / "_delta_log" / commit_name(11)).unlink()
        with pytest.raises(ConcurrentWriteException, match=r"commit of version 11, .* clean-up"):
            log.start_transaction(read_version=10).commit([add_file("mine")], WRITE)
        assert log.commit_versions() == [10, 12]

    def lose_all_but_the_last(self, log: DeltaLog) -> None:
        log.checkpoint()
        for version in log.commit_versions()[:-1]:
            (Path(log.path) / "_delta_log" / commit_name(version)).unlink()

    def test_nor_does_it_where_it_took_long_to_load_what_was_seen(
        self, log: DeltaLog, now_ms: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        create(log)
        refreshed = DeltaLog._refreshed

        def slowly(self: DeltaLog) -> Any:
            found = refreshed(self)
            now_ms[0] += 45_000
            return found

        with monkeypatch.context() as patch:
            patch.setattr(LocalLogStore, "lists_whole_directories", False)
            patch.setattr(DeltaLog, "_refreshed", slowly)
            transaction = log.start_transaction()
        for version in range(1, 4):
            append(log, f"a{version}")
        self.lose_all_but_the_last(log)
        monkeypatch.setattr(LocalLogStore, "lists_whole_directories", False)
        with pytest.raises(ConcurrentWriteException, match=r"commit of version 1, .* clean-up"):
            transaction.commit([add_file("mine")], WRITE)

    def test_nor_does_the_first_commit_of_a_table_that_another_one_has_made_a_moment_ago(
        self, log: DeltaLog
    ) -> None:
        transaction = log.start_transaction()
        transaction.update_metadata(new_metadata())
        create(log, "b0")
        append(log, "b1")
        self.lose_all_but_the_last(log)
        with pytest.raises(ConcurrentWriteException, match=r"commit of version 0, .* clean-up"):
            transaction.commit([add_file("mine")], WRITE)
        assert log.commit_versions() == [1]

    def test_where_a_look_at_a_file_is_a_request_no_young_commit_is_cleaned_up(
        self, log: DeltaLog, now_ms: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(LocalLogStore, "lists_whole_directories", False)
        now_ms[0] = time.time_ns() // 1_000_000
        create(log)
        log_directory = Path(log.path) / "_delta_log"
        set_time(log_directory / commit_name(0), now_ms[0] - 3_600_000)
        transaction = log.start_transaction()
        for version, age_ms in enumerate((61_000, 59_000, 1_000), 1):
            append(log, f"a{version}")
            set_time(log_directory / commit_name(version), now_ms[0] - age_ms)
            log.checkpoint()
        log.truncate_history(0)
        assert log.commit_versions() == [1, 2, 3]
        assert transaction.commit([add_file("mine")], WRITE) == Committed(4)
        assert paths(log) == ["a1", "a2", "a3", "mine"]

    def test_a_commit_that_takes_long_follows_those_that_are_there(
        self, log: DeltaLog, now_ms: list[int]
    ) -> None:
        create(log)
        alone, second, reader = (log.start_transaction() for _ in range(3))
        reader.record_read_of_whole_table()
        now_ms[0] += 3_600_000
        assert alone.commit([add_file("a")], WRITE) == Committed(1)
        assert second.commit([add_file("b")], WRITE) == Committed(2)
        with pytest.raises(ConcurrentAppendException):
            reader.commit([add_file("c")], WRITE)
        assert paths(log) == ["a", "b"]


def test_a_broken_commit_at_the_version_is_reported(table: HandWrittenTable) -> None:
    table.first_commit()
    transaction = table.log().start_transaction()
    file = table.write(1, b"broken")
    # Nobody can tell whose file it is.
    with pytest.raises(CommitOutcomeUnknownError, match=str(file)) as raised:
        transaction.commit([add_file("a")], WRITE)
    assert isinstance(raised.value.__cause__, CorruptLogError)
    assert not transaction.cancel()


def test_a_log_directory_that_becomes_a_file(log: DeltaLog) -> None:
    transaction = log.start_transaction()
    transaction.update_metadata(new_metadata())
    Path(log.path).write_bytes(b"")
    with pytest.raises(StoreError, match="Nothing was committed"):
        transaction.commit([], WRITE)
