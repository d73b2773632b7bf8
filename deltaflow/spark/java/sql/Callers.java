package io.deltaflow.spark.sql;

/**
 * Who calls deltaflow. Spark sometimes asks for one thing in the same words where different answers are needed, and
 * then only the call stack tells the cases apart. This class alone looks at the stack. Each method says what depends
 * on its answer, and tests/spark/sql/test_callers.py tries each on the oldest and on the newest supported Spark: a
 * release that renames these classes or methods fails there.
 */
public final class Callers {
  private Callers() {}

  private static final int NOT_FOUND = Integer.MAX_VALUE;

  /**
   * Whether Spark resolves a relation of a query. It calls the catalog's loadTable for a table that a command is about
   * as well. A query has to get a V1Table, which Spark scans itself; for a command on a V1Table, Spark would run its
   * own V1 command, past the log.
   */
  public static boolean isRelation() { return depth(stack(), "RelationResolution", "") != NOT_FOUND; }

  /**
   * Whether df.write.saveAsTable runs. In mode overwrite it calls the catalog's stageCreateOrReplace, as CREATE OR
   * REPLACE TABLE does; but it overwrites the rows of a table, which the statement makes anew.
   */
  public static boolean isSaveAsTable() { return depth(stack(), "DataFrameWriter", "saveAsTable") != NOT_FOUND; }

  /**
   * Whether saveAsTable itself looks for its table, and no query that it runs. In mode overwrite Spark would drop a
   * table of another format that it finds, and then ask for a Delta table; an INSERT asks for its table in the same
   * words, and is to get it.
   */
  public static boolean isSaveAsTableLooking() {
    StackTraceElement[] stack = stack();
    return depth(stack, "DataFrameWriter", "saveAsTable") < depth(stack, "QueryExecution", "");
  }

  /**
   * Whether saveAsTable of another format looks at the table that it drops next, which it does in mode overwrite
   * alone. Commands look tables up in the same way, and are to get them.
   */
  public static boolean isSaveAsTableReplacing() {
    StackTraceElement[] stack = stack();
    int save = depth(stack, "DataFrameWriter", "saveAsTable");
    return save != NOT_FOUND && depth(stack, "SparkSession", "table") < save;
  }

  /**
   * Whether spark.readStream loads a table. It and a write both ask whether a schema may be given from outside. A
   * stream may be: its schema is compared with the table's. In a write, Spark would read the names of partition columns
   * as SQL, and fail on those with odd characters.
   */
  public static boolean isStreamReader() { return depth(stack(), "DataStreamReader", "") != NOT_FOUND; }

  private static StackTraceElement[] stack() { return new Throwable().getStackTrace(); }

  /** How many calls ago the method of a class of this simple name was called last. The method: how its name begins. */
  private static int depth(StackTraceElement[] stack, String simpleName, String method) {
    for (int i = 0; i < stack.length; i++) {
      if (stack[i].getClassName().endsWith("." + simpleName) && stack[i].getMethodName().startsWith(method)) return i;
    }
    return NOT_FOUND;
  }
}
