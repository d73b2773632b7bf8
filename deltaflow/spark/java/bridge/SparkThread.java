package io.deltaflow.spark.bridge;

import java.util.Properties;

import org.apache.spark.SparkContext;
import org.apache.spark.SparkContext$;
import org.apache.spark.sql.classic.SparkSession;
import scala.Option;

/**
 * What Spark keeps by thread (the job group and its like, the SQL execution, the active session), so that
 * jobs that Python starts while it answers a call are those of the call's thread, and of no other.
 *
 * A thread of the pool inherits what the thread had that was the first to need it, so this is for every call.
 * Costs a copy of the properties, about a microsecond; a call into Python takes hundreds.
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

  /** What the current thread has. */
  public static SparkThread current() {
    Option active = SparkContext$.MODULE$.getActive();
    SparkContext context = active.isEmpty() ? null : (SparkContext) active.get();
    Properties properties = context == null ? null : (Properties) context.getLocalProperties().clone();
    return new SparkThread(context, properties, SparkSession.getActiveSession());
  }

  /** Gives it to the current thread. */
  public void enter() {
    if (context != null) context.setLocalProperties(properties);
    if (session.isEmpty()) SparkSession.clearActiveSession();
    else SparkSession.setActiveSession((SparkSession) session.get());
  }

  /** Leaves the current thread with nothing. */
  public void leave() {
    if (context != null) context.setLocalProperties(new Properties());
    SparkSession.clearActiveSession();
  }
}
