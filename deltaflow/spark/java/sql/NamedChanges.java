package io.deltaflow.spark.sql;

import java.util.Map;

import io.deltaflow.spark.scan.ChangeFeeds;
import io.deltaflow.spark.scan.Relations;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias$;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import scala.Function1;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Reads the change rows of a table by name where options of the name ask for them: spark.read.option("readChangeFeed",
 * "true").table(name). Runs before Spark looks for the name, because Spark keeps the relation of a name for all later
 * reads, whatever their options.
 */
public final class NamedChanges extends Rule {
  private final SparkSession session;

  public NamedChanges(SparkSession session) { this.session = session; }

  public TreeNode apply(TreeNode plan) {
    return ((LogicalPlan) plan).resolveOperatorsUp(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        if (!(node instanceof UnresolvedRelation)) return false;
        UnresolvedRelation named = (UnresolvedRelation) node;
        return !named.isStreaming() && ChangeFeeds.areAsked(named.options()) && path(named) != null;
      }

      public Object applyOrElse(Object node, Function1 otherwise) {
        return isDefinedAt(node) ? changes((UnresolvedRelation) node) : otherwise.apply(node);
      }
    });
  }

  /** Where the Delta table of this name is; null for any other name. */
  private String path(UnresolvedRelation named) {
    Map found = TableNames.find(session, CollectionConverters.asJava(named.multipartIdentifier()));
    return found == null ? null : (String) found.get("path");
  }

  private LogicalPlan changes(UnresolvedRelation named) {
    LogicalPlan rows = Relations.node(session, path(named), named.options().asCaseSensitiveMap());
    return SubqueryAlias$.MODULE$.apply(named.multipartIdentifier(), rows);
  }
}
