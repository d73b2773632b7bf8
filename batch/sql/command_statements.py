"""Commands on whole tables, as Spark's parser or the patterns of Delta's own statements give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StringType

from deltaflow.batch.commands.clone import CLONED, clone_table
from deltaflow.batch.commands.clone_target import clone_target
from deltaflow.batch.commands.convert import columns_of_ddl, convert_to_delta
from deltaflow.batch.commands.create_table_like import create_table_like
from deltaflow.batch.commands.describe_detail import DETAIL, describe_detail
from deltaflow.batch.commands.describe_history import HISTORY, describe_history
from deltaflow.batch.commands.generate import generate
from deltaflow.batch.commands.repair import REPAIRED, repair
from deltaflow.batch.commands.restore import RESTORED, restore_to_timestamp, restore_to_version
from deltaflow.batch.commands.show_create_table import show_create_table
from deltaflow.batch.commands.vacuum import deletable_files, delete_files, find_by, retention_hours_of
from deltaflow.batch.files.partitions import partition_folders
from deltaflow.batch.optimize.optimize import optimize
from deltaflow.batch.optimize.optimize_metrics import OPTIMIZED
from deltaflow.batch.optimize.purge import files_to_purge
from deltaflow.batch.read.load_path import version_number
from deltaflow.batch.result_rows import schema_of
from deltaflow.batch.sql_names import quoted_name
from deltaflow.errors import DeltaAnalysisException
from deltaflow.log import DeltaLog, Operation, remove_files
from deltaflow.log.maintenance.vacuum_candidates import Find
from deltaflow.log.protocol.features import check_writable
from deltaflow.log.protocol.properties import SESSION_TIME_ZONE
from deltaflow.spark.scan.file_index import hadoop_path
from deltaflow.spark.sql.statements import Rows, Statement, refused, statement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PATHS = schema_of(path=StringType())


@statement("Vacuum", changes=True, output=_PATHS)
def _vacuum(statement: Statement) -> Rows:
    """VACUUM table [FULL | LITE] [USING INVENTORY …] [RETAIN n HOURS] [DRY RUN]: what would be deleted, or
    the table's path."""
    fields, settings = statement.fields, statement.settings
    path, hours = statement.path, retention_hours_of(fields["retentionHours"])
    find = fields.get("find") or _vacuum_find(statement)
    if fields["dryRun"]:
        return [(path,) for path in deletable_files(path, hours, settings, (), find)["path"].to_pylist()]
    return [(delete_files(path, hours, settings, fields.get("checkpoints", ()), find),)]


def _vacuum_find(statement: Statement) -> Find:
    fields, session = statement.fields, statement.session
    if fields["full"] and fields["lite"]:
        raise refused("VACUUM FULL LITE", statement.table, "Leave one of both words out.")
    match fields.get("inventory"):
        case {"table": parts}:
            inventory: DataFrame | None = session.table(quoted_name(parts))
        case {"query": query}:
            inventory = session.sql(query)
        case _:
            inventory = None
    lite = bool(fields["lite"]) if fields["full"] or fields["lite"] else None
    return find_by(statement.settings, statement.table, lite=lite, inventory=inventory)


@statement("Fsck", changes=True, output=REPAIRED)
def _fsck(statement: Statement) -> Rows:
    """FSCK REPAIR TABLE table [DRY RUN]."""
    fields = statement.fields
    found = repair(
        statement.path,
        statement.settings,
        dry_run=fields["dryRun"],
        removes_files_without_vectors=fields.get("removesFilesWithoutVectors", False),
    )
    return [tuple(row.values()) for row in found.to_pylist()]


@statement("ShowCreateTable", table_field="child", output=schema_of(createtab_stmt=StringType()))
def _show_create_table(statement: Statement) -> Rows:
    assert statement.table is not None
    if statement.fields.get("asSerde"):
        raise refused("SHOW CREATE TABLE AS SERDE", statement.table, "Leave AS SERDE out.")
    return [(show_create_table(statement.session, statement.table),)]


def _makes_delta(fields: Mapping[str, Any]) -> bool:
    return str(fields["provider"]).lower() == "delta"


@statement("CreateTableLike", table_field="source", concerns=_makes_delta)
@statement("CreateTableLikeCommand", table_field="sourceTable", concerns=_makes_delta)
def _create_like(statement: Statement) -> Rows:
    """Spark 4.2 and later have the first of both plans."""
    fields = statement.fields
    if statement.table is None or (fields["provider"] is not None and not _makes_delta(fields)):
        raise refused(
            "CREATE TABLE LIKE between Delta and other formats",
            statement.table,
            "Use CREATE TABLE … USING … AS SELECT * FROM … WHERE false.",
        )
    if "name" in fields:
        target, location = fields["name"], fields["location"]
    else:
        name = fields["targetTable"]
        target = [part for part in (name["catalog"], name["database"], name["table"]) if part is not None]
        location = fields["fileFormat"]["locationUri"]
    create_table_like(
        statement.session,
        statement.table,
        target,
        location=location,
        properties=fields["properties"],
        if_not_exists=fields["ifNotExists"],
    )
    return ()


