package io.deltaflow.spark;

import java.util.concurrent.ConcurrentHashMap;

import org.apache.spark.sql.classic.SparkSession;

/** What Python may ask of a statement while it answers it. It is named by a handle until then. */
public final class RunningStatement implements AutoCloseable {
  private static final ConcurrentHashMap RUNNING = new ConcurrentHashMap();

  private final Long handle = Long.valueOf(Python.newHandle());
  private final SparkSession session;

  RunningStatement(SparkSession session) {
    this.session = session;
    RUNNING.put(handle, this);
  }

  /** For Python; null when the statement is over: its caller was interrupted, and waits no more. */
  public static RunningStatement find(long handle) { return (RunningStatement) RUNNING.get(Long.valueOf(handle)); }

  /** How many there are, for tests. */
  public static int running() { return RUNNING.size(); }

  Long handle() { return handle; }

  public SparkSession session() { return session; }

  public void close() { RUNNING.remove(handle); }
}
