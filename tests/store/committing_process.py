"""A process that commits to one table in a race; run by the module `race`.

Its argument is JSON: path, storage_options, writer, commits. Says "ready", begins at a line on its
standard input, and prints as JSON the files that it committed by version.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql.types import LongType, StructField, StructType

from deltaflow.log import AddFile, DeltaLog, Metadata, Operation, schema_to_string

SCHEMA = StructType([StructField("id", LongType())])
WRITE = Operation("WRITE", {"mode": "Append", "partitionBy": "[]"})


def main(path: str, storage_options: dict[str, object], writer: str, commits: int) -> None:
    log = DeltaLog.for_table(path, storage_options=storage_options)
    committed: dict[int, str] = {}
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(commits):
        transaction = log.start_transaction()
        if transaction.snapshot is None:
            transaction.update_metadata(
                Metadata(id=writer, schema_string=schema_to_string(SCHEMA), partition_columns=[])
            )
        name = f"{writer}-{number}.parquet"
        add = AddFile(path=name, partition_values={}, size=1, modification_time=1, data_change=True)
        committed[transaction.commit([add], WRITE).version] = name
    print(json.dumps(committed), flush=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
