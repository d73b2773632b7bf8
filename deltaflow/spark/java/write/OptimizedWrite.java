package io.deltaflow.spark.write;

import java.util.ArrayList;
import java.util.List;

import com.fasterxml.jackson.databind.JsonNode;
import io.deltaflow.spark.expressions.Plans;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.RuntimeConfig;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * Brings the rows of a write together before they are written: those of a table's partition into few tasks, of
 * about a size each, so that few files are written where many tasks have a few rows for many partitions.
 *
 * Spark's own REBALANCE hint does it, by adaptive execution. It stands on the rows as they were planned, since a
 * micro-batch's plan may not be planned again: they are given to Spark as foreachBatch gives them, as an RDD.
 */
final class OptimizedWrite {
  private OptimizedWrite() {}

  // As many blocks as a shuffle's driver can look after, and as many reducers as it knows the exact sizes of.
  private static final int MAX_BLOCKS = 50000000;
  private static final int MAX_REDUCERS = 2000;

  /**
   * The rows, rebalanced if the write is to be optimized: plan has the bytes of a task's rows, or null. The written
   * columns stand for the rows' in their order (those of a micro-batch have other ids).
   */
  static SparkPlan over(SparkSession session, SparkPlan rows, List columns, List partitionColumns, JsonNode plan) {
    if (plan.get("optimizedWriteBytes").isNull()) return rows;
    RDD tasks = rows.execute();
    if (tasks.getNumPartitions() <= 1) return rows;
    int reducers = Math.min(MAX_REDUCERS, Math.max(MAX_BLOCKS / tasks.getNumPartitions(), 1));
    SparkSession own = session.cloneSession();
    RuntimeConfig settings = own.conf();
    settings.set("spark.sql.adaptive.enabled", "true");
    settings.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", plan.get("optimizedWriteBytes").asText() + "b");
    settings.set("spark.sql.adaptive.coalescePartitions.enabled", "true");
    settings.set("spark.sql.adaptive.coalescePartitions.parallelismFirst", "false");
    settings.set("spark.sql.adaptive.optimizeSkewsInRebalancePartitions.enabled", "true");
    settings.set("spark.sql.adaptive.localShuffleReader.enabled", "false");
    settings.set("spark.sql.shuffle.partitions", partitionColumns.isEmpty() ? "1" : String.valueOf(reducers));
    // Columns go by their position: the rows' own names may hold anything.
    List keys = new ArrayList();
    StructField[] fields = new StructField[columns.size()];
    for (int i = 0; i < fields.length; i++) {
      Attribute column = (Attribute) rows.output().apply(i);
      fields[i] = new StructField("c" + i, column.dataType(), column.nullable(), Metadata.empty());
      if (partitionColumns.contains(columns.get(i))) keys.add(functions.col("c" + i));
    }
    Dataset balanced =
        (Dataset) own.internalCreateDataFrame(tasks, new StructType(fields), false).hint("rebalance", keys.toArray());
    List named = new ArrayList();
    for (int i = 0; i < fields.length; i++) {
      Attribute column = (Attribute) rows.output().apply(i);
      named.add(new Alias((Attribute) balanced.queryExecution().analyzed().output().apply(i), column.name(),
          column.exprId(), column.qualifier(), Option.empty(), Plans.seq(new ArrayList())));
    }
    return Dataset.ofRows(own, new Project(Plans.seq(named), balanced.queryExecution().analyzed()))
        .queryExecution()
        .executedPlan();
  }
}
