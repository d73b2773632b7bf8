"""Which pairs of operations exclude each other, with what error, and what it says."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pyarrow.compute as pc
import pytest
from pyspark.sql.types import (
    ArrayType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from deltaflow.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    CorruptLogError,
    DeltaConcurrentModificationException,
    DeltaIllegalArgumentException,
    MetadataChangedException,
    ProtocolChangedException,
)
from deltaflow.log import (
    Committed,
    Conflict,
    DeltaLog,
    DomainMetadata,
    Operation,
    OptimisticTransaction,
    SetTransaction,
    remove_files,
    schema_to_string,
)
from deltaflow.log.commits.outcomes import Outcome
from deltaflow.log.protocol.isolation import isolation_of_table
from tests.log.hand_written import SCHEMA as SCHEMA_OF_NEW
from tests.log.hand_written import (
    WRITE,
    HandWrittenTable,
    add,
    add_file,
    meta_data,
    new_metadata,
    protocol,
    remove,
)
from tests.log.histories import class_of

SCHEMA = StructType(
    [StructField("id", LongType()), StructField("part", IntegerType()), StructField("day", DateType())]
)
SERIALIZABLE, WRITE_SERIALIZABLE = "Serializable", "WriteSerializable"
PART_1, PART_2 = pc.field("part") == 1, pc.field("part") == 2

Act = Callable[[OptimisticTransaction], list[Any]]


def data(path: str, part: int | None, *, data_change: bool = True) -> Any:
    values = {"part": None if part is None else str(part), "day": "2024-01-01"}
    return add_file(path, partition_values=values, data_change=data_change)


def partitioned(log: DeltaLog, isolation: str = SERIALIZABLE, **configuration: str) -> DeltaLog:
    """Version 0: two files in each of the partitions 1 and 2, metadata domains allowed."""
    transaction = log.start_transaction()
    transaction.update_metadata(
        new_metadata(
            schema_string=schema_to_string(SCHEMA),
            partition_columns=["part", "day"],
            configuration={
                "delta.isolationLevel": isolation,
                "delta.feature.domainMetadata": "supported",
                **configuration,
            },
        )
    )
    transaction.commit([data(f"{part}{name}", part) for part in (1, 2) for name in "ab"], WRITE)
    return log


def insert(part: int) -> Act:
    return lambda transaction: [data(f"inserted-{id(transaction)}", part)]


def update(part: int, file: str | None = None) -> Act:
    """UPDATE, DELETE, MERGE of one partition; of one file in it, which other statistics ruled in."""

    def act(transaction: OptimisticTransaction) -> list[Any]:
        found = transaction.record_read_of_partitions(pc.field("part") == part)
        if file is not None:
            found = found.filter(pc.equal(found["path"], file))
        assert transaction.snapshot is not None
        removed = remove_files(transaction.snapshot.with_stats(found), 5)
        return [*removed, data(f"updated-{id(transaction)}", part)]

    return act


def overwrite(transaction: OptimisticTransaction) -> list[Any]:
    assert transaction.snapshot is not None
    transaction.record_read_of_whole_table()
    removed = remove_files(transaction.snapshot.with_stats(transaction.snapshot.files), 5)
    return [*removed, data(f"overwritten-{id(transaction)}", 3)]


def optimize(*files: str) -> Act:
    def act(transaction: OptimisticTransaction) -> list[Any]:
        assert transaction.snapshot is not None
        found = transaction.snapshot.files
        found = found.filter(pc.is_in(found["path"], value_set=pc.cast(list(files), "string")))
        transaction.record_read_of_files(found)
        removed = remove_files(transaction.snapshot.with_stats(found), 5, data_change=False)
        return [*removed, data(f"compact-{id(transaction)}", int(files[0][0]), data_change=False)]

    return act


def alter(transaction: OptimisticTransaction) -> list[Any]:
    assert transaction.metadata is not None
    transaction.update_metadata(
        new_metadata(
            schema_string=transaction.metadata.schema_string,
            partition_columns=["part", "day"],
            configuration={**transaction.metadata.configuration, "a": "b"},
        )
    )
    return []


def altering(act: Act) -> Act:
    return lambda transaction: [*alter(transaction), *act(transaction)]


def outcome(log: DeltaLog, winner: Act, loser: Act) -> type[Exception] | None:
    """The class of the error that `loser` gets when `winner` commits first; None if both commit."""
    transaction, rival = log.start_transaction(), log.start_transaction()
    actions = loser(transaction)
    rival.commit(winner(rival), Operation("RIVAL"))
    match transaction.try_commit(actions, WRITE):
        case Conflict(error):
            assert log.latest_version() == 1
            assert error.version == 1
            assert "Version 1 of " in str(error)
            assert "(RIVAL)" in str(error)
            return class_of(error)
        case result:
            assert result == Committed(2)
            return None


BOTH = (SERIALIZABLE, WRITE_SERIALIZABLE)
MATRIX: list[tuple[str, Act, Act, tuple[str, ...], type[Exception] | None]] = [
    ("insert, insert", insert(1), insert(1), BOTH, None),
    ("insert, update of it", insert(1), update(1), (SERIALIZABLE,), ConcurrentAppendException),
    ("insert, update of it", insert(1), update(1), (WRITE_SERIALIZABLE,), None),
    ("insert, update elsewhere", insert(2), update(1), BOTH, None),
    ("insert, update of it and metadata", insert(1), altering(update(1)), BOTH, ConcurrentAppendException),
    ("insert, overwrite", insert(1), overwrite, (SERIALIZABLE,), ConcurrentAppendException),
    ("insert, overwrite", insert(1), overwrite, (WRITE_SERIALIZABLE,), None),
    ("insert, optimize", insert(1), optimize("1a", "1b"), BOTH, None),
    ("update, insert", update(1), insert(1), BOTH, None),
    ("update, update", update(1), update(1), BOTH, ConcurrentAppendException),
    ("update, update elsewhere", update(2), update(1), BOTH, None),
    ("update, update of another file", update(1, "1a"), update(1, "1b"), BOTH, ConcurrentAppendException),
    ("update, optimize", update(1, "1a"), optimize("1a", "1b"), BOTH, ConcurrentDeleteReadException),
    ("update, optimize of others", update(2), optimize("1a", "1b"), BOTH, None),
    ("update, optimize beside", update(1, "1a"), optimize("1b"), BOTH, None),
    ("overwrite, overwrite", overwrite, overwrite, BOTH, ConcurrentAppendException),
    ("overwrite, insert", overwrite, insert(1), BOTH, None),
    ("overwrite, update", overwrite, update(1), BOTH, ConcurrentDeleteReadException),
    ("optimize, insert", optimize("1a", "1b"), insert(1), BOTH, None),
    ("optimize, update", optimize("1a", "1b"), update(1), BOTH, ConcurrentAppendException),
    ("optimize, update elsewhere", optimize("1a", "1b"), update(2), BOTH, None),
    ("optimize, optimize", optimize("1a", "1b"), optimize("1b"), BOTH, ConcurrentDeleteReadException),
    ("optimize, optimize beside", optimize("1a"), optimize("1b"), BOTH, None),
    ("alter, insert", alter, insert(1), BOTH, MetadataChangedException),
    ("alter, optimize", alter, optimize("1a"), BOTH, MetadataChangedException),
    ("alter, alter", alter, alter, BOTH, MetadataChangedException),
    ("insert, alter", insert(1), alter, BOTH, None),
]


@pytest.mark.parametrize(
    ("winner", "loser", "isolation", "error"),
    [
        pytest.param(winner, loser, isolation, error, id=f"{name}, {isolation}")
        for name, winner, loser, isolations, error in MATRIX
        for isolation in isolations
    ],
)
def test_matrix(
    log: DeltaLog, winner: Act, loser: Act, isolation: str, error: type[Exception] | None
) -> None:
    assert outcome(partitioned(log, isolation), winner, loser) is error


def test_two_removals_of_one_file_that_nobody_read(log: DeltaLog) -> None:
    def drop(transaction: OptimisticTransaction) -> list[Any]:
        assert transaction.snapshot is not None
        return list(remove_files(transaction.snapshot.with_stats(transaction.snapshot.files.slice(0, 1)), 5))

    assert outcome(partitioned(log), drop, drop) is ConcurrentDeleteDeleteException


@pytest.mark.parametrize(
    ("one", "other", "error"), [("x", "x", ConcurrentTransactionException), ("x", "y", None)]
)
def test_metadata_domains(log: DeltaLog, one: str, other: str, error: type[Exception] | None) -> None:
    def set_domain(name: str) -> Act:
        return lambda transaction: [DomainMetadata(domain=name, configuration="{}", removed=False)]

    assert outcome(partitioned(log), set_domain(one), set_domain(other)) is error


def cluster_by(*names: str) -> Act:
    def change(transaction: OptimisticTransaction) -> list[Any]:
        transaction.clustering.by(names)
        return []

    return change


def drop_column(name: str) -> Act:
    def change(transaction: OptimisticTransaction) -> list[Any]:
        assert transaction.snapshot is not None
        left = StructType([field for field in transaction.snapshot.schema if field.name != name])
        metadata = transaction.snapshot.metadata
        transaction.update_metadata(msgspec.structs.replace(metadata, schema_string=schema_to_string(left)))
        return []

    return change


@pytest.mark.parametrize(
    ("winner", "loser", "error"),
    [
        (cluster_by("part"), drop_column("part"), MetadataChangedException),
        (drop_column("part"), cluster_by("part"), MetadataChangedException),
        (cluster_by("part"), cluster_by("part"), ConcurrentTransactionException),
        (cluster_by("part"), lambda _: [add_file("a")], None),
    ],
)
def test_no_clustering_column_is_dropped(
    log: DeltaLog, winner: Act, loser: Act, error: type[Exception] | None
) -> None:
    creation = log.start_transaction()
    creation.clustering.by(["id"])
    creation.update_metadata(
        new_metadata(
            schema_string=schema_to_string(SCHEMA_OF_NEW),
            configuration={"delta.columnMapping.mode": "name"},
        )
    )
    creation.commit([], WRITE)
    assert outcome(log, winner, loser) is error
    assert set(log.snapshot().clustering_columns) <= {(name,) for name in log.snapshot().schema.names}


def test_every_winner_is_checked_in_the_order_of_the_versions(log: DeltaLog) -> None:
    transaction = partitioned(log).start_transaction()
    actions = update(1)(transaction)
    for act in (insert(2), insert(1), update(1)):
        rival = log.start_transaction()
        rival.commit(act(rival), WRITE)
    with pytest.raises(ConcurrentAppendException) as raised:
        transaction.commit(actions, WRITE)
    assert raised.value.version == 2


class TestMessages:
    def error(self, log: DeltaLog, winner: Act, loser: Act) -> str:
        transaction, rival = log.start_transaction(), log.start_transaction()
        actions = loser(transaction)
        rival.commit(winner(rival), Operation("RIVAL"))
        with pytest.raises(DeltaConcurrentModificationException) as raised:
            transaction.commit(actions, WRITE)
        assert pickle.loads(pickle.dumps(raised.value)).version == 1
        return str(raised.value)

    def test_a_partition_is_named(self, log: DeltaLog) -> None:
        text = self.error(partitioned(log), insert(1), update(1))
        assert "added data to partition [part=1, day=2024-01-01] (file inserted-" in text
        assert "disjoint partitions do not conflict" in text
        assert "had read version 0" in text
        assert "upgrade" not in text

    def test_a_full_scan_is_named(self, log: DeltaLog) -> None:
        text = self.error(partitioned(log), insert(1), overwrite)
        assert "a full scan of the table blocks concurrent commits" in text
        # It replaces all rows: with a condition it would be another operation.
        assert "condition" not in text

    def test_a_file_is_named_where_there_are_no_partitions(self, log: DeltaLog) -> None:
        creation = log.start_transaction()
        creation.update_metadata(new_metadata())
        creation.commit([add_file("a")], WRITE)

        def read(transaction: OptimisticTransaction) -> list[Any]:
            transaction.record_read_of_partitions(pc.scalar(True))
            return []

        assert "added data to the file b" in self.error(log, lambda _: [add_file("b")], read)

    def test_a_removed_file_is_named(self, log: DeltaLog) -> None:
        text = self.error(partitioned(log), update(1, "1a"), optimize("1a", "1b"))
        assert "removed data from partition [part=1, day=2024-01-01] (file 1a), which this operation" in text

    @pytest.mark.parametrize("info", [[], [{"commitInfo": {"operation": "WRITE"}}]])
    @pytest.mark.parametrize("isolation", BOTH)
    def test_a_commit_that_does_not_say_whether_it_is_blind_is_not(
        self, table: HandWrittenTable, info: list[dict[str, Any]], isolation: str
    ) -> None:
        configuration = {"delta.isolationLevel": isolation}
        table.first_commit(configuration=configuration)
        transaction = table.log().start_transaction()
        transaction.record_read_of_whole_table()
        table.commit(1, *info, add("a"))
        with pytest.raises(ConcurrentAppendException) as raised:
            transaction.commit([add_file("b")], WRITE)
        # No blind append may stand after a serializable commit either.
        assert ("upgrade all writers" in str(raised.value)) == (isolation == "WriteSerializable")

    def test_a_commit_that_removes_would_not_pass_if_it_said_that_it_is_not_blind(
        self, table: HandWrittenTable
    ) -> None:
        table.first_commit(add("0"), configuration={"delta.isolationLevel": "WriteSerializable"})
        transaction = table.log().start_transaction()
        transaction.record_read_of_whole_table()
        table.commit(1, remove("0"), add("a"))
        with pytest.raises(ConcurrentAppendException) as raised:
            transaction.commit([add_file("b")], WRITE)
        assert "upgrade" not in str(raised.value)


class TestProtocolChanges:
    """Three causes."""

    def loser(self, table: HandWrittenTable, *winner: dict[str, Any]) -> str:
        table.first_commit()
        transaction = table.log().start_transaction()
        table.commit(1, *winner)
        with pytest.raises(ProtocolChangedException) as raised:
            transaction.commit([add_file("a")], WRITE)
        return str(raised.value)

    def test_an_upgrade(self, table: HandWrittenTable) -> None:
        text = self.loser(table, {"commitInfo": {"operation": "UPGRADE PROTOCOL"}}, protocol(1, 3))
        assert "The table was upgraded" in text

    def test_a_replacement(self, table: HandWrittenTable) -> None:
        info = {"commitInfo": {"operation": "CREATE OR REPLACE TABLE"}}
        assert "created or replaced the table" in self.loser(table, info, protocol(), meta_data())

    @pytest.mark.parametrize(
        ("operation", "cause"),
        [("WRITE", "write to an empty path at once"), ("CREATE TABLE", "created or replaced the table")],
    )
    def test_an_empty_path(self, log: DeltaLog, operation: str, cause: str) -> None:
        transaction, rival = log.start_transaction(), log.start_transaction()
        rival.update_metadata(new_metadata())
        rival.commit([], Operation(operation))
        transaction.update_metadata(new_metadata(id="table-2", configuration={"delta.appendOnly": "true"}))
        with pytest.raises(ProtocolChangedException, match=cause) as raised:
            transaction.commit([add_file("a")], WRITE)
        assert "differ from those that this operation gives it: delta.appendOnly" in str(raised.value)
        assert "had found no table" in str(raised.value)


STRICT = StructType([StructField("id", LongType(), nullable=False), StructField("part", StringType())])


def with_column_metadata(**metadata: Any) -> str:
    columns = [StructField("id", LongType(), metadata=metadata), StructField("part", StringType())]
    return schema_to_string(StructType(columns))


def nested(*, nullable: bool) -> dict[str, str]:
    element = ArrayType(StructType([StructField("x", LongType(), nullable)]), containsNull=True)
    return {"schema_string": schema_to_string(StructType([StructField("id", element)]))}


class TestCreationRaces:
    """Rows are checked by the rules of the table that their writer wants, and may be in no other table."""

    def outcome(self, log: DeltaLog, wanted: dict[str, Any], *created: dict[str, Any]) -> Outcome:
        loser = log.start_transaction()
        loser.update_metadata(new_metadata(**wanted))
        for metadata in created:
            rival = log.start_transaction()
            rival.update_metadata(new_metadata(**metadata))
            rival.commit([], WRITE)
        return loser.try_commit([add_file("a")], WRITE)

    @pytest.mark.parametrize(
        "created",
        [
            {"schema_string": schema_to_string(STRICT)},
            {"schema_string": with_column_metadata(__CHAR_VARCHAR_TYPE_STRING="varchar(3)")},
            {
                "schema_string": with_column_metadata(
                    **{"delta.invariants": '{"expression": {"expression": "id > 0"}}'}
                )
            },
            {"configuration": {"delta.constraints.positive": "id > 0"}},
            {"configuration": {"delta.appendOnly": "true"}},
            {"configuration": {"delta.feature.domainMetadata": "supported"}},
        ],
        ids=["not null", "varchar", "invariant", "constraint", "append-only", "feature"],
    )
    @pytest.mark.parametrize("has_them_at_once", [True, False])
    @pytest.mark.parametrize("is_the_loser_stricter", [True, False])
    def test_other_rules(
        self, log: DeltaLog, created: dict[str, Any], *, has_them_at_once: bool, is_the_loser_stricter: bool
    ) -> None:
        commits = [created] if has_them_at_once else [{}, created]
        outcome = self.outcome(log, *((created, {}) if is_the_loser_stricter else ({}, *commits)))
        assert isinstance(outcome, Conflict)
        assert isinstance(outcome.error, ProtocolChangedException)

    @pytest.mark.parametrize("is_loser_stricter", [True, False])
    def test_nested_nullability(self, log: DeltaLog, *, is_loser_stricter: bool) -> None:
        outcome = self.outcome(
            log, nested(nullable=not is_loser_stricter), nested(nullable=is_loser_stricter)
        )
        assert isinstance(outcome, Conflict)
        assert "columns id differ" in str(outcome.error)

    @pytest.mark.parametrize(
        "name", ["delta.generationExpression", "CURRENT_DEFAULT", "delta.identity.start"]
    )
    def test_columns_with_expressions(self, table: HandWrittenTable, name: str) -> None:
        """The loser's rows were not made by them."""
        loser = table.log().start_transaction()
        loser.update_metadata(new_metadata())
        action = meta_data()
        action["metaData"]["schemaString"] = with_column_metadata(**{name: "1"})
        table.commit(0, protocol(1, 6), action)
        outcome = loser.try_commit([add_file("a")], WRITE)
        assert isinstance(outcome, Conflict)
        assert "columns id differ" in str(outcome.error)

    @pytest.mark.parametrize(
        "created",
        [
            {},
            {"description": "another comment", "created_time": 7},
            {"schema_string": with_column_metadata(comment="the key")},
            {"schema_string": schema_to_string(StructType(SCHEMA_OF_NEW.fields[::-1]))},
        ],
        ids=["the same", "comment of the table", "comment", "order"],
    )
    def test_the_same_rules(self, log: DeltaLog, created: dict[str, Any]) -> None:
        assert self.outcome(log, {}, created) == Committed(1)


