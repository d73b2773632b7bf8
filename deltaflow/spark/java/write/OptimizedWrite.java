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
 * Shuffles the rows of a write before they are written, so that few tasks of about one size have all rows of a
 * partition. Otherwise many tasks with a few rows for many partitions would write many small files.
 *
 * Spark's REBALANCE hint does the shuffle, by adaptive execution. The rows are given to Spark as an RDD, as
 * foreachBatch gives them, because the plan of a micro-batch may not be planned again.
 *
 * Where an executor is lost, Spark computes a part of the rows again. Those that come from a shuffle come in another
 * order then, and what goes by the place of a row (numbers, draws) differs: rows would go to tasks that have ended, or
 * once more to others. Spark knows that the order may differ. A sample, here of all rows, tells it that the rows may,
 * too: it goes on only if no task has ended, or if its checksums, by default from Spark 4.2 on, are those of before.
 */
final class OptimizedWrite {
  private OptimizedWrite() {}

  // The driver can track this many blocks of a shuffle, and knows the exact sizes for this many reducers.
  private static final int MAX_BLOCKS = 50000000;
  private static final int MAX_REDUCERS = 2000;

  /**
   * The rows, rebalanced if the plan has optimizedWriteBytes. The columns name those of the rows by position: the
   * columns of a micro-batch have other ids.
   */
  static SparkPlan over(SparkSession session, SparkPlan rows, List columns, List partitionColumns, JsonNode plan) {
    if (plan.get("optimizedWriteBytes").isNull()) return rows;
    RDD tasks = rows.execute();
    if (tasks.getNumPartitions() <= 1) return rows;
    tasks = tasks.sample(false, 1.0, 0L);
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
    // The columns get new names, since the rows' own names may contain any character.
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
