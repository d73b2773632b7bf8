"""A process that creates one table in a race and then appends to it; run by test_races.

Arguments: path of the table, name of the writer, number of appends. Says "ready", begins at a line on
its standard input, and prints as JSON the files that it committed by version, and the errors it met.
"""

from __future__ import annotations

import json
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import LongType, StringType, StructField, StructType

from deltaflow.errors import DeltaConcurrentModificationException
from deltaflow.log import AddFile, DeltaLog, Metadata, Operation, remove_files, schema_to_string

SCHEMA = StructType([StructField("id", LongType()), StructField("writer", StringType())])


def write_file(table: str, writer: str, number: int) -> AddFile:
    name = f"{writer}-{number}.parquet"
    rows = pa.table({"id": pa.array([number], pa.int64()), "writer": [writer]})
    pq.write_table(rows, os.path.join(table, name))
    return AddFile(
        path=name,
        partition_values={},
        size=os.path.getsize(os.path.join(table, name)),
        modification_time=1,
        data_change=True,
        stats='{"numRecords":1}',
    )


def main(path: str, writer: str, appends: int) -> None:
    log = DeltaLog.for_table(path)
    os.makedirs(path, exist_ok=True)
    files = [write_file(log.path, writer, number) for number in range(appends + 1)]
    creation = log.start_transaction()
    creation.update_metadata(
        Metadata(
            id=f"id-{writer}", schema_string=schema_to_string(SCHEMA), partition_columns=[], created_time=1
        )
    )
    committed: dict[int, str] = {}
    errors: list[str] = []
    print("ready", flush=True)
    sys.stdin.readline()
    write = Operation("WRITE", {"mode": "Append", "partitionBy": "[]"})
    committed[creation.commit([files[0]], write).version] = files[0].path
    for number, file in enumerate(files[1:], start=1):
        transaction = log.start_transaction()
        actions: list[AddFile] = [file]
        # Every fourth commit of one writer replaces its own files of before: it depends on what it read.
        removed = []
        if writer == "overwriter" and number % 4 == 0 and transaction.snapshot is not None:
            mine = [path.startswith(writer) for path in transaction.snapshot.files["path"].to_pylist()]
            removed = remove_files(transaction.snapshot.files.filter(pa.array(mine)), 5)
        try:
            committed[transaction.commit([*removed, *actions], write).version] = file.path
        except DeltaConcurrentModificationException as error:
            errors.append(error.error_class)
    print(json.dumps({"committed": committed, "errors": errors}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