class TestReads:
    @pytest.mark.parametrize(
        ("predicate", "found"),
        [
            (PART_1, ["1a", "1b"]),
            (PART_1 | PART_2, ["1a", "1b", "2a", "2b"]),
            (pc.field("part") > 1, ["2a", "2b"]),
            (pc.field("day") == date(2024, 1, 1), ["1a", "1b", "2a", "2b", "n"]),
            (pc.field("part").is_null(), ["n"]),
            (~PART_1, ["2a", "2b"]),
            (pc.scalar(False), []),
        ],
        ids=str,
    )
    def test_files_of_partitions(self, log: DeltaLog, predicate: Any, found: list[str]) -> None:
        partitioned(log).start_transaction().commit([data("n", None)], WRITE)
        files = log.start_transaction().record_read_of_partitions(predicate)
        assert sorted(files["path"].to_pylist()) == found

    @pytest.mark.parametrize(
        "predicate", [pc.field("id") == 1, pc.field("part") == "x", pc.field("part")], ids=str
    )
    def test_what_is_no_condition_on_the_partition_columns(self, log: DeltaLog, predicate: Any) -> None:
        transaction = partitioned(log).start_transaction()
        with pytest.raises(DeltaIllegalArgumentException, match="no condition on the partition columns"):
            transaction.record_read_of_partitions(predicate)

    def test_paths_are_compared_by_what_they_mean(self, table: HandWrittenTable) -> None:
        table.first_commit(add("a%20b"), add(f"{table.path}/c"), add("d"))
        log = table.log()
        for number, path in enumerate([f"file:{table.path}/a%20b", "c"], start=1):
            transaction = log.start_transaction()
            assert transaction.snapshot is not None
            transaction.record_read_of_files(transaction.snapshot.files)
            table.commit(number, remove(path))
            with pytest.raises(ConcurrentDeleteReadException):
                transaction.commit([add_file("e")], WRITE)

    def test_a_partition_value_that_is_none_of_its_type_may_match(self, table: HandWrittenTable) -> None:
        table.first_commit(schema=SCHEMA, partition_columns=["part", "day"])
        transaction = table.log().start_transaction()
        transaction.record_read_of_partitions(PART_1)
        table.commit(1, add("a", partitionValues={"part": "two", "day": "2024-01-01"}))
        with pytest.raises(ConcurrentAppendException):
            transaction.commit([SetTransaction(app_id="q", version=1)], WRITE)

    def test_timestamps_without_a_zone_are_of_the_session(self, table: HandWrittenTable) -> None:
        schema = StructType([StructField("id", LongType()), StructField("at", TimestampType())])
        texts = {"a": "2024-01-01 00:00:00", "b": "2024-01-01 08:00:00", "c": "2024-01-01T08:00:00.000000Z"}
        adds = [add(path, partitionValues={"at": text}) for path, text in texts.items()]
        table.first_commit(*adds, schema=schema, partition_columns=["at"])
        predicate = pc.field("at") == datetime(2024, 1, 1, 8, tzinfo=UTC)
        for zone, found in {"America/Los_Angeles": ["a", "c"], "UTC": ["b", "c"]}.items():
            transaction = table.log().start_transaction({"spark.sql.session.timeZone": zone})
            assert sorted(transaction.record_read_of_partitions(predicate)["path"].to_pylist()) == found
        transaction = table.log().start_transaction({"spark.sql.session.timeZone": "America/Los_Angeles"})
        transaction.record_read_of_partitions(predicate)
        table.commit(1, add("d", partitionValues={"at": "2024-01-01 08:00:00.0"}))
        table.commit(2, add("e", partitionValues={"at": "2024-01-01 00:00:00.0"}))
        with pytest.raises(ConcurrentAppendException, match="e"):
            transaction.commit([SetTransaction(app_id="q", version=1)], WRITE)

    def test_files_of_partitions_of_a_damaged_log(self, table: HandWrittenTable) -> None:
        wrong = add("a", partitionValues={"part": "two", "day": "2024-01-01"})
        table.first_commit(wrong, schema=SCHEMA, partition_columns=["part", "day"])
        with pytest.raises(CorruptLogError, match="'two'"):
            table.log().start_transaction().record_read_of_partitions(PART_1)

    def test_a_read_without_a_table_needs_that_there_is_none(self, log: DeltaLog) -> None:
        transaction = log.start_transaction()
        transaction.update_metadata(new_metadata(id="table-2"))
        assert transaction.record_read_of_partitions(pc.scalar(True)).num_rows == 0
        rival = log.start_transaction()
        rival.update_metadata(new_metadata())
        rival.commit([], WRITE)
        with pytest.raises(ProtocolChangedException, match="requires that there is no table"):
            transaction.commit([add_file("a")], WRITE)


