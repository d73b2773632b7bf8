package io.deltaflow.spark.bridge;

import java.util.Collections;
import java.util.Map;

import org.apache.spark.QueryContext;
import org.apache.spark.SparkThrowable;

/**
 * An exception that Python raised, on its way through Spark.
 *
 * It has what Spark shows (message, error class, SQLSTATE), and the number under which Python keeps the exception
 * object, so that the caller of a batch operation gets that very object. A client of Spark Connect gets an exception of
 * the same Python class, whose name is a message parameter.
 */
public final class DeltaFlowException extends RuntimeException implements SparkThrowable {
  private final String condition;
  private final String sqlState;
  private final String errorName;
  private final long errorId;

  public DeltaFlowException(String message, String condition, String sqlState, String errorName, long errorId) {
    // The stack of a callback has only py4j's frames, so it is left out.
    super(message, null, false, false);
    this.condition = condition;
    this.sqlState = sqlState;
    this.errorName = errorName;
    this.errorId = errorId;
  }

  public long errorId() { return errorId; }

  public String getCondition() { return condition; }

  public String getErrorClass() { return condition; }

  public String getSqlState() { return sqlState; }

  public boolean isInternalError() { return false; }

  public Map getMessageParameters() {
    return errorName == null ? Collections.emptyMap() : Collections.singletonMap("errorName", errorName);
  }

  public QueryContext[] getQueryContext() { return new QueryContext[0]; }
}
