package io.deltaflow.spark.bridge;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;

import com.codahale.metrics.Counter;
import com.codahale.metrics.MetricRegistry;
import org.apache.spark.metrics.MetricsSystem;
import org.apache.spark.metrics.source.Source;

/** The counters of deltaflow: the source "deltaflow" of Spark's metrics system (JMX, /metrics/json, Prometheus). */
public final class Metrics implements Source {
  private static final Metrics INSTANCE = new Metrics();
  private final MetricRegistry registry = new MetricRegistry();
  private final Counter repeatedWrites = registry.counter("repeatedWrites");

  private Metrics() {}

  /** Adds the source to the metrics of the running context. Idempotent. */
  public static void install() {
    MetricsSystem metrics = metricsSystem();
    if (metrics.getSourcesByName(INSTANCE.sourceName()).isEmpty()) metrics.registerSource(INSTANCE);
  }

  /** The number of repeated writes in this JVM. */
  public static long repeatedWrites() { return INSTANCE.repeatedWrites.getCount(); }

  /**
   * SparkEnv.get().metricsSystem(), by handles of these two methods. Other methods of the class have types that
   * Spark's distribution lacks, so that neither a compiler nor reflection can load the whole class.
   */
  private static MetricsSystem metricsSystem() {
    try {
      Class env = Class.forName("org.apache.spark.SparkEnv");
      MethodHandles.Lookup lookup = MethodHandles.publicLookup();
      Object running = lookup.findStatic(env, "get", MethodType.methodType(env)).invokeWithArguments(new Object[0]);
      return (MetricsSystem) lookup.findVirtual(env, "metricsSystem", MethodType.methodType(MetricsSystem.class))
          .invokeWithArguments(new Object[] {running});
    } catch (Throwable e) {
      throw Thrown.asIs(e);
    }
  }

  public String sourceName() { return "deltaflow"; }

  public MetricRegistry metricRegistry() { return registry; }

  /** Counts a write that its table had already, by txnAppId and txnVersion or as a stream's batch. */
  public static void repeatedWrite() { INSTANCE.repeatedWrites.inc(); }
}
