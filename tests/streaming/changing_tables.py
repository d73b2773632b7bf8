"""Tables whose columns change, for streams to read: files by pyarrow, commits by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T

from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol, remove
from tests.mapped_tables import mapped

ARROW = {"bigint": pa.int64(), "int": pa.int32(), "string": pa.string()}


class ChangingTable(HandWrittenTable):
    """A table with the columns id, a and b, mapped by name unless `is_mapped` is false.

    Version 0 has no rows. Each change is a commit, and returns its version.
    """

    def __init__(self, path: Path, *, is_mapped: bool = True, table_id: str = "table-1") -> None:
        super().__init__(path)
        self.is_mapped, self.table_id = is_mapped, table_id
        self.next_version = self.next_column = 0
        self.configuration = {"delta.columnMapping.mode": "name"} if is_mapped else {}
        self.fields: list[T.StructField] = []
        self.partition_columns: list[str] = []
        for name, data_type in (("id", T.LongType()), ("a", T.StringType()), ("b", T.IntegerType())):
            self.fields.append(self._field(name, data_type))
        self.protocol = protocol(2, 5) if is_mapped else protocol(1, 2)
        self.write_next(self.protocol, self.meta_data())

    def _field(self, name: str, data_type: T.DataType) -> T.StructField:
        self.next_column += 1
        if not self.is_mapped:
            return T.StructField(name, data_type)
        self.configuration["delta.columnMapping.maxColumnId"] = str(self.next_column)
        return mapped(name, data_type, self.next_column)

    def meta_data(self) -> dict[str, Any]:
        return meta_data(
            table_id=self.table_id,
            schema=T.StructType(self.fields),
            configuration=self.configuration,
            partition_columns=self.partition_columns,
        )

    def write_next(self, *actions: dict[str, Any]) -> int:
        info = {"commitInfo": {"timestamp": 0, "operation": "TEST", "operationParameters": {"by": "hand"}}}
        self.commit(self.next_version, info, *actions)
        self.next_version += 1
        return self.next_version - 1

    def file(self, *ids: int) -> dict[str, Any]:
        """Writes a file with these ids; its add action."""
        values = {"bigint": list(ids), "int": list(ids), "string": [f"v{i}" for i in ids]}
        columns = {}
        for field in self.fields:
            if field.name in self.partition_columns:
                continue
            kind = field.dataType.simpleString()
            columns[self.physical(field)] = pa.array(values[kind], ARROW[kind])
        name = f"f{self.next_version:02}-{ids[0]:03}.parquet"
        pq.write_table(pa.table(columns), f"{self.path}/{name}")
        by_name = {field.name: field for field in self.fields}
        partition = {self.physical(by_name[name]): str(ids[0]) for name in self.partition_columns}
        stats = json.dumps({"numRecords": len(ids)})
        size = Path(self.path, name).stat().st_size
        return add(
            name, size=size, stats=stats, partitionValues=partition, modificationTime=self.next_version
        )

    def physical(self, field: T.StructField) -> str:
        name: str = field.metadata.get("delta.columnMapping.physicalName", field.name)
        return name

    def append(self, *ids: int, files: int = 1) -> int:
        return self.write_next(*(self.file(*ids[number::files]) for number in range(files)))

    def rename(self, old: str, new: str, *actions: dict[str, Any]) -> int:
        self.fields = [
            T.StructField(new, f.dataType, f.nullable, f.metadata) if f.name == old else f
            for f in self.fields
        ]
        return self.write_next(self.meta_data(), *actions)

    def drop(self, name: str) -> int:
        self.fields = [field for field in self.fields if field.name != name]
        return self.write_next(self.meta_data())

    def add_column(self, name: str, data_type: T.DataType) -> int:
        self.fields.append(self._field(name, data_type))
        return self.write_next(self.meta_data())

    def retype(self, name: str, data_type: T.DataType) -> int:
        self.fields = [
            T.StructField(f.name, data_type, f.nullable, f.metadata) if f.name == name else f
            for f in self.fields
        ]
        return self.write_next(self.meta_data())

    def set(self, name: str, value: str) -> int:
        self.configuration[name] = value
        return self.write_next(self.meta_data())

    def overwrite(self, *ids: int, removed: str, partition_columns: list[str]) -> int:
        self.partition_columns = partition_columns
        return self.write_next(self.meta_data(), remove(removed), self.file(*ids))
