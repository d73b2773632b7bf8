package io.deltaflow.spark.sql;

import java.util.ArrayList;
import java.util.List;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.AppendDataExecV1;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;
import scala.runtime.BoxedUnit;

/**
 * Plans a dynamic overwrite of a table by name as a V1 write, as Spark plans all other writes. Spark's own plan
 * would send the rows to a writer of ours on the executors.
 */
public final class DynamicOverwrite extends SparkStrategy {
  public Seq apply(LogicalPlan plan) {
    List plans = new ArrayList();
    if (plan instanceof OverwritePartitionsDynamic) {
      Option write = ((OverwritePartitionsDynamic) plan).write();
      if (!write.isEmpty() && write.get() instanceof DeltaV1Write) {
        DeltaV1Write deltaWrite = (DeltaV1Write) write.get();
        // DeltaV1Write takes the rows from the statement: the optimized plan here may not be analyzed again.
        plans.add(new AppendDataExecV1(deltaWrite.table(), new OneRowRelation(), new Nothing(), deltaWrite));
      }
    }
    return CollectionConverters.asScala(plans).toList();
  }

  private static final class Nothing extends AbstractFunction0 {
    public Object apply() { return BoxedUnit.UNIT; }

    public void apply$mcV$sp() {}
  }
}
