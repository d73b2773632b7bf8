"""Tables with column mapping, written by hand: files by pyarrow, commits line by line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol

NAMES = ["id", "a,b", "s p", "l", "m", "größe.`1`"]
"""The columns of MappedTable; the last one partitions it."""


def mapped(name: str, data_type: DataType, number: int) -> StructField:
    """A column with the id `number` and the physical name `c-<number>`."""
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c-{number}"}
    return StructField(name, data_type, metadata=metadata)


SCHEMA = StructType(
    [
        mapped("id", LongType(), 1),
        mapped("a,b", LongType(), 2),
        mapped("s p", StructType([mapped("x.y", LongType(), 4), mapped("z", StringType(), 5)]), 3),
        mapped("l", ArrayType(StructType([mapped("e", LongType(), 7)])), 6),
        mapped("m", MapType(StringType(), StructType([mapped("v", LongType(), 9)])), 8),
        mapped("größe.`1`", StringType(), 10),
    ]
)


def row(i: int, part: str | None) -> tuple[Any, ...]:
    """The row that a file of MappedTable has for the id `i`, as Spark collects it."""
    return i, i + 100, (i * 10, f"z{i}"), [(i,)], {"k": (i,)}, part


class MappedTable(HandWrittenTable):
    """A table of SCHEMA with five rows in each of three files: ids from 0 and 10 in the partition u, from 5
    in that of null. The last file is a commit of its own.

    In the mode `id` a file's columns have names of other ones, so that only their ids tell what they are.
    """

    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(path)
        self.mode = mode
        self.commit(
            0, protocol(2, 5), self.meta_data(SCHEMA), self.file(range(5), "u"), self.file(range(5, 10), None)
        )
        self.commit(1, self.file(range(10, 15), "u"))

    def meta_data(self, schema: StructType, **configuration: str) -> dict[str, Any]:
        """The metaData action of the table with a schema."""
        return meta_data(
            schema=schema,
            partition_columns=[schema.fields[-1].name],
            configuration={
                "delta.columnMapping.mode": self.mode,
                "delta.columnMapping.maxColumnId": "10",
                **configuration,
            },
        )

    def file(self, ids: Iterable[int], part: str | None) -> dict[str, Any]:
        """Writes a file; its add action."""
        values = list(ids)

        def field(number: int, arrow_type: pa.DataType) -> pa.Field:
            name = f"c-{number}"
            if self.mode == "id":
                name = {1: "c-2", 2: "c-1"}.get(number, f"x-{number}")
            return pa.field(name, arrow_type, metadata={"PARQUET:field_id": str(number)})

        struct = pa.struct([field(4, pa.int64()), field(5, pa.string())])
        element = pa.struct([field(7, pa.int64())])
        value = pa.struct([field(9, pa.int64())])
        inner = [pa.array(values, pa.int64())]
        columns = {
            field(1, pa.int64()): pa.array(values, pa.int64()),
            field(2, pa.int64()): pa.array([i + 100 for i in values], pa.int64()),
            field(3, struct): pa.StructArray.from_arrays(
                [pa.array([i * 10 for i in values], pa.int64()), pa.array([f"z{i}" for i in values])],
                fields=list(struct),
            ),
            field(6, pa.list_(element)): pa.ListArray.from_arrays(
                pa.array(range(len(values) + 1), pa.int32()),
                pa.StructArray.from_arrays(inner, fields=list(element)),
                type=pa.list_(element),
            ),
            field(8, pa.map_(pa.string(), value)): pa.MapArray.from_arrays(
                pa.array(range(len(values) + 1), pa.int32()),
                pa.array(["k"] * len(values)),
                pa.StructArray.from_arrays(inner, fields=list(value)),
                type=pa.map_(pa.string(), value),
            ),
        }
        name = f"part-{values[0]}.parquet"
        pq.write_table(
            pa.table(list(columns.values()), schema=pa.schema(list(columns))), f"{self.path}/{name}"
        )
        low, high = (
            {"c-1": i, "c-2": i + 100, "c-3": {"c-4": i * 10, "c-5": f"z{i}"}}
            for i in (values[0], values[-1])
        )
        nulls = {"c-1": 0, "c-2": 0, "c-3": {"c-4": 0, "c-5": 0}, "c-6": 0, "c-8": 0}
        stats = {"numRecords": len(values), "minValues": low, "maxValues": high, "nullCount": nulls}
        size = Path(self.path, name).stat().st_size
        return add(name, size=size, partitionValues={"c-10": part}, stats=json.dumps(stats))
