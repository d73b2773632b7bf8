package io.deltaflow.spark.bridge;

import java.util.Properties;

import org.apache.spark.SparkContext;
import org.apache.spark.SparkContext$;
import org.apache.spark.sql.classic.SparkSession;
import scala.Option;

/**
 * What Spark keeps for a thread: the local properties (job group, SQL execution and others) and the active session.
 * It is copied to the thread that calls Python, so that jobs that Python starts belong to the caller's thread.
 *
 * Every call needs it, because a thread of the pool inherits the properties of the thread that first needed it. The
 * copy takes about a microsecond; a call into Python takes hundreds.
 */
public final class SparkThread {
  private final SparkContext context;
  private final Properties properties;
  private final Option session;

  private SparkThread(SparkContext context, Properties properties, Option session) {
    this.context = context;
    this.properties = properties;
    this.session = session;
  }

  /** The state of the current thread. */
  public static SparkThread current() {
    Option active = SparkContext$.MODULE$.getActive();
    SparkContext context = active.isEmpty() ? null : (SparkContext) active.get();
    Properties properties = context == null ? null : (Properties) context.getLocalProperties().clone();
    return new SparkThread(context, properties, SparkSession.getActiveSession());
  }

  /** Gives the current thread this state. */
  public void enter() {
    if (context != null) context.setLocalProperties(properties);
    if (session.isEmpty()) SparkSession.clearActiveSession();
    else SparkSession.setActiveSession((SparkSession) session.get());
  }

  /** Clears the state of the current thread. */
  public void leave() {
    if (context != null) context.setLocalProperties(new Properties());
    SparkSession.clearActiveSession();
  }
}
