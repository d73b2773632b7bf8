"""A process that writes into a table beside others; run by the module `races`.

Arguments: path of the table, name of the writer, "append" or "rewrite", number of operations. Says
"ready", begins at a line on its standard input, and prints as JSON what it committed and which
conflicts it met, an object for each operation.

Every appender begins as if there were no table. A rewriter adds 1 to `touched` of all rows of a
partition, or deletes them, or compacts their files.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from deltaflow.errors import DeltaConcurrentModificationException
from deltaflow.log import (
    AddFile,
    DeltaLog,
    Metadata,
    Operation,
    OptimisticTransaction,
    remove_files,
    schema_to_string,
)
from deltaflow.store import LogStore

PARTITIONS = 8
SCHEMA = StructType(
    [
        StructField("id", StringType()),
        StructField("touched", LongType()),
        StructField("part", IntegerType()),
    ]
)
REWRITES = ("touch", "compact", "touch", "delete")


def write_file(log: DeltaLog, name: str, part: int, rows: pa.Table, *, data_change: bool = True) -> AddFile:
    content = pa.BufferOutputStream()
    pq.write_table(rows, content)
    data = content.getvalue().to_pybytes()
    store_of(log).put_if_absent(f"{log.path}/{name}", data)
    return AddFile(
        path=name,
        partition_values={"part": str(part)},
        size=len(data),
        modification_time=time.time_ns() // 1_000_000,
        data_change=data_change,
        stats=json.dumps({"numRecords": rows.num_rows}),
    )


def store_of(log: DeltaLog) -> LogStore:
    """The store that holds the data files as well, wherever the table is."""
    return log._files.store


def rows_of(ids: list[str], touched: list[int]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.string()), "touched": pa.array(touched, pa.int64())})


def append(log: DeltaLog, writer: str, number: int, creation: OptimisticTransaction | None) -> dict[str, Any]:
    name, part = f"{writer}-{number}", number % PARTITIONS
    file = write_file(log, f"{name}.parquet", part, rows_of([name], [0]))
    transaction = log.start_transaction() if creation is None else creation
    version = transaction.commit([file], Operation("WRITE", {"mode": "Append"})).version
    return {"operation": "append", "id": name, "part": part, "version": version}


def rewrite(log: DeltaLog, writer: str, number: int) -> dict[str, Any]:
    operation, part = REWRITES[number % len(REWRITES)], (number * 5 + len(writer)) % PARTITIONS
    transaction = log.start_transaction()
    assert transaction.snapshot is not None
    done = {"operation": operation, "part": part, "base": transaction.read_version}
    data_change = operation != "compact"
    if data_change:
        files = transaction.record_read_of_partitions(pc.field("part") == part)
    else:
        values = pc.map_lookup(transaction.snapshot.files["partition_values"], "part", "first")
        files = transaction.snapshot.files.filter(pc.equal(values, str(part)))
        transaction.record_read_of_files(files)
    actions: list[Any] = remove_files(
        transaction.snapshot.with_stats(files), time.time_ns() // 1_000_000, data_change=data_change
    )
    if operation != "delete" and actions:
        contents = [store_of(log).read(f"{log.path}/{path}") for path in files["path"].to_pylist()]
        rows = pa.concat_tables([pq.ParquetFile(pa.BufferReader(content)).read() for content in contents])
        if operation == "touch":
            rows = rows.set_column(1, "touched", pc.add(rows["touched"], 1))
        name = f"{writer}-{number}-{transaction.read_version}.parquet"
        actions.append(write_file(log, name, part, rows, data_change=data_change))
    try:
        return {**done, "version": transaction.commit(actions, Operation(operation.upper())).version}
    except DeltaConcurrentModificationException as error:
        return {**done, "error": type(error).__name__, "winner": error.version}


def main(path: str, writer: str, role: str, operations: int) -> None:
    log = DeltaLog.for_table(path)
    store_of(log).make_directory(log.path)
    creation = log.start_transaction()
    creation.update_metadata(
        Metadata(
            id=f"id-{writer}",
            schema_string=schema_to_string(SCHEMA),
            partition_columns=["part"],
            created_time=1,
        )
    )
    print("ready", flush=True)
    sys.stdin.readline()
    if role == "append":
        results = [append(log, writer, n, creation if n == 0 else None) for n in range(operations)]
    else:
        while not log.exists():
            time.sleep(0.01)
        results = [rewrite(log, writer, number) for number in range(operations)]
    print(json.dumps(results), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
