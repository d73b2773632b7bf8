package io.deltaflow.spark.expressions;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.scan.PinScans;
import io.deltaflow.spark.scan.Pins;
import io.deltaflow.spark.write.FileWrite;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.QueryPlanningTracker$;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.catalyst.optimizer.ComputeCurrentTime$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.ExpressionUtils$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;

/** The source of a MERGE, and a frame with subqueries: what they read of Delta tables, and which versions. */
public final class MergeSource {
  private MergeSource() {}

  /**
   * What the source is made of, as JSON: the scans of Delta tables with their versions, whether Spark has some of it
   * cached, the names of its operators ("DeltaScan" for those scans), and which of its expressions may have other
   * values another time ("nondeterministic", "function" for a user-defined one, "subquery").
   */
  public static String described(Dataset source) {
    QueryExecution query = query(source);
    Map described = new LinkedHashMap();
    described.put("scans", FileWrite.scans(query));
    described.put("cached", Boolean.valueOf(has(query.withCachedData(), InMemoryRelation.class)));
    Set operators = new TreeSet();
    Set expressions = new TreeSet();
    describe(query.analyzed(), operators, expressions);
    described.put("operators", operators);
    described.put("variableExpressions", expressions);
    return Python.json(described);
  }

  /** The source at the versions that `described` told. */
  public static Dataset pinned(final SparkSession session, Dataset source) {
    final QueryExecution query = query(source);
    LogicalPlan plan =
        (LogicalPlan) QueryPlanningTracker$.MODULE$.withTracker(query.tracker(), new AbstractFunction0() {
          public Object apply() { return new PinScans().apply(query.analyzed()); }
        });
    return org.apache.spark.sql.classic.Dataset.ofRows(session, plan);
  }

  /** The source and the analysed columns, in a list, with one time for now in all of them. */
  public static List atOneTime(SparkSession session, Dataset source, List columns) {
    List named = new ArrayList();
    for (Object column : columns) {
      named.add(Plans.alias(ExpressionUtils$.MODULE$.expression((Column) column), ""));
    }
    Project all = new Project(Plans.seq(named), query(source).analyzed());
    Project timed = (Project) ComputeCurrentTime$.MODULE$.apply(all);
    List found = new ArrayList();
    found.add(org.apache.spark.sql.classic.Dataset.ofRows(session, timed.child()));
    for (Object column : CollectionConverters.asJava(timed.projectList())) {
      found.add(ExpressionUtils$.MODULE$.column(((Alias) column).child()));
    }
    return found;
  }

  /** Makes the frame's execution read this version of the table at the root where it reads the newest one. */
  public static void readAt(Dataset frame, String root, long version) {
    Pins.of(query(frame).tracker()).readAt(root, version);
  }

  private static void describe(LogicalPlan plan, Set operators, Set expressions) {
    operators.add(PinScans.scan(plan) == null ? plan.getClass().getSimpleName() : "DeltaScan");
    for (Object expression : CollectionConverters.asJava(plan.expressions())) {
      describe((Expression) expression, expressions);
    }
    for (Object child : CollectionConverters.asJava(plan.children())) {
      describe((LogicalPlan) child, operators, expressions);
    }
  }

  private static void describe(Expression expression, Set found) {
    if (!expression.deterministic()) found.add("nondeterministic");
    if (expression instanceof UserDefinedExpression) found.add("function");
    if (expression instanceof SubqueryExpression) found.add("subquery");
    for (Object child : CollectionConverters.asJava(expression.children())) describe((Expression) child, found);
  }

  private static boolean has(LogicalPlan plan, Class operator) {
    if (operator.isInstance(plan)) return true;
    for (Object child : CollectionConverters.asJava(plan.children())) {
      if (has((LogicalPlan) child, operator)) return true;
    }
    return false;
  }

  private static QueryExecution query(Dataset frame) {
    return ((org.apache.spark.sql.classic.Dataset) frame).queryExecution();
  }
}