@statement("Optimize", changes=True, output=OPTIMIZED)
def _optimize(statement: Statement) -> Rows:
    fields = statement.fields
    metrics = optimize(
        statement.session,
        statement.path,
        statement.settings,
        fields["where"],
        fields["zOrderBy"],
        full=fields["full"],
    )
    return [(hadoop_path(statement.path), metrics)]


@statement("Reorg", changes=True, output=OPTIMIZED)
def _reorg(statement: Statement) -> Rows:
    """REORG TABLE … APPLY (PURGE)."""
    where = statement.fields["where"]
    metrics = optimize(statement.session, statement.path, statement.settings, where, purge=files_to_purge)
    return [(hadoop_path(statement.path), metrics)]


@statement("Restore", changes=True, output=RESTORED)
def _restore(statement: Statement) -> Rows:
    spark, path, settings = statement.session, statement.path, statement.settings
    version, timestamp = statement.fields["version"], statement.fields["timestamp"]
    if version is not None:
        number = version_number(version) if isinstance(version, str) else version
        assert number is not None
        return restore_to_version(spark, path, number, settings)
    return restore_to_timestamp(spark, path, timestamp, settings)


@statement("Convert", concerns=lambda fields: True)
def _convert(statement: Statement) -> Rows:
    fields = statement.fields
    given = None if fields["partitionedBy"] is None else columns_of_ddl(fields["partitionedBy"])
    convert_to_delta(
        statement.session, quoted_name(fields["table"]), given, collect_stats=not fields["noStatistics"]
    )
    return ()


@statement("Generate")
def _generate(statement: Statement) -> Rows:
    assert statement.table is not None
    generate(statement.table, statement.fields["mode"])
    return ()


@statement("Clone", concerns=lambda fields: True, output=CLONED)
def _clone(statement: Statement) -> Rows:
    fields = statement.fields
    target = clone_target(
        statement.session,
        quoted_name(fields["target"]),
        replaces=bool(fields.get("replace")),
        must_exist=bool(fields.get("mustExist")),
        location=fields.get("location"),
    )
    if fields.get("ifNotExists") and target.exists:
        return []
    row = clone_table(
        statement.session,
        statement.table or quoted_name(fields["table"]),
        target,
        {name: str(value) for name, value in (fields.get("properties") or {}).items()},
        statement.settings,
        is_shallow=bool(fields.get("isShallow")),
        version=fields.get("version"),
        timestamp=fields.get("timestamp"),
    )
    return [row]


@statement("DescribeHistory", output=HISTORY)
def _describe_history(statement: Statement) -> Rows:
    return describe_history(statement.path, statement.fields["limit"])


@statement("DescribeDetail", output=DETAIL)
def _describe_detail(statement: Statement) -> Rows:
    assert statement.table is not None
    return describe_detail(statement.table)


@statement("TruncateTable", changes=True)
def _truncate(statement: Statement) -> Rows:
    log = DeltaLog.for_table(statement.path)
    snapshot = log.snapshot()
    check_writable(snapshot.protocol, snapshot.metadata, log.path, snapshot.version)
    transaction = log.start_transaction(statement.settings, read_version=snapshot.version)
    transaction.record_read_of_whole_table()
    removes = remove_files(snapshot.with_stats(snapshot.files), transaction.log.clock())
    transaction.commit(removes, Operation("TRUNCATE", {}, {"numRemovedFiles": str(len(removes))}))
    return ()


@statement("ShowColumns", table_field="child")
def _show_columns(statement: Statement) -> Rows:
    return [(name,) for name in DeltaLog.for_table(statement.path).snapshot().schema.names]


@statement("ShowPartitions")
def _show_partitions(statement: Statement) -> Rows:
    snapshot = DeltaLog.for_table(statement.path).snapshot()
    if not snapshot.partition_columns:
        raise DeltaAnalysisException(
            error_class="DELTA_SHOW_PARTITION_IN_NON_PARTITIONED_TABLE", table_name=snapshot.path
        )
    pattern = statement.fields["pattern"]
    wanted = {} if pattern is None else pattern["spec"]
    time_zone = SESSION_TIME_ZONE.of(statement.settings, snapshot.path)
    return [(folder,) for folder in partition_folders(snapshot, wanted, time_zone)]
