"""Every commit gives the rows of its new files ids, where a table has row tracking."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltaflow.errors import (
    CorruptLogError,
    DeltaAnalysisException,
    DeltaIllegalArgumentException,
    DeltaIllegalStateException,
    DeltaUnsupportedOperationException,
)
from deltaflow.log import (
    Committed,
    Conflict,
    DeltaLog,
    DomainMetadata,
    Metadata,
    Operation,
    OptimisticTransaction,
    add_files,
    remove_files,
)
from deltaflow.log.protocol.row_tracking import DOMAIN
from deltaflow.store import LocalLogStore
from tests.log.hand_written import WRITE, HandWrittenTable, add_file, meta_data, new_metadata, protocol
from tests.tables import actions, commit_info, edit_commit

ENABLED = {"delta.enableRowTracking": "true"}
SUPPORTED = {"delta.feature.rowTracking": "supported"}


def file(name: str, rows: int = 3, **fields: Any) -> Any:
    return add_file(name, stats=json.dumps({"numRecords": rows}), **fields)


def tracked(log: DeltaLog, configuration: dict[str, str] = ENABLED, *files: Any) -> DeltaLog:
    transaction = log.start_transaction()
    transaction.update_metadata(new_metadata(configuration=configuration))
    transaction.commit(list(files), WRITE)
    return log


def commit(log: DeltaLog, *added: Any) -> int:
    return log.start_transaction().commit(list(added), WRITE).version


def ids(log: DeltaLog) -> dict[str, tuple[int | None, int | None]]:
    columns = log.snapshot().files.select(["path", "base_row_id", "default_row_commit_version"])
    return {row[0]: row[1:] for row in zip(*columns.to_pydict().values(), strict=True)}


def mark(log: DeltaLog) -> int:
    number: int = json.loads(log.snapshot().domains[DOMAIN].configuration)["rowIdHighWaterMark"]
    return number


@pytest.mark.parametrize("configuration", [ENABLED, SUPPORTED])
def test_new_files_follow_the_highest_id(log: DeltaLog, configuration: dict[str, str]) -> None:
    tracked(log, configuration, file("a", 3), file("b", 2))
    commit(log, file("c", 0), file("d", 1))
    assert ids(log) == {"a": (0, 0), "b": (3, 0), "c": (5, 1), "d": (5, 1)}
    assert mark(log) == 5
    names = set(log.snapshot().protocol.writer_features or ())
    assert {"rowTracking", "domainMetadata"} <= names
    log.checkpoint()
    fresh = DeltaLog(LocalLogStore(), log.path)
    assert ids(fresh) == ids(log)
    commit(fresh, file("e", 1))
    assert ids(fresh)["e"] == (6, 2)


def test_a_commit_without_rows_sets_no_domain(log: DeltaLog) -> None:
    tracked(log)
    commit(log, file("a", 0))
    assert actions(log.path, "domainMetadata") == []
    assert ids(log) == {"a": (0, 1)}


def test_a_table_without_the_feature_gives_none(log: DeltaLog) -> None:
    tracked(log, {}, file("a"))
    assert ids(log) == {"a": (None, None)}
    assert "tags" not in commit_info(log.path)


def test_a_writer_that_loses_gets_ids_after_the_winners(log: DeltaLog) -> None:
    tracked(log)
    loser, snapshot = log.start_transaction(), log.snapshot()
    commit(log, file("winner", 4))
    commit(log, file("second", 4))
    assert loser.snapshot is not None
    assert loser.snapshot.version == snapshot.version
    assert loser.commit([file("loser", 2)], WRITE).version == 3
    assert ids(log) == {"winner": (0, 1), "second": (4, 2), "loser": (8, 3)}
    assert mark(log) == 9


@pytest.mark.parametrize("rival_enables", [False, True])
def test_files_that_are_added_again_for_ids_do_not_lose_those_that_a_rival_gave(
    log: DeltaLog, rival_enables: bool
) -> None:
    """Two that enable row tracking at once: rows whose ids somebody may have read keep them."""
    tracked(log, SUPPORTED)
    commit(log, file("a"), file("b"))

    def again(transaction: OptimisticTransaction) -> Any:
        assert transaction.snapshot is not None
        files = transaction.snapshot.with_stats(transaction.snapshot.files)
        transaction.record_read_of_files(files)
        without = (
            msgspec.structs.replace(add, base_row_id=None, default_row_commit_version=None)
            for add in add_files(files, data_change=False)
        )
        return transaction.try_commit(list(without), Operation("ROW TRACKING BACKFILL"))

    loser, rival = log.start_transaction(), log.start_transaction()
    assert isinstance(again(rival), Committed)
    given = ids(log)
    if rival_enables:
        enabling = log.start_transaction()
        before = log.snapshot().metadata.configuration
        enabling.update_metadata(new_metadata(configuration={**before, **ENABLED}))
        enabling.commit([], Operation("SET TBLPROPERTIES"))
    outcome = again(loser)
    assert isinstance(outcome, Conflict) is rival_enables
    assert (ids(log) == given) is rival_enables


def test_a_commit_whose_answer_was_lost_has_the_ids_of_its_file(tmp_path: Path) -> None:
    class Losing(LocalLogStore):
        def put_if_absent(self, path: str, data: bytes) -> None:
            super().put_if_absent(path, data)
            if path.endswith("1.json"):
                raise ConnectionError("the answer was lost")

    log = tracked(DeltaLog(Losing(), str(tmp_path / "t")))
    assert commit(log, file("a")) == 1
    assert commit(log, file("b")) == 2
    assert ids(log) == {"a": (0, 1), "b": (3, 2)}


def test_the_number_of_rows_comes_from_the_footer_where_statistics_lack_it(log: DeltaLog) -> None:
    tracked(log)
    for name in ("a", "b"):
        pq.write_table(pa.table({"id": range(7)}), Path(log.path, name))
    size = Path(log.path, "a").stat().st_size
    commit(log, add_file("a", size=size), add_file("b", size=size, stats='{"nullCount":{}}'), file("c", 1))
    assert ids(log) == {"a": (0, 1), "b": (7, 1), "c": (14, 1)}


def files_of(log: DeltaLog) -> pa.Table:
    snapshot = log.snapshot()
    return snapshot.with_stats(snapshot.files)


def test_files_that_are_added_again_keep_their_ids(log: DeltaLog) -> None:
    tracked(log, ENABLED, file("a"), file("b"))
    commit(log, *add_files(files_of(log), data_change=False))
    assert ids(log) == {"a": (0, 0), "b": (3, 0)}
    assert actions(log.path, "domainMetadata") == []
    gone = remove_files(files_of(log), 1)
    log.start_transaction().commit(gone, WRITE)
    assert [
        (remove["baseRowId"], remove["defaultRowCommitVersion"]) for remove in actions(log.path, "remove")
    ] == [
        (0, 0),
        (3, 0),
    ]
    commit(log, file("c"))
    assert ids(log) == {"c": (6, 3)}
    assert log.snapshot().tombstones["base_row_id"].to_pylist() == [0, 3]


def test_ids_that_come_back_after_the_feature_was_dropped_raise_the_highest(log: DeltaLog) -> None:
    tracked(log)
    commit(log, file("restored", 5, base_row_id=10, default_row_commit_version=0), file("new", 1))
    assert ids(log) == {"restored": (10, 0), "new": (15, 1)}
    assert mark(log) == 15


def test_suspended_files_get_no_ids_and_lose_theirs(log: DeltaLog) -> None:
    tracked(log, SUPPORTED, file("a"))
    transaction = log.start_transaction()
    assert transaction.metadata is not None
    suspended = {**transaction.metadata.configuration, "delta.rowTrackingSuspended": "true"}
    transaction.update_metadata(new_metadata(configuration=suspended))
    transaction.commit([*list(add_files(files_of(log))), file("b")], WRITE)
    assert ids(log) == {"a": (None, None), "b": (None, None)}
    assert mark(log) == 2


class TestMetadata:
    def change(self, log: DeltaLog, **configuration: str) -> OptimisticTransaction:
        transaction = log.start_transaction()
        before = log.snapshot().metadata.configuration
        transaction.update_metadata(new_metadata(configuration={**before, **configuration}))
        return transaction

    def names(self, metadata: Metadata) -> Sequence[str]:
        return [value for name, value in sorted(metadata.configuration.items()) if "materialized" in name]

    def test_the_names_of_the_columns_stay(self, log: DeltaLog) -> None:
        tracked(log)
        version, row_id = self.names(log.snapshot().metadata)
        assert row_id.startswith("_row-id-col-")
        assert version.startswith("_row-commit-version-col-")
        transaction = log.start_transaction()
        transaction.update_metadata(new_metadata(description="new"))
        transaction.commit([], WRITE)
        assert self.names(log.snapshot().metadata) == [version, row_id]

    def test_users_do_not_name_them(self, log: DeltaLog) -> None:
        tracked(log)
        name = "delta.rowTracking.materializedRowIdColumnName"
        with pytest.raises(DeltaIllegalArgumentException, match=name) as raised:
            self.change(log, **{name: "mine"})
        assert raised.value.error_class == "DELTA_CANNOT_MODIFY_TABLE_PROPERTY"

    @pytest.mark.parametrize("case", [str, str.upper])
    def test_no_column_has_such_a_name(self, log: DeltaLog, case: Callable[[str], str]) -> None:
        tracked(log)
        _, row_id = self.names(log.snapshot().metadata)
        row_id = case(row_id)
        schema = meta_data()["metaData"]["schemaString"].replace('"part"', json.dumps(row_id))
        with pytest.raises(DeltaAnalysisException, match="_row-id-col-") as raised:
            log.start_transaction().update_metadata(new_metadata(schema_string=schema))
        assert raised.value.error_class == "DELTA_ADDING_COLUMN_WITH_INTERNAL_NAME_FAILED"

    def test_it_is_not_enabled_and_suspended(self, log: DeltaLog) -> None:
        tracked(log)
        with pytest.raises(DeltaAnalysisException) as raised:
            self.change(log, **{"delta.rowTrackingSuspended": "true"})
        assert raised.value.error_class == "DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION"

    def test_a_commit_does_not_enable_it_for_files_without_ids(self, log: DeltaLog) -> None:
        tracked(log, {}, file("a"))
        with pytest.raises(DeltaIllegalStateException, match="1 files") as raised:
            self.change(log, **ENABLED).commit([file("b")], WRITE)
        assert raised.value.error_class == "DELTA_ROW_TRACKING_BACKFILL_NEEDED"
        replaced = [file("b"), *remove_files(files_of(log), 1)]
        self.change(log, **ENABLED).commit(replaced, WRITE)
        assert ids(log) == {"b": (0, 1)}


def test_what_a_commit_says_of_the_ids_of_rows_that_it_copies(log: DeltaLog) -> None:
    tracked(log)
    commit(log, file("a"))
    assert commit_info(log.path)["tags"] == {"delta.rowTracking.preserved": "true"}
    for keeps, said in ((False, "false"), (True, "true")):
        transaction = log.start_transaction()
        transaction.keeps_row_ids = keeps
        transaction.commit([file(f"copy-{keeps}"), *remove_files(files_of(log), 1)], WRITE)
        assert commit_info(log.path)["tags"] == {"delta.rowTracking.preserved": said}


def test_the_domain_belongs_to_the_feature(log: DeltaLog) -> None:
    tracked(log, ENABLED, file("a"))
    for removed in (False, True):
        domain = DomainMetadata(domain=DOMAIN, configuration='{"rowIdHighWaterMark":0}', removed=removed)
        with pytest.raises(DeltaUnsupportedOperationException, match="belongs to the system"):
            log.start_transaction().commit([domain], WRITE)


@pytest.mark.breaks_protocol
def test_a_domain_that_tells_no_id_stops_writers(log: DeltaLog) -> None:
    tracked(log, ENABLED, file("a"))
    edit_commit(log.path, lambda action: action.get("domainMetadata", {}).update(configuration="{}"))
    with pytest.raises(CorruptLogError, match=DOMAIN):
        commit(DeltaLog(LocalLogStore(), log.path), file("b"))


@pytest.mark.breaks_protocol
def test_a_table_that_enables_it_without_the_names(table: HandWrittenTable) -> None:
    features = ["domainMetadata", "rowTracking"]
    table.commit(0, protocol(1, 7, writerFeatures=features), meta_data(configuration=ENABLED))
    commit(table.log(), file("a"))
    assert ids(table.log()) == {"a": (0, 1)}
