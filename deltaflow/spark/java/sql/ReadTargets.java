package io.deltaflow.spark.sql;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import io.deltaflow.spark.expressions.Plans;
import io.deltaflow.spark.scan.Relations;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Function1;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Reads a table in a subquery of the statement that writes to it. Spark resolves a name once for a statement: the
 * subquery gets the target of the write, which is no relation that can be scanned.
 */
public final class ReadTargets extends Rule {
  private final SparkSession session;

  public ReadTargets(SparkSession session) { this.session = session; }

  /** Subqueries come as plans of their own, in which there is no command. The target of a command stays. */
  public TreeNode apply(TreeNode plan) {
    if (plan.containsPattern(TreePattern.COMMAND())) return plan;
    return ((LogicalPlan) plan).resolveOperatorsUp(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node instanceof DataSourceV2Relation && ((DataSourceV2Relation) node).table() instanceof DeltaTable;
      }

      public Object applyOrElse(Object node, Function1 otherwise) {
        return isDefinedAt(node) ? scan((DataSourceV2Relation) node) : otherwise.apply(node);
      }
    });
  }

  private LogicalRelation scan(DataSourceV2Relation target) {
    DeltaTable table = (DeltaTable) target.table();
    LogicalRelation found = Relations.node(session, table.path(), target.options().asCaseSensitiveMap());
    // Names around the subquery's table may have been resolved to the target's columns.
    Map known = new HashMap();
    for (Object column : CollectionConverters.asJava(target.output())) known.put(((Attribute) column).name(), column);
    List columns = new ArrayList();
    for (Object column : CollectionConverters.asJava(found.output())) {
      Object same = known.get(((Attribute) column).name());
      columns.add(same == null ? column : same);
    }
    return new LogicalRelation(
        found.relation(), Plans.seq(columns), Option.apply(table.v1Table()), false, Option.empty());
  }
}
