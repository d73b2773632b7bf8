package io.deltaflow.spark.write;

import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.List;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.MapOutputStatistics;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.execution.CoalescedPartitionSpec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AQEShuffleReadExec;
import org.apache.spark.sql.execution.adaptive.ShufflePartitionsUtil$;
import org.apache.spark.sql.execution.adaptive.ShuffleQueryStageExec;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec$;
import org.apache.spark.util.ThreadUtils;
import scala.Option;
import scala.Some;
import scala.collection.immutable.Seq;
import scala.concurrent.duration.Duration$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Brings the rows of a write together before they are written: those of a table's partition into few tasks, of
 * about a size each, so that few files are written where many tasks have a few rows for many partitions.
 *
 * Made of Spark's own operators, over any physical plan: a micro-batch's may not be planned again. The exchange is
 * run as adaptive execution would run it, then read in pieces that depend on what its tasks have written.
 */
public final class OptimizedWrite {
  private OptimizedWrite() {}

  // As many blocks as a shuffle's driver can look after, and as many reducers as it knows the exact sizes of.
  private static final int MAX_BLOCKS = 50000000;
  private static final int MAX_REDUCERS = 2000;

  /**
   * The rows, exchanged if the write is to be optimized: plan has the bytes of a task's rows, or null. The written
   * columns stand for the rows' in their order (those of a micro-batch have other ids).
   */
  public static SparkPlan over(SparkPlan rows, List columns, List partitionColumns, JsonNode plan, Long handle) {
    if (plan.get("optimizedWriteBytes").isNull()) return rows;
    int tasks = rows.execute().getNumPartitions();
    if (tasks <= 1) return rows;
    int reducers = partitionColumns.isEmpty() ? 1 : Math.min(MAX_REDUCERS, Math.max(MAX_BLOCKS / tasks, 1));
    List keys = new ArrayList();
    for (Object column : partitionColumns) keys.add(rows.output().apply(columns.indexOf(column)));
    ShuffleExchangeExec exchange =
        exchange(new HashPartitioning(CollectionConverters.asScala(keys).toList(), reducers), rows);
    ShuffleQueryStageExec stage = new ShuffleQueryStageExec(0, exchange, (SparkPlan) exchange.canonicalized());
    MapOutputStatistics written;
    try {
      // An interrupt ends the wait: a stream that is stopped cancels its jobs.
      written = (MapOutputStatistics) ThreadUtils.awaitResult(stage.materialize(), Duration$.MODULE$.Inf());
    } catch (Throwable e) {
      throw Violations.found(e, handle);
    }
    stage.resultOption().set(new Some(written));
    return new AQEShuffleReadExec(stage, pieces(exchange.shuffleId(), written.bytesByPartitionId(),
        plan.get("optimizedWriteBytes").asLong()));
  }

  /** Which task reads what: a reducer's rows together, or the rows of some mappers where they are too many. */
  private static Seq pieces(int shuffle, long[] bytesOfReducers, long targetBytes) {
    List pieces = new ArrayList();
    for (int reducer = 0; reducer < bytesOfReducers.length; reducer++) {
      long bytes = bytesOfReducers[reducer];
      Option parts = bytes <= targetBytes ? Option.empty()
          : ShufflePartitionsUtil$.MODULE$.createSkewPartitionSpecs(shuffle, reducer, targetBytes,
              ShufflePartitionsUtil$.MODULE$.SMALL_PARTITION_FACTOR());
      if (parts.isDefined()) {
        pieces.addAll(CollectionConverters.asJava((Seq) parts.get()));
      } else if (bytes > 0 || (pieces.isEmpty() && reducer == bytesOfReducers.length - 1)) {
        pieces.add(new CoalescedPartitionSpec(reducer, reducer + 1, new Some(Long.valueOf(bytes))));
      }
    }
    return CollectionConverters.asScala(pieces).toList();
  }

  /** An exchange with Spark's own defaults of what differs between its releases. */
  private static ShuffleExchangeExec exchange(HashPartitioning partitioning, SparkPlan rows) {
    try {
      Constructor constructor = ShuffleExchangeExec.class.getConstructors()[0];
      Object[] arguments = new Object[constructor.getParameterTypes().length];
      arguments[0] = partitioning;
      arguments[1] = rows;
      for (int i = 2; i < arguments.length; i++) {
        arguments[i] = ShuffleExchangeExec$.class.getMethod("$lessinit$greater$default$" + (i + 1), new Class[0])
            .invoke(ShuffleExchangeExec$.MODULE$, new Object[0]);
      }
      return (ShuffleExchangeExec) constructor.newInstance(arguments);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("ShuffleExchangeExec of this Spark has an unknown form", e);
    }
  }
}
