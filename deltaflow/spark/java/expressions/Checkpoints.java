package io.deltaflow.spark.expressions;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.List;

import org.apache.spark.SparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockManager;
import org.apache.spark.storage.RDDBlockId;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Local checkpoints: rows that a job has computed, and that all later jobs of an operation have to find the same. Two
 * attempts of a task that run at once (speculation; a stage that is tried again) may each store what they have found,
 * on an executor of their own. Readers take the nearest copy, and of rows that are not deterministic the copies differ.
 */
public final class Checkpoints {
  private Checkpoints() {}

  /** Of how many parts of the checkpoints that the frames read there are several copies. */
  public static int computedTwice(List frames) {
    int parts = 0;
    for (Object frame : frames) parts += computedTwice(Frames.plan((Dataset) frame));
    return parts;
  }

  private static int computedTwice(LogicalPlan plan) {
    int parts = plan instanceof LogicalRDD ? computedTwice(((LogicalRDD) plan).rdd()) : 0;
    for (Object child : CollectionConverters.asJava(plan.children())) parts += computedTwice((LogicalPlan) child);
    return parts;
  }

  /** The same of an RDD; 0 where it is no checkpoint, or Spark was asked for several copies. */
  public static int computedTwice(RDD rdd) {
    if (!rdd.isCheckpointed() || rdd.getStorageLevel().replication() > 1) return 0;
    BlockId[] blocks = new BlockId[rdd.getNumPartitions()];
    for (int i = 0; i < blocks.length; i++) blocks[i] = new RDDBlockId(rdd.id(), i);
    int parts = 0;
    Seq copies = blocks(rdd.sparkContext()).master().getLocations(blocks);
    for (Object of : CollectionConverters.asJava(copies)) parts += ((Seq) of).size() > 1 ? 1 : 0;
    return parts;
  }

  /** Not by a call: compilers look at all methods, and Spark 4.3's SparkEnv has some of types that PySpark lacks. */
  public static BlockManager blocks(SparkContext context) {
    Object env = context.env();
    try {
      MethodType type = MethodType.methodType(BlockManager.class);
      MethodHandle found = MethodHandles.publicLookup().findVirtual(env.getClass(), "blockManager", type);
      return (BlockManager) found.invokeWithArguments(new Object[] {env});
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }

  /** Gives back the storage of a frame that is a checkpoint. */
  public static void release(Dataset checkpointed) { ((LogicalRDD) Frames.plan(checkpointed)).rdd().unpersist(false); }
}
