package io.deltaflow.spark.expressions;

import java.util.LinkedHashMap;
import java.util.Map;

import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.scan.PinScans;
import io.deltaflow.spark.write.TableWrite;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.QueryPlanningTracker$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.catalyst.optimizer.ComputeCurrentTime$;
import org.apache.spark.sql.catalyst.plans.logical.Distinct;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;

/** The source of a MERGE, which several jobs read: they have to find the same rows. */
public final class MergeSource {
  private MergeSource() {}

  /**
   * What the source reads: the scans of Delta tables with their versions, whether Spark has some of it cached, and
   * whether every execution of it (once pinned) gives the same rows for sure.
   */
  public static String described(Dataset source) {
    QueryExecution query = query(source);
    Map described = new LinkedHashMap();
    described.put("scans", TableWrite.scans(query));
    described.put("cached", Boolean.valueOf(has(query.withCachedData(), InMemoryRelation.class)));
    described.put("repeatable", Boolean.valueOf(isRepeatable(query.analyzed())));
    return Python.json(described);
  }

  /** The source at the versions that `described` told, with one time for now. */
  public static Dataset pinned(final SparkSession session, Dataset source) {
    final QueryExecution query = query(source);
    LogicalPlan plan = (LogicalPlan) QueryPlanningTracker$.MODULE$.withTracker(query.tracker(), new AbstractFunction0() {
      public Object apply() { return new PinScans().apply(query.analyzed()); }
    });
    return org.apache.spark.sql.classic.Dataset.ofRows(session, ComputeCurrentTime$.MODULE$.apply(plan));
  }

  /** Gives back the storage of a frame that was checkpointed. */
  public static void release(Dataset checkpointed) {
    ((LogicalRDD) query(checkpointed).analyzed()).rdd().unpersist(false);
  }

  /** As conservative as delta-spark: filters and projections of Delta tables and of rows that the query has. */
  private static boolean isRepeatable(LogicalPlan plan) {
    for (Object expression : CollectionConverters.asJava(plan.expressions())) {
      if (!isRepeatable((Expression) expression)) return false;
    }
    if (plan instanceof LocalRelation || plan instanceof OneRowRelation) return true;
    if (plan.children().isEmpty()) return PinScans.scan(plan) != null;
    if (!(plan instanceof Project || plan instanceof Filter || plan instanceof Distinct || plan instanceof Union
        || plan instanceof SubqueryAlias || plan instanceof View)) {
      return false;
    }
    for (Object child : CollectionConverters.asJava(plan.children())) {
      if (!isRepeatable((LogicalPlan) child)) return false;
    }
    return true;
  }

  private static boolean isRepeatable(Expression expression) {
    if (!expression.deterministic() || expression instanceof UserDefinedExpression
        || expression instanceof SubqueryExpression) {
      return false;
    }
    for (Object child : CollectionConverters.asJava(expression.children())) {
      if (!isRepeatable((Expression) child)) return false;
    }
    return true;
  }

  private static boolean has(LogicalPlan plan, Class kind) {
    if (kind.isInstance(plan)) return true;
    for (Object child : CollectionConverters.asJava(plan.children())) {
      if (has((LogicalPlan) child, kind)) return true;
    }
    return false;
  }

  private static QueryExecution query(Dataset frame) {
    return ((org.apache.spark.sql.classic.Dataset) frame).queryExecution();
  }
}