class TestIsolationLevels:
    def level(self, log: DeltaLog, act: Act) -> tuple[str | None, bool | None]:
        transaction = log.start_transaction()
        version = transaction.commit(act(transaction), WRITE).version
        (commit,) = log.commits(version)
        assert commit.commit_info is not None
        return commit.commit_info.isolation_level, commit.commit_info.is_blind_append

    @pytest.mark.parametrize("isolation", BOTH)
    def test_what_a_commit_says(self, log: DeltaLog, isolation: str) -> None:
        partitioned(log, isolation)
        assert self.level(log, insert(1)) == (isolation, True)
        assert self.level(log, update(1)) == (isolation, False)
        assert self.level(log, optimize("2a", "2b")) == ("SnapshotIsolation", False)
        assert self.level(log, lambda _: []) == (isolation, True)
        assert self.level(log, alter) == (isolation, True)

    @pytest.mark.parametrize("value", ["SnapshotIsolation", "none"])
    def test_what_a_table_may_not_ask_for(self, log: DeltaLog, value: str) -> None:
        with pytest.raises(DeltaIllegalArgumentException, match=f"delta.isolationLevel is '{value}'"):
            partitioned(log, value)
        assert not log.exists()

    def test_what_a_table_there_asks_for_in_vain_can_be_known_before_a_commit(
        self, table: HandWrittenTable
    ) -> None:
        table.first_commit(configuration={"delta.isolationLevel": "none"})
        metadata = table.log().snapshot().metadata
        with pytest.raises(DeltaIllegalArgumentException, match=r"delta.isolationLevel is 'none'") as raised:
            isolation_of_table(metadata, table.path)
        assert raised.value.table == table.path

    def test_a_table_that_asks_for_nothing(self, log: DeltaLog) -> None:
        transaction = log.start_transaction()
        transaction.update_metadata(new_metadata())
        transaction.commit([], WRITE)
        assert self.level(log, lambda _: [add_file("a")]) == ("Serializable", True)
