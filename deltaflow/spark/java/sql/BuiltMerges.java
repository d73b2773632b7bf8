package io.deltaflow.spark.sql;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;

/**
 * Runs DataFrame.mergeInto on a Delta table as the same MERGE INTO. Spark builds its plan without the parser. Runs
 * before Spark looks for the names of the plan.
 */
public final class BuiltMerges extends Rule {
  private final SparkSession session;

  public BuiltMerges(SparkSession session) { this.session = session; }

  public TreeNode apply(TreeNode plan) {
    return plan instanceof MergeIntoTable ? Statements.withDeltaCommands(session, (LogicalPlan) plan) : plan;
  }
}
