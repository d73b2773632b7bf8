package io.deltaflow.spark.scan;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;

/** Gives each scan of a table's newest version a fixed version, the same for all scans of an execution. */
public final class PinScans extends Rule {
  public TreeNode apply(TreeNode plan) {
    final Pins pins = Pins.ofThisExecution();
    return ((LogicalPlan) plan).transformWithSubqueries(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) { return scan(node) != null && !scan(node).isPinned(); }

      public Object applyOrElse(Object node, Function1 otherwise) {
        return isDefinedAt(node) ? pinned((LogicalRelation) node, pins) : otherwise.apply(node);
      }
    });
  }

  /** The scan of a node that reads a Delta table; null for any other node. */
  public static TableScan scan(Object node) {
    if (!(node instanceof LogicalRelation)) return null;
    Object relation = ((LogicalRelation) node).relation();
    if (!(relation instanceof HadoopFsRelation)) return null;
    Object files = ((HadoopFsRelation) relation).location();
    return files instanceof TableScan ? (TableScan) files : null;
  }

  private static LogicalRelation pinned(LogicalRelation node, Pins pins) {
    HadoopFsRelation relation = (HadoopFsRelation) node.relation();
    return Relations.withScan(node, scan(node).pinned(pins, relation.dataSchema()));
  }
}
