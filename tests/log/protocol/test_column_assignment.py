"""Ids and physical names of columns, as they are given and kept."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from deltaflow.errors import DeltaUnsupportedOperationException
from deltaflow.log import Metadata, schema_to_string
from deltaflow.log.protocol.column_assignment import with_highest_id, with_mapped_columns
from deltaflow.log.protocol.column_mapping import table_schema, without_mapping
from tests.log.hand_written import new_metadata

NESTED = StructType(
    [
        StructField("id", LongType()),
        StructField("a b", ArrayType(StructType([StructField("x", LongType())]))),
        StructField("m", MapType(StringType(), StructType([StructField("y", LongType())]))),
    ]
)
MAX_ID = "delta.columnMapping.maxColumnId"


def metadata(schema: StructType, mode: str = "name", **properties: str) -> Metadata:
    configuration = {} if mode == "none" else {"delta.columnMapping.mode": mode}
    return new_metadata(schema_string=schema_to_string(schema), configuration=configuration | properties)


def assigned(wanted: Metadata, before: Metadata | None = None, **how: bool) -> Metadata:
    prefix = "new" if before is None else "later"
    numbers = itertools.count(1)
    return with_mapped_columns(wanted, before, lambda: f"{prefix}-{next(numbers)}", "t", **how)


def mapping(found: Metadata) -> dict[str, tuple[int, str]]:
    """Id and physical name of every column, by its path."""
    result: dict[str, tuple[int, str]] = {}

    def add(data_type: Any, path: str) -> None:
        for field in getattr(data_type, "fields", ()):
            place = f"{path}{field.name}"
            result[place] = (
                field.metadata["delta.columnMapping.id"],
                field.metadata["delta.columnMapping.physicalName"],
            )
            add(field.dataType, f"{place}.")
        for inner in ("elementType", "keyType", "valueType"):
            if hasattr(data_type, inner):
                add(getattr(data_type, inner), path)

    add(table_schema(found, table="t"), "")
    return result


@pytest.mark.parametrize("mode", ["name", "id"])
def test_every_column_of_a_new_table_gets_an_id_and_a_name(mode: str) -> None:
    found = assigned(metadata(NESTED, mode))
    assert mapping(found) == {
        "id": (1, "col-new-1"),
        "a b": (2, "col-new-2"),
        "a b.x": (3, "col-new-3"),
        "m": (4, "col-new-4"),
        "m.y": (5, "col-new-5"),
    }
    assert found.configuration[MAX_ID] == "5"
    assert without_mapping(table_schema(found, table="t")) == NESTED
    assert assigned(found, found) == found


def test_a_table_that_is_there_keeps_the_names_in_its_files() -> None:
    found = assigned(metadata(NESTED), metadata(NESTED, "none"))
    assert mapping(found) == {
        "id": (1, "id"),
        "a b": (2, "a b"),
        "a b.x": (3, "x"),
        "m": (4, "m"),
        "m.y": (5, "y"),
    }
    # A new table of which there are files does so, too.
    assert mapping(assigned(metadata(NESTED), keeps_names=True)) == mapping(found)
    # A column of another version is new, even if its name is that of an old one.
    dropped = metadata(StructType(table_schema(found, table="t").fields[1:]), **{MAX_ID: "5"})
    again = StructType([*table_schema(dropped, table="t").fields, StructField("id", LongType())])
    added = assigned(metadata(again, **{MAX_ID: "5"}), dropped)
    assert mapping(added)["id"] == (6, "col-later-1")
    assert added.configuration[MAX_ID] == "6"


def test_columns_that_are_overwritten_keep_theirs_if_their_type_stays() -> None:
    before = assigned(metadata(NESTED))
    changed = StructType([NESTED["m"], StructField("ID", LongType()), StructField("a b", LongType())])
    found = mapping(assigned(metadata(changed, **{MAX_ID: before.configuration[MAX_ID]}), before))
    assert found["m"] == mapping(before)["m"]
    assert found["m.y"] == mapping(before)["m.y"]
    assert found["ID"] == mapping(before)["id"]
    assert found["a b"] == (6, "col-later-1")
    # A table that is replaced in the same mode does not fall behind its ids.
    replaced = assigned(metadata(StructType([StructField("z", LongType())])), before, replaces_table=True)
    assert mapping(replaced) == {"z": (6, "col-later-1")}


@pytest.mark.parametrize(("old", "new"), [("none", "id"), ("name", "id"), ("id", "name"), ("name", "none")])
def test_other_changes_of_the_mode_are_refused(old: str, new: str) -> None:
    before = metadata(NESTED, old) if old == "none" else assigned(metadata(NESTED, old))
    with pytest.raises(DeltaUnsupportedOperationException, match=f"from '{old}' to '{new}'") as refused:
        assigned(metadata(NESTED, new), before)
    assert refused.value.error_class == "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE"
    # A table that is replaced has no files that would need the old mode.
    replaced = assigned(metadata(NESTED, new), before, replaces_table=True)
    assert replaced.configuration.get("delta.columnMapping.mode", "none") == new


def test_a_column_is_not_added_while_the_mapping_begins() -> None:
    more = StructType([*NESTED.fields, StructField("more", LongType())])
    with pytest.raises(DeltaUnsupportedOperationException, match="more") as refused:
        assigned(metadata(more), metadata(NESTED, "none"))
    assert refused.value.error_class == "DELTA_UNSUPPORTED_COLUMN_MAPPING_SCHEMA_CHANGE"


def test_the_highest_id_never_falls() -> None:
    early, late = (assigned(metadata(NESTED, **{MAX_ID: number})) for number in ("9", "10"))
    assert (early.configuration[MAX_ID], late.configuration[MAX_ID]) == ("14", "15")
    assert with_highest_id(early, late).configuration[MAX_ID] == "15"
    assert with_highest_id(late, early).configuration[MAX_ID] == "15"
    assert with_highest_id(metadata(NESTED, "none"), late) == metadata(NESTED, "none")
