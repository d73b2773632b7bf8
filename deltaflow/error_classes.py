"""The conditions of errors, by delta-spark's names where it has them. See deltaflow.errors."""

from __future__ import annotations

from typing import TypeAlias

Entry: TypeAlias = "tuple[str, str | None] | tuple[str, str | None, str]"

CATALOGUE: dict[str, Entry] = {
    "DATATYPE_MISMATCH.CAST_WITHOUT_SUGGESTION": (
        "42K09",
        "Cannot cast the value for column {column_name} from {given} to {wanted}. Give a value of the type "
        "of the column, or cast it to one that can stand for it.",
    ),
    "DELTA_ADD_COLUMN_PARENT_NOT_STRUCT": (
        "42KD3",
        "Cannot add {column_name} because its parent is not a StructType. Found {other}.",
    ),
    "DELTA_ADD_CONSTRAINTS": (
        "0A000",
        "Please use ALTER TABLE ADD CONSTRAINT to add CHECK constraints.",
    ),
    "DELTA_ADDING_COLUMN_WITH_INTERNAL_NAME_FAILED": (
        "42000",
        "Failed to add column {column_name} because the name is reserved: by it, readers of data files have "
        "the ids or the places of rows. Give the column another name.",
    ),
    "DELTA_AGGREGATE_IN_CHECK_CONSTRAINT": (
        "42621",
        "Found {expr} in a CHECK constraint. Aggregate expressions are not allowed in CHECK constraints, "
        "which are checked for each row by itself.",
    ),
    "DELTA_AGGREGATE_IN_GENERATED_COLUMN": (
        "42621",
        "Column {column_name} cannot be generated as {expr}: an aggregate is of many rows, and each row is "
        "made by itself. Use columns of the row alone.",
    ),
    "DELTA_AGGREGATION_NOT_SUPPORTED": (
        "42903",
        "Aggregate functions are not supported in the {operation} {predicate}. Nor are window functions, "
        "functions that make rows, and functions defined in SQL of arguments that may differ each time.",
    ),
    "DELTA_AMBIGUOUS_PATHS_IN_CREATE_TABLE": (
        "42613",
        "CREATE TABLE contains two different locations: {identifier} and {location}. "
        "Remove the LOCATION clause.",
    ),
    "DELTA_APPLY_CHANGES_ARGUMENT": (
        "42616",
        "apply_changes: {argument} {problem}.",
    ),
    "DELTA_APPLY_CHANGES_COLUMN": (
        "42703",
        "apply_changes: the changes have no column {column_name}. Their columns are {given}.",
    ),
    "DELTA_APPLY_CHANGES_MISMATCH": (
        "42616",
        "apply_changes: changes were applied to the table in another way before: {differences}. Apply them "
        "as before, or to a new table from the start.",
    ),
    "DELTA_APPLY_CHANGES_NO_HISTORY": (
        "42616",
        "apply_changes: the table has no columns __START_AT and __END_AT, so that its rows have no place in "
        "a history. Apply the changes to a new table.",
    ),
    "DELTA_APPLY_CHANGES_RENAMED": (
        "42K09",
        "apply_changes: the table has the columns {new}, which its whole history at {history} lacks, and "
        "lacks the columns {old}. Rename or drop columns of the history as those of the table: the table "
        "takes its rows from there, and would lose what the columns hold.",
    ),
    "DELTA_APPLY_CHANGES_REPLACED": (
        "55000",
        "apply_changes: the table was made anew, and {directory} holds what an earlier table remembered: its "
        "deletes would hold for the new rows. Remove that directory, or apply the changes to another table.",
    ),
    "DELTA_APPLY_CHANGES_RESERVED": (
        "42939",
        "apply_changes: the source has columns whose names are reserved: {names}. Rename them in the source, "
        "or leave them out of it.",
    ),
    "DELTA_APPLY_CHANGES_TYPE": (
        "42K09",
        "apply_changes: the column {column_name} of the changes is {given}, and that of the table is "
        "{wanted}. Cast the column of the source; or, if the table widens types (delta.enableTypeWidening), "
        "ALTER TABLE … ALTER COLUMN {column_name} TYPE {given}, and start the stream again.",
    ),
    "DELTA_APPLY_CHANGES_TYPE_BESIDE": (
        "42K09",
        "apply_changes: the table at {beside} cannot keep values of the target as they are: {differences}. "
        "Give the columns of both the same types: ALTER TABLE delta.`{beside}` SET TBLPROPERTIES "
        "('delta.enableTypeWidening' = 'true'), then ALTER TABLE delta.`{beside}` ALTER COLUMN … TYPE …; or "
        "so in the target, where its type is the narrower one. Then start the stream again.",
    ),
    "DELTA_CANNOT_CHANGE_LOCATION": (
        "42601",
        "Cannot change the 'location' of the Delta table using SET TBLPROPERTIES.",
    ),
    "DELTA_CANNOT_CHANGE_PROVIDER": (
        "42939",
        "'provider' is a reserved table property, and cannot be altered.",
    ),
    "DELTA_CANNOT_DROP_CHECK_CONSTRAINT_FEATURE": (
        "0AKDE",
        "Cannot drop the table feature checkConstraints while the table has CHECK constraints. Drop these "
        "first: {constraints}.",
    ),
    "DELTA_CANNOT_MODIFY_APPEND_ONLY": (
        "42809",
        "This table only allows appends, and the operation removes data. "
        "Set the table property delta.appendOnly to false to permit it.",
    ),
    "DELTA_CANNOT_MODIFY_TABLE_PROPERTY": (
        "42939",
        "The Delta table configuration {prop} cannot be specified by the user. Leave it out.",
        "UnsupportedOperationException",
    ),
    "DELTA_CANNOT_SET_LOCATION_ON_PATH_IDENTIFIER": (
        "42613",
        "Cannot change the location of a path based table.",
    ),
    "DELTA_CANNOT_REPLACE_MISSING_TABLE": (
        "42P01",
        "Table {table_name} cannot be replaced as it does not exist. Use CREATE OR REPLACE TABLE to "
        "create the table.",
    ),
    "DELTA_CANNOT_RESTORE_TABLE_VERSION": (
        "22003",
        "Cannot restore table to version {requested}. Available versions: {available}.",
    ),
    "DELTA_CANNOT_RESTORE_TIMESTAMP_EARLIER": (
        "22003",
        "Cannot restore table to timestamp ({timestamp}) as it is before the earliest version available. "
        "Please use a timestamp after ({earliest}).",
    ),
    "DELTA_CANNOT_RESTORE_TIMESTAMP_GREATER": (
        "22003",
        "Cannot restore table to timestamp ({timestamp}) as it is after the latest version available. "
        "Please use a timestamp before ({latest}).",
    ),
    "DELTA_CANNOT_UPDATE_ARRAY_FIELD": (
        "429BQ",
        "Cannot update {table_name} field {field_name} type: update the element by updating "
        "{field_name}.element.",
    ),
    "DELTA_CANNOT_UPDATE_MAP_FIELD": (
        "429BQ",
        "Cannot update {table_name} field {field_name} type: update a map by updating {field_name}.key or "
        "{field_name}.value.",
    ),
    "DELTA_CANNOT_UPDATE_STRUCT_FIELD": (
        "429BQ",
        "Cannot update {table_name} field {field_name} type: update struct by adding, deleting, or updating "
        "its fields.",
    ),
    "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION": ("428FT", "Cannot use all columns for partition columns."),
    "DELTA_CANNOT_VACUUM_LITE": (
        "55000",
        "VACUUM LITE cannot delete all eligible files, as some files are not referenced by the Delta log: it "
        "no longer has version {missing}, at which no vacuum has looked. Run VACUUM FULL.",
    ),
    "DELTA_CANNOT_WRITE_EMPTY_SCHEMA": (
        "428GU",
        "No data file can be written: {what} has no fields, or only such of type void. "
        "Add one of another type.",
    ),
    "DELTA_CDC_NON_CONSTANT_ARGUMENT": (
        "42K0H",
        "The {argument} argument (position {position}) of the function {function} has to be a constant, but "
        "it is: {expression}.",
    ),
    "DELTA_CDC_READ_NULL_RANGE_BOUNDARY": (
        "22004",
        "The start and the end of a change data feed cannot be null. Give a version or a timestamp.",
    ),
    "DELTA_CDC_START_VERSION_AFTER_LATEST": (
        "22003",
        "Start version {start} for change data feed exceeds the latest table version {latest}. Begin at an "
        "earlier version, or set spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled to true "
        "to get no rows.",
    ),
    "DELTA_CHANGES_OF_SEVERAL_TABLES": (
        "22023",
        "The messages are of several tables: {tables}. Name the one to read: Debezium(table='{example}').",
    ),
    "DELTA_CHANGE_COLUMNS_UNKNOWN": (
        "42704",
        "The messages have no schema part, and there is no table yet, so the columns are unknown. Give them: "
        "Debezium(schema='id INT, …').",
    ),
    "DELTA_CHANGE_COLUMN_OF_TWO_TYPES": (
        "42K09",
        "The messages of a batch have a column {column_name} of different types, {types}, since it was "
        "altered in the source. Begin a new table with a new snapshot of the source.",
    ),
    "DELTA_CHANGE_COLUMN_UNREADABLE": (
        "42K09",
        "The messages have a column {column_name} that Spark has no type for: {found}.",
    ),
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA": (
        "0AKDC",
        "Retrieving table changes between version {start} and {end} failed because of an incompatible data "
        "schema. Your read schema is {read_schema} at version {read_version}, but we found an incompatible "
        "data schema at version {incompatible_version}. If possible, retrieve the changes in smaller ranges: "
        "each is read with the schema at its end if {config} is `endVersion` and the table has column "
        "mapping.",
    ),
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE": (
        "0AKDC",
        "Retrieving table changes between version {start} and {end} failed because of an incompatible schema "
        "change. Your read schema is {read_schema} at version {read_version}, but we found an incompatible "
        "schema change at version {incompatible_version}. If possible, query table changes separately from "
        "version {start} to {incompatible_version} - 1, and from version {incompatible_version} to {end}.",
    ),
    "DELTA_CHANGE_KEYS_NOT_UNIQUE": (
        "23505",
        "Rows have the same values in the columns {keys}, which the option computeUpdates "
        "names, so nobody knows which of them has changed. Name columns that tell rows apart.",
    ),
    "DELTA_CHANGE_RECORD_UNREADABLE": (
        "22023",
        "A record cannot be read as a change: {reason}. Nothing of the batch was applied. Mend the record, "
        "or leave it out by a filter of the frame that apply_changes is given, and start the query again.",
    ),
    "DELTA_CHANGE_SNAPSHOT_OLD": (
        "22023",
        "The snapshot of version {snapshot} is not newer than the newest change in the table, of {newest}. "
        "Snapshots have to come in the order of their versions, and each of them whole in one batch.",
    ),
    "DELTA_CLONE_AMBIGUOUS_TARGET": (
        "42613",
        "Two paths were provided as the CLONE target so it is ambiguous which to use. An external "
        "location for CLONE was provided at {location} at the same time as the path {target}.",
    ),
    "DELTA_CLONE_UNSUPPORTED_SOURCE": (
        "0AKDC",
        "Unsupported clone source '{name}', whose format is {format}. The supported formats are 'delta' "
        "and 'parquet'.",
    ),
    "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_PARTITIONED_COLUMN": (
        "0AKDC",
        "Data skipping is not supported for partition column '{name}'. "
        "Remove it from delta.dataSkippingStatsColumns.",
    ),
    "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_TYPE": (
        "0AKDC",
        "Data skipping is not supported for column '{name}' of type {data_type}. "
        "Remove it from delta.dataSkippingStatsColumns.",
    ),
    "DELTA_ALTER_TABLE_CLUSTER_BY_ON_PARTITIONED_TABLE_NOT_ALLOWED": (
        "42000",
        "A partitioned table cannot be clustered.",
    ),
    "DELTA_ALTER_TABLE_SET_CLUSTERING_TABLE_FEATURE_NOT_ALLOWED": (
        "42000",
        "The table feature clustering cannot be set by ALTER TABLE SET TBLPROPERTIES. Use ALTER TABLE … "
        "CLUSTER BY (…).",
    ),
    "DELTA_CREATE_TABLE_SET_CLUSTERING_TABLE_FEATURE_NOT_ALLOWED": (
        "42000",
        "The table feature clustering cannot be set by TBLPROPERTIES. Use CREATE TABLE … CLUSTER BY (…).",
    ),
    "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED": (
        "0A000",
        "CLUSTER BY cannot have the columns {columns}: values of their types have no bounds, by which files "
        "could be skipped.",
    ),
    "DELTA_CLUSTERING_COLUMNS_MISMATCH": (
        "42P10",
        "The clustering columns of the write ({provided}) are not those of the table ({existing}).",
    ),
    "DELTA_CLUSTERING_COLUMN_MISSING_STATS": (
        "22000",
        "The clustering columns {columns} need statistics, and the table collects none of them. Set "
        "delta.dataSkippingStatsColumns or delta.dataSkippingNumIndexedCols so that it does.",
    ),
    "DELTA_CLUSTERING_WITH_PARTITION_PREDICATE": (
        "0A000",
        "OPTIMIZE of a clustered table has no predicate. Leave out: {predicates}.",
    ),
    "DELTA_CLUSTERING_WITH_ZORDER_BY": (
        "42613",
        "OPTIMIZE of a clustered table has no ZORDER BY. Leave it out: ({columns}).",
    ),
    "DELTA_CLUSTER_BY_INVALID_NUM_COLUMNS": (
        "54000",
        "CLUSTER BY has at most {limit} columns, and these are {number}.",
    ),
    "DELTA_CLUSTER_BY_WITH_PARTITIONED_BY": (
        "42613",
        "A table cannot be clustered and partitioned at the same time. Leave out one of the two.",
    ),
    "DELTA_CREATE_TABLE_WITH_DIFFERENT_CLUSTERING": (
        "42KD7",
        "The table at this place is clustered by ({existing}), and not by ({specified}).",
    ),
    "DELTA_UNSUPPORTED_DROP_CLUSTERING_COLUMN": (
        "0AKDC",
        "Cannot drop clustering columns: {columns}. Cluster the table by others first (ALTER TABLE … CLUSTER "
        "BY).",
    ),
    "DELTA_COLUMN_NOT_FOUND": ("42703", "Unable to find the column {column_name} given [{column_list}]."),
    "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA": (
        "42703",
        "Couldn't find column {name} in: {schema}.",
    ),
    "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE": (
        "22005",
        "Column {column_name} is an array or map with void in it, which Delta doesn't write. Cast it.",
    ),
    "DELTA_CONFLICT_SET_COLUMN": (
        "42701",
        "There is a conflict from these SET columns: {column_list}. Set each column once, and either a "
        "struct or fields of it.",
    ),
    "DELTA_CONSTRAINT_ALREADY_EXISTS": (
        "42710",
        "Constraint '{constraint_name}' already exists. Please delete the old constraint first.\n"
        "Old constraint:\n{old_constraint}",
    ),
    "DELTA_CONSTRAINT_DATA_TYPE_MISMATCH": (
        "42K09",
        "Column {column_name} has data type {column_type} and cannot be altered to data type {data_type} "
        "because this column is referenced by the following check constraint(s):\n{constraints}",
    ),
    "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE": (
        "42K09",
        "Cannot alter column {column_name} because this column is referenced by the following check "
        "constraint(s):\n{constraints}",
    ),
    "DELTA_CONSTRAINT_DOES_NOT_EXIST": (
        "42704",
        "Cannot drop nonexistent constraint {constraint_name} from table {table_name}. To avoid throwing an "
        "error, provide the parameter IF EXISTS or set the SQL session configuration {config} to "
        "{conf_value}.",
    ),
    "DELTA_CONVERSION_NO_PARTITION_FOUND": (
        "42KD6",
        'Found no partition information in the catalog for table {table_name}. Have you run "MSCK REPAIR '
        'TABLE" on your table to discover partitions?',
    ),
    "DELTA_CONVERSION_UNSUPPORTED_COLUMN_MAPPING": (
        "0AKDC",
        "CONVERT TO DELTA cannot make a table with {config} = {mode}: the files have no ids of columns, by "
        "which readers look for them then. Set it to name or none in the session's defaults, or in the "
        "properties of the catalog's table.",
    ),
    "DELTA_CONVERT_METASTORE_METADATA_MISMATCH": (
        "42K03",
        "The directory of the table has a Delta log already, and the table's properties in the catalog "
        "are not the configuration there. In the catalog: {properties}. In the log: {configuration}. To "
        "merge them set spark.databricks.delta.convert.metadataCheck.enabled to false.",
    ),
    "DELTA_CONVERT_NON_PARQUET_TABLE": (
        "0AKDC",
        "CONVERT TO DELTA only supports parquet tables, but you are trying to convert a {source_name} "
        "source: {table_id}.",
    ),
    "DELTA_CREATE_EXTERNAL_TABLE_WITHOUT_TXN_LOG": (
        "42K03",
        "The external table {table_name} is to be created where there are files but no transaction log. "
        "Check that the path is the root of a Delta table.",
    ),
    "DELTA_CREATE_TABLE_IDENTIFIER_LOCATION_MISMATCH": (
        "0AKDC",
        "The name {identifier} and the location {location} are two places. Leave the location out.",
    ),
    "DELTA_CREATE_TABLE_MISSING_TABLE_NAME_OR_LOCATION": (
        "42601",
        "Table name or location has to be specified: call tableName(…) or location(…) of the builder.",
    ),
    "DELTA_CREATE_TABLE_SCHEME_MISMATCH": (
        "42KD7",
        "The specified schema does not match the existing schema. Specified: {specified}. "
        "Existing: {existing}. Leave the columns out to take the table as it is.",
    ),
    "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE": (
        "22003",
        "Failed to write a value of type {source_type} into the {target_type} type column {column_name}.",
        "ArithmeticException",
    ),
    "DELTA_CREATE_TABLE_WITH_DIFFERENT_PARTITIONING": (
        "42KD7",
        "Partition columns do not match the partition columns of the table. "
        "Given: {specified}. Table: {existing}. Leave partitionBy out, or give the table's own columns.",
    ),
    "DELTA_CREATE_TABLE_WITH_DIFFERENT_PROPERTY": (
        "42KD7",
        "The specified properties do not match the existing properties. Specified: {specified}. "
        "Existing: {existing}. Leave them out to take the table as it is.",
    ),
    "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION": (
        "42601",
        "Cannot create table {table_name}: its location is not empty. Use an empty location. A Delta table "
        "that is there is taken over by CREATE TABLE without a query, Parquet files by CONVERT TO DELTA.",
    ),
    "DELTA_DATA_CHANGE_FALSE": (
        "0AKDE",
        "Cannot change table metadata because the 'dataChange' option is set to false. Attempted "
        "operation: '{operation}'.",
    ),
    "DELTA_DOMAIN_METADATA_NOT_SUPPORTED": ("0A000", None, "IllegalArgumentException"),
    "DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA": (
        "0AKDC",
        "Cannot drop column {column_name}, which is the only one of {schema}. Drop the struct, or the table.",
    ),
    "DELTA_DUPLICATE_ACTIONS_FOUND": ("2D521", None),
    "DELTA_DUPLICATE_COLUMNS_FOUND": (
        "42711",
        "Found duplicate column(s), names differing only in case included: {columns}. Rename them.",
    ),
    "DELTA_DUPLICATE_COLUMNS_ON_INSERT": (
        "42701",
        "Duplicate column names in INSERT clause. Name each column once.",
    ),
    "DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS": (
        "42701",
        "Duplicated data skipping columns found: {columns}. Name each once.",
    ),
    "DELTA_DYNAMIC_PARTITION_OVERWRITE_DISABLED": (
        "0A000",
        "Dynamic partition overwrite mode is specified by session config or write options, but it "
        "is disabled by spark.databricks.delta.dynamicPartitionOverwrite.enabled=false.",
    ),
    "DELTA_EMPTY_DATA": (
        "428GU",
        "Data used in creating the Delta table doesn't have any columns.",
    ),
    "DELTA_EMPTY_DIRECTORY": (
        "42K03",
        "No file found in the directory: {directory}.",
    ),
    "DELTA_EXCEED_CHAR_VARCHAR_LIMIT": (
        "22001",
        'Value "{value}" exceeds char/varchar type length limitation. Failed check: {expression}.',
    ),
    "DELTA_FAILED_CAST_PARTITION_VALUE": (
        "22018",
        "Failed to cast partition value `{value}` to {data_type}.",
    ),
    "DELTA_FAILED_MERGE_SCHEMA_FILE": ("42KDA", None),
    "DELTA_FAILED_READ_FILE_FOOTER": ("KD001", None),
    "DELTA_FAILED_RECOGNIZE_PREDICATE": (
        "42601",
        "Cannot recognize the predicate '{predicate}'. Write it as a condition in SQL. {reason}",
    ),
    "DELTA_FAILED_TO_MERGE_FIELDS": ("22005", None),
    "DELTA_FEATURE_CAN_ONLY_DROP_CHECKPOINT_PROTECTION_WITH_HISTORY_TRUNCATION": (
        "55000",
        "The table feature {feature} goes only together with the versions whose checkpoints it protects: "
        "drop it with TRUNCATE HISTORY (truncateHistory=True).",
    ),
    "DELTA_FEATURE_DROP_CHECKPOINT_PROTECTION_WAIT_FOR_RETENTION_PERIOD": (
        "22KD0",
        "Cannot drop {feature} while the table's log has versions that use a dropped feature. Wait until "
        "those are older than delta.dropFeatureTruncateHistory.retentionDuration ({truncated_retention}), "
        "and drop it again.",
    ),
    "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT": (
        "0AKDE",
        "Your table schema requires manual enablement of the following table feature(s): "
        "{unsupported_features}. To do this, run ALTER TABLE table_name SET TBLPROPERTIES "
        "('delta.feature.{unsupported_features}' = 'supported').",
    ),
    "DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL": (
        "40000",
        "Cannot drop the table feature {feature}: other writers changed the table meanwhile. Try again.",
    ),
    "DELTA_FEATURE_DROP_DEPENDENT_FEATURE": (
        "55000",
        "Cannot drop the table feature {feature}: the table feature {dependent} of this table needs it. Drop "
        "{dependent} first.",
    ),
    "DELTA_FEATURE_DROP_FEATURE_IS_DELTA_PROPERTY": (
        "42000",
        "Cannot drop {feature}: it is a table property, and no table feature. Use ALTER TABLE … UNSET "
        "TBLPROPERTIES.",
    ),
    "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT": (
        "55000",
        "Cannot drop {feature} from this table: its protocol does not have that table feature.",
    ),
    "DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST": (
        "22KD0",
        "Cannot drop {feature} while the table's log has versions that use it. Wait until those are older "
        "than delta.logRetentionDuration ({retention}) and the log is cleaned up, or until they are older "
        "than delta.dropFeatureTruncateHistory.retentionDuration ({truncated_retention}), and drop it with "
        "TRUNCATE HISTORY (truncateHistory=True).",
    ),
    "DELTA_FEATURE_DROP_HISTORY_TRUNCATION_NOT_ALLOWED": (
        "42000",
        "The table feature {feature} can be dropped without TRUNCATE HISTORY. Leave that out.",
    ),
    "DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE": (
        "0AKDC",
        "Cannot drop {feature}: dropping this table feature is not supported by deltaflow.",
    ),
    "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE": (
        "0AKDC",
        "Cannot drop {feature}: deltaflow does not know this table feature.",
    ),
    "DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD": (
        "22KD0",
        "The table does not use {feature} any more, and its log has versions that do. Drop the feature again "
        "when those are older than delta.logRetentionDuration ({retention}), or, with TRUNCATE HISTORY "
        "(truncateHistory=True), delta.dropFeatureTruncateHistory.retentionDuration ({truncated_retention}).",
    ),
    "DELTA_FAILED_READ_FILE": (
        "KD001",
        "File {path} cannot be read, and {read} {root} needs it: {reason}. Restore the file from a copy, or "
        "read an older version without it.",
    ),
    "DELTA_FILE_NOT_FOUND_DETAILED": (
        "42K03",
        "File {path} referenced in the transaction log cannot be found, and {read} {root} needs it. Most "
        "likely VACUUM deleted it, which keeps removed files for delta.deletedFileRetentionDuration only, or "
        "somebody deleted it by hand. Read a newer version, or restore the file from a copy.",
    ),
    "DELTA_DELETION_VECTOR_FILES_MISSING": (
        "42K03",
        "The deletion vectors of {number} files are not there, and the files are: {files}. Nobody knows "
        "which of their rows are deleted, and nothing was committed. Restore the files of the vectors "
        "from a copy. If they are lost, remove the files with all of their rows: "
        "DeltaTable.repair(removeFilesWithoutVectors=True), or deltaflow repair PATH "
        "--remove-files-without-vectors.",
    ),
    "DELTA_DELETION_VECTOR_CARDINALITY_MISMATCH": (
        "XXKDS",
        "The deletion vector of the file {data_file} has {found} rows, and the log says that it has {said}. "
        "Read an older version, or restore the file of the vector from a copy.",
    ),
    "DELTA_DELETION_VECTOR_CHECKSUM_MISMATCH": (
        "XXKDS",
        "The deletion vector of the file {data_file} is damaged: its bytes in {place} have another CRC-32 "
        "checksum than the one behind them. Read an older version, or restore that file from a copy.",
    ),
    "DELTA_DELETION_VECTOR_INVALID": (
        "XXKDS",
        "The deletion vector of the file {data_file} is none: {reason}. Read an older version, or restore "
        "the file of the vector, or the log, from a copy.",
    ),
    "DELTA_DELETION_VECTOR_INVALID_ROW_INDEX": (
        "XXKDS",
        "The deletion vector of the file {data_file} is not that of the file: it has the position "
        "{position}, and the file has {records} rows. Read an older version, or restore the log from a copy.",
    ),
    "DELTA_DELETION_VECTOR_SIZE_MISMATCH": (
        "XXKDS",
        "The deletion vector of the file {data_file} has {found} bytes where it is stored, and the log says "
        "that it has {said}. Read an older version, or restore the file of the vector from a copy.",
    ),
    "DELTA_GENERATED_COLUMNS_DATA_TYPE_MISMATCH": (
        "42K09",
        "Column {column_name} has data type {column_type} and cannot be altered to data type {data_type} "
        "because this column is referenced by the following generated column(s):\n{generated_columns}",
    ),
    "DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE": (
        "42K09",
        "Cannot alter column {column_name} because this column is referenced by the following generated "
        "column(s):\n{generated_columns}",
    ),
    "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH": (
        "42K09",
        "Column {column_name} has the type {column_type}, and its expression {expr} has {expression_type}. "
        "Cast the expression, or give the column that type.",
    ),
    "DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED": (
        "429BQ",
        "Column {column_name} is an identity column, whose type, nullability and default ALTER COLUMN cannot "
        "change. Write the table anew with overwriteSchema.",
    ),
    "DELTA_IDENTITY_COLUMNS_ALTER_NON_IDENTITY_COLUMN": (
        "429BQ",
        "ALTER TABLE ALTER COLUMN SYNC IDENTITY cannot be called on column {column_name}, which is no "
        "identity column. Name one that is GENERATED AS IDENTITY.",
    ),
    "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED": (
        "42808",
        "Providing values for GENERATED ALWAYS AS IDENTITY column {column_name} is not supported: the table "
        "gives its numbers. Leave the column out.",
    ),
    "DELTA_IDENTITY_COLUMNS_NULL_NOT_SUPPORTED": (
        "23502",
        "A new row gives null, or the word DEFAULT, to the identity column {column_name}. Leave the column "
        "out where the table is to give the numbers.",
    ),
    "DELTA_IDENTITY_COLUMNS_ILLEGAL_STEP": (
        "42611",
        "Identity column {column_name} cannot have step 0. Give it another one by INCREMENT BY.",
    ),
    "DELTA_IDENTITY_COLUMNS_PARTITION_NOT_SUPPORTED": (
        "42601",
        "PARTITIONED BY identity column {column_name} is not supported. Partition by another column.",
    ),
    "DELTA_IDENTITY_COLUMNS_REPLACE_COLUMN_NOT_SUPPORTED": (
        "429BQ",
        "ALTER TABLE REPLACE COLUMNS is not supported for tables with identity columns. Use ADD COLUMNS, "
        "ALTER COLUMN and DROP COLUMN.",
    ),
    "DELTA_IDENTITY_COLUMNS_UNSUPPORTED_DATA_TYPE": (
        "428H2",
        "Identity column {column_name} cannot have the type {data_type}. Make it BIGINT.",
        "UnsupportedOperationException",
    ),
    "DELTA_IDENTITY_COLUMNS_UPDATE_NOT_SUPPORTED": (
        "42808",
        "UPDATE on identity column {column_name} is not supported: rows keep the numbers that they have. "
        "Leave the column out.",
    ),
    "DELTA_IDENTITY_COLUMNS_WITH_GENERATED_EXPRESSION": (
        "42613",
        "Identity column {column_name} cannot be generated by an expression too. Leave one of both out.",
    ),
    "DELTA_IDENTITY_COLUMN_INCONSISTENT_METADATA": ("42000", None),
    "DELTA_IDENTITY_COLUMN_OVERFLOW": (
        "22003",
        "The numbers of identity column {column_name} are used up: BIGINT cannot hold the next one. Write "
        "the table anew with another start or step.",
    ),
    "DELTA_ILLEGAL_OPTION": ("42616", "Invalid value '{input}' for option '{name}', {explain}."),
    "DELTA_INSERT_COLUMN_ARITY_MISMATCH": (
        "42802",
        "Cannot write to '{table_name}', not enough data columns: the table has {table_columns}, "
        "the data has {data_columns}.",
    ),
    "DELTA_INVALID_CDC_RANGE": (
        "22003",
        "CDC range from start {start} to end {end} was invalid. End cannot be before start.",
    ),
    "DELTA_INVALID_CHANGE": (
        "22023",
        "apply_changes: {number} records of batch {batch} are no changes, since they lack a key or a "
        "sequence or are no upsert, delete or truncate: {rows}. Nothing of the batch was applied. Mend such "
        "records, or leave them out by a filter of the frame that apply_changes is given, and start the "
        "query again.",
    ),
    "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES": (
        "42K05",
        "Found invalid character(s) among ' ,;{{}}()\\n\\t=' in the column names: {columns}. Rename them.",
    ),
    "DELTA_INVALID_CHECK_CONSTRAINT_REFERENCES": (
        "42621",
        "Found {column_name} in CHECK constraint. A check constraint cannot use a non-existent column.",
    ),
    "DELTA_INVALID_CLONE_PATH": (
        "22KD1",
        "The target location for CLONE needs to be an absolute path or table name. Use an absolute path "
        "instead of {path}.",
    ),
    "DELTA_INVALID_CONSTRAINT_NAME": (
        "42939",
        "Cannot use {name} as the name of a CHECK constraint. This name is reserved: take another one.",
    ),
    "DELTA_INVALID_INVENTORY_SCHEMA": (
        "42000",
        "The schema for the specified INVENTORY does not contain all of the required fields. Required fields "
        "are: {expected}. Found: {found}.",
    ),
    "DELTA_INVALID_FORMAT_FROM_SOURCE_VERSION": (
        "XXKDS",
        "Unsupported format. Expected version should be smaller than or equal to {expected_version} "
        "but was {real_version}. Please upgrade to newer version of Delta.",
    ),
    "DELTA_INVALID_GENERATED_COLUMN_REFERENCES": (
        "42621",
        "Column {column_name} cannot be generated as {expr}: {missing} is no column of the table, or "
        "is generated itself. Use columns that rows give.",
    ),
    "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS.MISSING_DATAFRAME_WRITE_OPTIONS": (
        "42616",
        "Invalid options for idempotent DataFrame writes: both txnVersion and txnAppId must be specified.",
    ),
    "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS.MISSING_SESSION_CONFS": (
        "42616",
        "Invalid options for idempotent DataFrame writes: both spark.databricks.delta.write.txnAppId and "
        "spark.databricks.delta.write.txnVersion must be specified.",
    ),
    "DELTA_INVALID_PARTITIONING_SCHEMA": ("XXKDS", None),
    "DELTA_INVALID_PARTITION_COLUMN_TYPE": (
        "42996",
        "Using column {name} of type {data_type} as a partition column is not supported.",
    ),
    "DELTA_INVALID_BINARY_PARTITION_VALUE": (
        "22021",
        "Partition column {name} has a value that is no text in UTF-8, which the log cannot hold:",
    ),
    "DELTA_INVALID_PARTITION_PATH": (
        "22KD1",
        "A partition path fragment should be the form like `part1=foo/part2=bar`. The partition path: "
        "{path}. Load the table itself, or one of its partitions.",
    ),
    "DELTA_INVALID_PROTOCOL_VERSION": (
        "KD004",
        "Unsupported Delta protocol version: {versions}. Use a newer release, if there is one.",
    ),
    "DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING": (
        "42K05",
        "Column mapping cannot be removed while column names have one of the characters "
        "' ,;{{}}()\\n\\t=': {columns}. Rename these columns, and try again.",
    ),
    "DELTA_INVALID_SOURCE_OFFSET_FORMAT": ("XXKDS", "The stored source offset format is invalid: {offset}."),
    "DELTA_INVALID_SOURCE_VERSION": ("XXKDS", "sourceVersion({source_version}) is invalid."),
    "DELTA_INVALID_TIMESTAMP_FORMAT": (
        "22007",
        "The provided timestamp {timestamp} does not match the expected syntax {format}.",
    ),
    "DELTA_LOG_FILE_NOT_FOUND": ("42K03", None),
    "DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE": (
        "42K03",
        "The log no longer has what makes version {missing_version}, whose snapshot the stream is reading: "
        "{reason} If nobody deleted it, the stream is lagging behind the cleanup of the log. Delete its "
        "checkpoint to restart from scratch, and consider a longer delta.logRetentionDuration.",
    ),
    "DELTA_MALFORMED_REQUEST": (
        "XX000",
        "The JVM called {method} with a request that deltaflow does not understand: {fault}. This is a fault "
        "of deltaflow, or its Java classes in this JVM are of another release: restart Python with its JVM.",
    ),
    "DELTA_MAX_COMMIT_RETRIES_EXCEEDED": ("40000", None),
    "DELTA_MERGE_ADD_VOID_COLUMN": (
        "42K09",
        "Cannot add column {new_column} with type VOID. Please explicitly specify a non-void type.",
    ),
    "DELTA_MERGE_MISSING_WHEN": (
        "42601",
        "There must be at least one WHEN clause in a MERGE statement.",
    ),
    "DELTA_MERGE_UNRESOLVED_EXPRESSION": (
        "42601",
        "Cannot resolve {sql_expr} in {clause} given columns {cols}.",
    ),
    "DELTA_METADATA_ABSENT": ("XXKDS", None),
    "DELTA_METADATA_ABSENT_EXISTING_CATALOG_TABLE": (
        "42K03",
        "The catalog has the table {table_name}, but there is no Delta table at its location. "
        "Drop it (DROP TABLE {table_name}) and create it again.",
    ),
    "DELTA_MISSING_CHANGE_DATA": (
        "KD002",
        "Error getting change data for range [{start}, {end}] as change data was not recorded for version "
        "{unrecorded}. If you've enabled change data feed on this table, use `DESCRIBE HISTORY` to see when "
        "it was first enabled, and begin there. Otherwise, to start recording change data, use `ALTER TABLE "
        "table_name SET TBLPROPERTIES (delta.enableChangeDataFeed=true)`.",
    ),
    "DELTA_MISSING_DELTA_TABLE": (
        "42P01",
        "{table_name} is not a Delta table. {advice}",
    ),
    "DELTA_MISSING_FILES_UNEXPECTED_VERSION": (
        "42K03",
        "Delta stream cannot resume from version {start_version}; transaction log starts at "
        "{earliest_version}. Log files may have been deleted by log retention. Restart the stream with a new "
        "checkpoint location and consider increasing delta.logRetentionDuration. To skip missing data "
        'instead, set .option("failOnDataLoss", "false").',
    ),
    "DELTA_MISSING_NOT_NULL_COLUMN_VALUE": (
        "23502",
        "Column {column_name}, which has a NOT NULL constraint, is missing from the data being "
        "written into the table.",
    ),
    "DELTA_MISSING_PROVIDER_FOR_CONVERT": (
        "0AKDC",
        "CONVERT TO DELTA only supports parquet tables. Please rewrite your target as parquet.`{path}` "
        "if it's a parquet directory.",
    ),
    "DELTA_MISSING_SET_COLUMN": (
        "42703",
        "SET column {column_name} not found given columns: {column_list}.",
    ),
    "DELTA_MODE_NOT_SUPPORTED": (
        "0AKDC",
        "Specified mode '{mode}' is not supported. Supported modes are: {supported_modes}.",
    ),
    "DELTA_MULTIPLE_CDC_BOUNDARY": (
        "42614",
        "Multiple {boundary} arguments provided. Please provide one of either {boundary}Timestamp or "
        "{boundary}Version.",
    ),
    "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE": (
        "21506",
        "Cannot perform Merge: several source rows match the same row of the table, and it is open which"
        " of them is to change it. Some of these rows: {rows}. Leave one row for each key in the source,"
        " by dropDuplicates or by the newest of each key, and merge again. Nothing was committed.",
    ),
    "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION": (
        "23512",
        "{num_rows} rows in {table_name} violate the new CHECK constraint ({check_constraint}). "
        "Correct or remove them first.",
    ),
    "DELTA_NON_BOOLEAN_CHECK_CONSTRAINT": (
        "42621",
        "CHECK constraint '{name}' ({expr}) should be a boolean expression.",
    ),
    "DELTA_NON_DETERMINISTIC_EXPRESSION_IN_CHECK_CONSTRAINT": (
        "42621",
        "Found {expr} in a CHECK constraint. A CHECK constraint cannot use a nondeterministic expression.",
    ),
    "DELTA_NON_DETERMINISTIC_EXPRESSION_IN_GENERATED_COLUMN": (
        "42621",
        "Column {column_name} cannot be generated by {expr}, which may have another value each time. Use "
        "expressions that depend on columns alone.",
    ),
    "DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED": (
        "0AKDC",
        "Non-deterministic functions are not supported in the {operation} {expression} Write their values "
        "into a column first.",
    ),
    "DELTA_NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION": (
        "42601",
        "When there are more than one MATCHED clauses in a MERGE statement, only the last MATCHED clause"
        " can omit the condition.",
    ),
    "DELTA_NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION": (
        "42601",
        "When there are more than one NOT MATCHED BY SOURCE clauses in a MERGE statement, only the last "
        "NOT MATCHED BY SOURCE clause can omit the condition.",
    ),
    "DELTA_NON_LAST_NOT_MATCHED_CLAUSE_OMIT_CONDITION": (
        "42601",
        "When there are more than one NOT MATCHED clauses in a MERGE statement, only the last NOT "
        "MATCHED clause can omit the condition.",
    ),
    "DELTA_NON_PARTITION_COLUMN_REFERENCE": (
        "42P10",
        "Predicate references non-partition column '{column_name}'. Only the partition columns may be"
        " referenced: [{columns}]",
    ),
    "DELTA_NON_PARTITION_COLUMN_SPECIFIED": (
        "42P10",
        "Non-partitioning column(s) {columns} are specified where only partitioning columns are expected: "
        "{fragment}. Load the table and filter it.",
    ),
    "DELTA_NOT_A_DELTA_TABLE": (
        "0AKDD",
        "{table_name} is not a Delta table. Drop it first (DROP TABLE {table_name}) to create it as one.",
    ),
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED": (
        "23502",
        "NOT NULL constraint violated for column: {column_name}.",
    ),
    "DELTA_NO_START_FOR_CDC_READ": (
        "42601",
        "No startingVersion or startingTimestamp provided for CDC read. Set one of these options.",
    ),
    "DELTA_NUM_RECORDS_MISMATCH": (
        "XXKDS",
        "Failed to validate the number of records in {operation}: of the files that it removes, it keeps "
        "{kept} rows and drops {gone}, and these are not all of their rows. Nothing was committed. Look at "
        "{files}. Where the log is wrong, overwrite the table with its own rows.",
    ),
    "DELTA_NULL_SCHEMA_IN_STREAMING_WRITE": (
        "42P18",
        "Delta doesn't accept NullTypes in the schema for streaming writes. Cast the column to a type.",
    ),
    "DELTA_ONEOF_IN_TIMETRAVEL": (
        "42601",
        "Please either provide 'timestampAsOf' or 'versionAsOf' for time travel, not both.",
    ),
    "DELTA_OPERATION_NOT_ALLOWED": (
        "0AKDC",
        "Operation not allowed: {operation} is not supported for Delta tables. {advice}",
    ),
    "DELTA_OPERATION_NOT_ALLOWED_DETAIL": (
        "0AKDC",
        "Operation not allowed: to {operation} is not supported for the Delta table {table_name}.",
    ),
    "DELTA_OPTIMIZE_FULL_NOT_SUPPORTED": (
        "42601",
        "OPTIMIZE FULL is only supported for tables with clustering columns. Leave FULL out.",
    ),
    "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE": (
        "42613",
        "'overwriteSchema' cannot be used in dynamic partition overwrite mode.",
    ),
    "DELTA_PARTITION_COLUMN_NOT_FOUND": (
        "42703",
        "Partition column {name} not found in schema [{columns}].",
    ),
    "DELTA_PARTITION_VALUE_OF_NULL_FOLDER": (
        "0A000",
        "{operation} would write rows again whose partition value is the text {value}, which Spark's writer "
        "takes for null. Nothing was committed. Leave these rows out by the condition, or write them with "
        "another value and delete these.",
    ),
    "DELTA_PATH_DOES_NOT_EXIST": (
        "42K03",
        "{path} doesn't exist. Check the path.",
    ),
    "DELTA_PATH_EXISTS": (
        "42K04",
        "Cannot write to already existent path {path} in mode 'errorifexists'. "
        "Use mode 'append', 'overwrite' or 'ignore'.",
    ),
    "DELTA_PROTOCOL_PROPERTY_NOT_INT": ("42K06", None),
    "DELTA_QUARANTINE_TYPES": (
        "42K09",
        "The quarantine at {quarantine} cannot keep rows of the stream as they are: {differences}. Give the "
        "stream another quarantine; or, if the new type is a wider one, let the quarantine widen its types: "
        "ALTER TABLE delta.`{quarantine}` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true').",
    ),
    "DELTA_READ_FEATURE_PROTOCOL_REQUIRES_WRITE": ("KD004", None),
    "DELTA_READ_SOURCE_SCHEMA_CONFLICT": (
        "42K07",
        "The schema provided for the source read doesn't match the schema of the Delta table: given "
        "{given}; table {schema}. Remove .schema(…).",
    ),
    "DELTA_REGEX_OPT_SYNTAX_ERROR": ("2201B", "Please recheck your syntax for '{option}': {reason}."),
    "DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA": (
        "XXKDS",
        "The log removes the file {removed_file} without its partition values or its size, so that its rows "
        "cannot be read as deletes. Begin the change data feed after this version.",
    ),
    "DELTA_REPLACE_WHERE_MISMATCH": (
        "44000",
        "Written data does not conform to partial table overwrite condition or constraint "
        "'{predicate}'.{violation}",
    ),
    "DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE": (
        "42613",
        "A 'replaceWhere' expression and 'partitionOverwriteMode'='dynamic' cannot both be set in "
        "the DataFrameWriter options.",
    ),
    "DELTA_REPLACE_WHERE_WITH_FILTER_DATA_CHANGE_UNSET": (
        "42613",
        "'replaceWhere' cannot be used with data filters when 'dataChange' is set to false. "
        "Filters: {predicate}.",
    ),
    "DELTA_ROWS_COMPUTED_TWICE": (
        "40000",
        "Spark has two copies of some rows ({parts} parts) that it was to compute once for this write into "
        "{target}, because two attempts of a task ran at once. Rows that are not deterministic differ in "
        "them. The table is as it was. Run the write, or start the query, again; with spark.speculation = "
        "false this is rare.",
    ),
    "DELTA_ROWS_LOST": (
        "40000",
        "Spark has lost, with an executor, rows that it had computed once for this write into {target}. The "
        "table is as it was. Run the operation, or start the query, again; where the rows are of a frame "
        "that you have checkpointed, make that frame anew first.",
    ),
    "DELTA_ROW_TRACKING_BACKFILL_NEEDED": (
        "55000",
        "Cannot enable row tracking here: {number} files of the table have no row ids yet. Set "
        "delta.enableRowTracking by ALTER TABLE … SET TBLPROPERTIES, which gives them ids.",
    ),
    "DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION": (
        "42613",
        "Illegal table state was detected. Table properties delta.enableRowTracking and "
        "delta.rowTrackingSuspended are both set to true. Set one of them to false first.",
    ),
    "DELTA_SCHEMA_CHANGED_SINCE_ANALYSIS": (
        "KD007",
        "The schema of the table has changed since the stream was loaded: from {read_schema} to "
        '{data_schema}. Load the stream again (spark.readStream.format("delta").load(path)) and start it.',
    ),
    "DELTA_SCHEMA_CHANGED_WITH_STARTING_OPTIONS": (
        "KD007",
        "Detected schema change in version {changed_in}: streaming source schema: {read_schema}; data file "
        "schema: {data_schema}. {remedy} If the issue persists after changing to a new checkpoint location, "
        "let startingVersion or startingTimestamp name a version newer than {changed_in}.",
    ),
    "DELTA_SCHEMA_CHANGED_WITH_VERSION": (
        "KD007",
        "Detected schema change in version {changed_in}: streaming source schema: {read_schema}; data file "
        "schema: {data_schema}. {remedy}",
    ),
    "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS": (
        "KD007",
        "The schema of the table has changed in an incompatible way since the DataFrame was made, from "
        "{analysed} to {newest}. Make the DataFrame again "
        '(spark.read.format("delta").load(path)), or fix its version with option versionAsOf.',
    ),
    "DELTA_SCHEMA_NOT_PROVIDED": (
        "42908",
        "Table schema is not provided. Give the columns, or a query, to replace the table.",
    ),
    "DELTA_SCHEMA_NOT_SET": (
        "KD008",
        "Table schema is not set. Write data into it or use CREATE TABLE to set the schema.",
    ),
    "DELTA_SET_LOCATION_SCHEMA_MISMATCH": (
        "42KD7",
        "The schema of the new Delta location is different than the current table schema. Original schema:"
        " {original}. Destination schema: {destination}. If this is an intended change, turn this check off "
        "by SET {config} = true.",
    ),
    "DELTA_SHOW_PARTITION_IN_NON_PARTITIONED_TABLE": (
        "42809",
        "SHOW PARTITIONS is not allowed on a table that is not partitioned: {table_name}.",
    ),
    "DELTA_SOURCE_IGNORE_DELETE": (
        "0A000",
        "Detected deleted data (for example {removed_file}) from streaming source at version "
        "{changed_in}. This is currently not supported. If you'd like to ignore deletes, set the option "
        "'ignoreDeletes' to 'true' ('skipChangeCommits' and 'ignoreChanges' go on as well). {feed}",
        "UnsupportedOperationException",
    ),
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES": (
        "0A000",
        "Detected a data update (for example {change_info}) in the source table at version {changed_in}. "
        "This is currently not supported. If you are okay to skip changes, set the option "
        "'skipChangeCommits' to 'true'; if rewritten rows may come again, set 'ignoreChanges' to 'true'; "
        "otherwise restart the query with a fresh checkpoint directory. {feed}",
        "UnsupportedOperationException",
    ),
    "DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET": (
        "42613",
        "Please either provide 'startingVersion' or 'startingTimestamp'.",
    ),
    "DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION": (
        "KD002",
        "The stream cannot go on after version {current} without your consent ({op_type}): since version "
        "{previous} the table has {changes}. Change the table that the stream writes, if it needs that. Then "
        "start the query with {options}, or after {settings}. Instead of the version, always allows such "
        "changes for good.",
    ),
    "DELTA_STREAMING_CHECK_COLUMN_MAPPING_NO_SNAPSHOT": (
        "KD002",
        "The log no longer has what makes version {start_version}, with which the stream goes on: columns "
        "could have been renamed or dropped since. Start with a later version and a new checkpoint location, "
        "or set {config} to true to read the rows with the columns of today.",
    ),
    "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG": (
        "42KD4",
        "A stream cannot read the table across version {changed_in}, between which and the stream's schema "
        "columns were renamed or dropped, or got other types. Schema of the stream: {read_schema}; schema of "
        "the version: {incompatible_schema}. Load the stream with the option schemaTrackingLocation, a "
        "directory below its checkpoint, so that each version is read in its own schema.",
    ),
    "DELTA_STREAMING_METADATA_EVOLUTION": (
        "22000",
        "The schema, properties or protocol of the table changed in version {changed_in}. The stream has "
        "read everything before that, and its schema log has the change now. Load the stream again and start "
        "it: it goes on in the new schema {schema}, with the properties ({configuration}) and the protocol "
        "{protocol}.",
    ),
    "DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT": (
        "22000",
        "Another source has written an entry of the schema log {location} of the table {streamed_table}. "
        "Give each source of a query, and each query, a schemaTrackingLocation of its own, or tell sources "
        "of one table apart by the option streamingSourceTrackingId.",
    ),
    "DELTA_STREAMING_SCHEMA_LOCATION_NOT_UNDER_CHECKPOINT": (
        "22000",
        "The schemaTrackingLocation {location} must be below the checkpoint location {checkpoint} of the "
        "query, with which it is copied, restored and deleted. Give a directory there.",
    ),
    "DELTA_STREAMING_SCHEMA_LOG_DESERIALIZE_FAILED": (
        "22000",
        "An entry of the schema log of the stream cannot be read. Restore it from a copy, or start the query "
        "with a new checkpoint location and a schemaTrackingLocation below it.",
    ),
    "DELTA_STREAMING_SCHEMA_LOG_INCOMPATIBLE_DELTA_TABLE_ID": (
        "22000",
        "The schema log is that of the table with the id {persisted_id}, and the stream reads the table with "
        "the id {table_id}. Pick another schemaTrackingLocation.",
    ),
    "DELTA_STREAMING_SCHEMA_LOG_INIT_FAILED_INCOMPATIBLE_METADATA": (
        "22000",
        "The schema log of the stream cannot begin: a batch of versions {first} to {last} was planned "
        "without it, and no schema of these versions can read all of them. Start the query with a new "
        "checkpoint location.",
    ),
    "DELTA_STREAMING_SCHEMA_LOG_PARSE_SCHEMA_FAILED": (
        "22000",
        "The schema in an entry of the schema log of the stream cannot be read. Restore the entry from a "
        "copy, or start the query with a new checkpoint location and a schemaTrackingLocation below it.",
    ),
    "DELTA_STREAMING_TRAILING_COMMIT_MISSING": (
        "42K03",
        "Delta stream detected commits up to version {expected_version} but files after version "
        "{seen_version} are missing from the transaction log. Restore them from a copy, or restart the "
        "stream with a new checkpoint location.",
    ),
    "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS": (
        "42711",
        "Unable to enable change data feed on the table: it has the columns {column_list}, whose names the "
        "feed uses itself. Rename or drop these columns first.",
    ),
    "DELTA_TABLE_ALREADY_EXISTS": (
        "42P07",
        "Table {table_name} already exists.",
    ),
    "DELTA_TABLE_FOR_PATH_UNSUPPORTED_HADOOP_CONF": (
        "0AKDC",
        "DeltaTable.forPath takes settings of Hadoop's file systems, whose keys begin with {prefixes}, and "
        "not {options}. Leave those out.",
    ),
    "DELTA_TABLE_LOCATION_MISMATCH": (
        "42613",
        "The location of the existing table {table_name} is {existing}. It doesn't match the specified "
        "location {specified}. Leave LOCATION out.",
    ),
    "DELTA_TABLE_NOT_FOUND": (
        "42P01",
        "The location of {table_name} is {path}, where there is no Delta table. Check the path. If the "
        "table's files are lost, drop its name (DROP TABLE {table_name}).",
    ),
    "DELTA_TABLE_ONLY_OPERATION": ("0AKDD", None),
    "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION": (
        "42816",
        "The provided timestamp ({timestamp}) is before the earliest version available to this table "
        "({earliest}). Available: {available}.",
    ),
    "DELTA_TIMESTAMP_GREATER_THAN_COMMIT": (
        "42816",
        "The provided timestamp ({timestamp}) is after the latest commit ({latest}). Available: {available}.",
    ),
    "DELTA_TIMESTAMP_INVALID": (
        "42816",
        "The provided timestamp ('{timestamp}') cannot be converted to a valid timestamp. Write it as "
        "yyyy-MM-dd HH:mm:ss[.SSS], with a zone or in that of the session, or as a date.",
    ),
    "DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE": (
        "42604",
        "versionAsOf needs to be a version, which is a number of at least 0, and is {value!r}.",
    ),
    "DELTA_TRUNCATED_TRANSACTION_LOG": (
        "42K03",
        "{place}: version {missing_version} cannot be rebuilt, since the log was truncated by its clean-up "
        "or by hand. {available} Begin at one of the versions that are there.",
    ),
    "DELTA_UDF_IN_CHECK_CONSTRAINT": (
        "42621",
        "Found {expr} in a CHECK constraint. A CHECK constraint cannot use a user-defined function: "
        "other sessions lack it.",
    ),
    "DELTA_UDF_IN_GENERATED_COLUMN": (
        "42621",
        "Column {column_name} cannot be generated by the user-defined function {expr}: other "
        "sessions lack it. Use Spark's own functions.",
    ),
    "DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME": (
        "KD009",
        "Expecting {expected_size} partition column(s): {expected}, but found {parsed_size} partition "
        "column(s): {parsed} from parsing the file name: {path}. Give the partition columns that the "
        "folders have.",
    ),
    "DELTA_UNEXPECTED_PARTITION_COLUMN_FROM_FILE_NAME": (
        "KD009",
        "Expecting partition column {expected}, but found partition column {parsed} from parsing the "
        "file name: {path}. Give the columns in the order of the folders.",
    ),
    "DELTA_UNEXPECTED_PARTITION_SCHEMA_FROM_USER": (
        "KD009",
        "CONVERT TO DELTA was called with a partition schema different from the partition schema "
        "inferred from the catalog, please avoid providing the schema so that the partition schema can "
        "be chosen from the catalog. In the catalog: {catalog_schema}. Provided: {user_schema}.",
    ),
    "DELTA_UNKNOWN_CONFIGURATION": (
        "F0000",
        "Unknown configuration was specified: {config}. To disable this check, set "
        "{disable_check_config}=true in the Spark session configuration.",
    ),
    "DELTA_UNKNOWN_READ_LIMIT": ("42601", "Unknown ReadLimit: {limit}.", "UnsupportedOperationException"),
    "DELTA_UNSET_NON_EXISTENT_PROPERTY": (
        "42616",
        "Attempted to unset non-existent property '{property}' in table {table_name}. "
        "Use IF EXISTS to pass over those that are not set.",
    ),
    "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP": (
        "0AKDC",
        "ALTER TABLE CHANGE COLUMN is not supported for changing column {field_path} from {old_field} to "
        "{new_field}. {advice}",
    ),
    "DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP": (
        "0AKDC",
        "Unsupported ALTER TABLE REPLACE COLUMNS operation. Reason: {details}. DROP COLUMN drops columns of "
        "a mapped table; types are widened where delta.enableTypeWidening is true.\n"
        "Failed to change schema from:\n{old_schema}\nto:\n{new_schema}",
    ),
    "DELTA_UNSUPPORTED_COMMENT_MAP_ARRAY": (
        "0AKDC",
        "Can't add a comment to {field_path}. Adding a comment to a map key/value or array element is not "
        "supported.",
    ),
    "DELTA_UNSUPPORTED_CLONE_REPLACE_SAME_TABLE": (
        "0AKDC",
        "You tried to REPLACE an existing table ({table_name}) with CLONE. This operation is unsupported: "
        "take a different target for CLONE. RESTORE brings a table back to one of its versions.",
    ),
    "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE": (
        "0AKDC",
        "The column mapping mode cannot be changed from '{old_mode}' to '{new_mode}'. A table that is there "
        "can begin to be mapped by name (none to name). For another change write the rows into a new table.",
    ),
    "DELTA_UNSUPPORTED_COLUMN_MAPPING_SCHEMA_CHANGE": (
        "0AKDC",
        "Column {column_name} cannot be added by the commit that begins the column mapping of the table. Set "
        "delta.columnMapping.mode first, and add the column afterwards.",
    ),
    "DELTA_UNSAFE_EXPRESSION": (
        "42621",
        "An expression of the table has {part}: {expression}. Whoever can write the table's log chooses its "
        "expressions, so they may use columns and Spark's own functions, and none that calls Java or opens "
        "files. Drop the constraint, or give the column another expression.",
    ),
    "DELTA_UNSUPPORTED_DATA_TYPES": ("0AKDC", None),
    "DELTA_UNSUPPORTED_DATA_TYPE_IN_GENERATED_COLUMN": (
        "42621",
        "Column {column_name} cannot be generated as {expr}: {data_type} is not supported in a generated "
        "column.",
    ),
    "DELTA_UNSUPPORTED_DROP_COLUMN": (
        "0AKDC",
        "DROP COLUMN is not supported for your Delta table, whose columns are not mapped. Set the table "
        "property delta.columnMapping.mode to name first.",
    ),
    "DELTA_UNSUPPORTED_DROP_NESTED_COLUMN_FROM_NON_STRUCT_TYPE": (
        "0AKDC",
        "{column_name} is in {struct}, which is no struct. Only columns and fields of structs can be renamed "
        "or dropped.",
    ),
    "DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN": (
        "0AKDC",
        "Dropping partition columns ({columns}) is not allowed. Write the table anew with overwriteSchema.",
    ),
    "DELTA_UNSUPPORTED_EXPRESSION": (
        "0A000",
        "Argument {position} of the function {function} cannot be {given}. It has to be {allowed}.",
    ),
    "DELTA_UNSUPPORTED_EXPRESSION_CHECK_CONSTRAINT": (
        "42621",
        "Found {expr} in a CHECK constraint. {expr} cannot be used in a CHECK constraint.",
    ),
    "DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN": (
        "42621",
        "Column {column_name} cannot be generated as {expr}, which has a subquery. Use columns of "
        "the row alone.",
    ),
    "DELTA_UNSUPPORTED_FEATURE_STATUS": ("0AKDE", None),
    "DELTA_UNSUPPORTED_GENERATE_WITH_DELETION_VECTORS": ("0A000", None, "UnsupportedOperationException"),
    "DELTA_UNSUPPORTED_NESTED_FIELD_IN_OPERATION": (
        "0AKDC",
        "Nested field is not supported in the {operation} (field = {field_name}).",
    ),
    "DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE": (
        "0A000",
        "Updating nested fields is only supported for StructType: {target}. Set the whole array or map.",
    ),
    "DELTA_UNSUPPORTED_NON_EMPTY_CLONE": (
        "0AKDC",
        "The clone destination table is non-empty. Please TRUNCATE or DELETE FROM the table before "
        "running CLONE.",
    ),
    "DELTA_UNSUPPORTED_OUTPUT_MODE": (
        "0AKDC",
        "Data source {source} does not support {mode} output mode. Use append or complete.",
    ),
    "DELTA_UNSUPPORTED_MANIFEST_GENERATION_WITH_COLUMN_MAPPING": (
        "0AKDC",
        "Manifests are not written for a table with column mapping: its files do not have the names of the "
        "columns, which are all that a reader of manifests knows.",
    ),
    "DELTA_UNSUPPORTED_RENAME_COLUMN": (
        "0AKDC",
        "Column rename is not supported for your Delta table, whose columns are not mapped. Set the table "
        "property delta.columnMapping.mode to name first.",
    ),
    "DELTA_UNSUPPORTED_SUBQUERY": (
        "0AKDC",
        "Subqueries that refer to columns outside of them are not supported in the {operation} (condition = "
        "{cond}). Join what they find to the source, and refer to its columns instead.",
    ),
    "DELTA_UNSUPPORTED_SUBQUERY_IN_PARTITION_PREDICATES": (
        "0AKDC",
        "A condition on the rows of a table can have no subqueries and no functions of Python: {expression}",
    ),
    "DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS": (
        "42613",
        "Cannot specify time travel in multiple formats: it is in the path and in the options.",
    ),
    "DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS": ("0AKDC", "Cannot time travel a stream: remove {options}."),
    "DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA": (
        "0AKDC",
        "Unable to operate on this table because an unsupported type change was applied. Field {field_name} "
        "was changed from {from_type} to {to_type}, so that values of older files cannot be read.",
    ),
    "DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION": (
        "42846",
        "Cannot cast {from_catalog} to {to_catalog}. All nested columns must match.",
    ),
    "DELTA_VACUUM_RETENTION_PERIOD_NEGATIVE": (
        "22003",
        "Retention period for Vacuum can't be less than 0 hours.",
    ),
    "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT": (
        "22003",
        "The retention period of this VACUUM is shorter than the table's, "
        "{configured_retention_hours} hours: it could delete files that running writers, readers and streams "
        "still need. Give at least {configured_retention_hours} hours. If nothing else uses the table, a "
        "Spark session can switch the check off: "
        "spark.databricks.delta.retentionDurationCheck.enabled = false.",
    ),
    "DELTA_VERSIONS_NOT_CONTIGUOUS": ("KD00C", None),
    "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES": (
        "23001",
        "CHECK constraint {name} ({expression}) violated by row with values:",
    ),
    "DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED": ("0A000", None),
    "FIELD_ALREADY_EXISTS": (
        "42710",
        "Cannot add column {column_name}, because {struct} already has one of this name, regardless of case. "
        "Take another name.",
    ),
    "INCORRECT_NUMBER_OF_ARGUMENTS": (
        "42605",
        "The function {function} takes a table, a start and, if wanted, an end: 2 or 3 arguments, and it got "
        "{given}.",
    ),
    "INVALID_DEFAULT_VALUE": (
        "42623",
        "{value} cannot be the default of column {column_name}: {problem}. Give a constant that can "
        "be stored as {data_type}.",
    ),
    "PATH_NOT_FOUND": ("42K03", "Path does not exist: {path}. Check the path, or write a table there first."),
    "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE": (
        "55019",
        "The streaming query was reading from an unexpected Delta table (id = '{new_table_id}'). It used to "
        "read from another Delta table (id = '{old_table_id}') according to checkpoint. Restart the query "
        "with a new checkpoint, or give back the old table.",
    ),
    "DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST": (
        "42703",
        "Z-Ordering column {name} does not exist in data schema.",
    ),
    "DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS": (
        "KD00D",
        "Z-Ordering on [{columns}] will be ineffective, because no stats are collected for these columns. "
        "You can disable this check, for columns whose values have an order, by SET {setting} = false",
    ),
    "DELTA_ZORDERING_ON_PARTITION_COLUMN": (
        "42P10",
        "{name} is a partition column. Z-Ordering can only be performed on data columns",
    ),
    "RESERVED_CDC_COLUMNS_ON_WRITE": (
        "42939",
        "The write contains the columns {column_list}, whose names the change data feed uses itself. Rename "
        "or drop these columns, or switch the feed off by setting delta.enableChangeDataFeed to false.",
    ),
    "WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED": (
        "0AKDC",
        "ALTER TABLE cannot add a column together with its DEFAULT, since the rows that are there "
        "would not have it. Add the column, and give it the default by ALTER TABLE ... ALTER COLUMN "
        "... SET DEFAULT, for new rows.",
    ),
    "WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED": (
        "0AKDE",
        "{command_type} gives a column a DEFAULT, for which the table lacks the table feature. Set "
        "the table property 'delta.feature.allowColumnDefaults' to 'supported' first.",
    ),
}
"""Condition → its SQLSTATE; its message, or None if the code that raises it gives one; and PySpark's class
that delta-spark raises, if the class that is raised here does not extend it.
"""
