package io.deltaflow.spark;

/**
 * Who asks for a table. Spark asks its catalog in the same words for a relation to read, for a table that a
 * command is about, and for one that saveAsTable is going to drop: only the stack tells them apart.
 */
final class Callers {
  private Callers() {}

  /** Whether a relation in a query is resolved, and not what a command is about. */
  static boolean isRelation() {
    for (StackTraceElement frame : new Throwable().getStackTrace()) {
      if (frame.getClassName().endsWith(".RelationResolution")) return true;
    }
    return false;
  }

  /** Whether df.write.saveAsTable runs: it overwrites rows where other replacements make the table anew. */
  static boolean isSaveAsTable() {
    for (StackTraceElement frame : new Throwable().getStackTrace()) {
      if (isSaveAsTable(frame)) return true;
    }
    return false;
  }

  /** Whether saveAsTable itself looks whether there is a table, and nothing that it runs. */
  static boolean isSaveAsTableLooking() {
    for (StackTraceElement frame : new Throwable().getStackTrace()) {
      if (frame.getClassName().endsWith(".QueryExecution")) return false;
      if (isSaveAsTable(frame)) return true;
    }
    return false;
  }

  /** Whether saveAsTable of another format looks at the table that it drops next, if in mode overwrite. */
  static boolean isSaveAsTableReplacing() {
    boolean looks = false;
    for (StackTraceElement frame : new Throwable().getStackTrace()) {
      if (frame.getClassName().endsWith(".SparkSession") && frame.getMethodName().equals("table")) looks = true;
      if (isSaveAsTable(frame)) return looks;
    }
    return false;
  }

  private static boolean isSaveAsTable(StackTraceElement frame) {
    return frame.getClassName().endsWith(".DataFrameWriter") && frame.getMethodName().startsWith("saveAsTable");
  }
}
