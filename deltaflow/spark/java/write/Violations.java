package io.deltaflow.spark.write;

import java.util.LinkedHashMap;
import java.util.Map;

import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.bridge.Thrown;
import org.apache.spark.SparkThrowable;

/** Finds the reason for the failure of a write's tasks in the exceptions that Spark has wrapped around it. */
public final class Violations {
  private Violations() {}

  /** Throws Python's error for a row that failed a check, Spark's for a value that does not fit, else the failure. */
  public static RuntimeException found(Throwable failure, Long handle) {
    for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
      if (!(cause instanceof SparkThrowable)) continue;
      String condition = ((SparkThrowable) cause).getCondition();
      if ("CAST_OVERFLOW_IN_TABLE_INSERT".equals(condition)) throw Thrown.asIs(cause);
      if (!"USER_RAISED_EXCEPTION".equals(condition)) continue;
      String message = (String) ((SparkThrowable) cause).getMessageParameters().get("errorMessage");
      if (message == null || !message.startsWith("[DELTA_")) continue;
      Map request = new LinkedHashMap();
      request.put("handle", handle);
      request.put("message", message);
      Python.call("write.violated", request);
    }
    throw Thrown.asIs(failure);
  }
}
