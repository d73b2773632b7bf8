package io.deltaflow.spark.expressions;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.scan.PinScans;
import io.deltaflow.spark.write.FileWrite;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.QueryPlanningTracker$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.ExpressionUtils$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import scala.Function1;
import scala.runtime.AbstractFunction0;
import scala.runtime.AbstractPartialFunction;

/**
 * Subqueries of analysed columns, each evaluated once: its rows are checkpointed, so that all executions of the columns
 * find the same. They read the versions of Delta tables that the executions of one frame read.
 */
public final class Subqueries {
  private final SparkSession session;
  private final QueryExecution pins;
  private final List rows = new ArrayList();
  private final List columns = new ArrayList();
  private final List scans = new ArrayList();

  /** pinned: the frame. columns: analysed ones, in which no subquery refers to columns outside of it. */
  public Subqueries(SparkSession session, Dataset pinned, List columns) {
    this.session = session;
    this.pins = ((org.apache.spark.sql.classic.Dataset) pinned).queryExecution();
    for (Object column : columns) {
      Expression found = (Expression) ExpressionUtils$.MODULE$.expression((Column) column).transformUp(evaluated());
      this.columns.add(ExpressionUtils$.MODULE$.column(found));
    }
  }

  /** The columns over the checkpointed rows, in their order. */
  public List columns() { return columns; }

  /** The frames of the rows. */
  public List rows() { return rows; }

  /** The scans of Delta tables in the subqueries, as JSON. */
  public String scans() {
    Map found = new LinkedHashMap();
    found.put("scans", scans);
    return Python.json(found);
  }

  private AbstractPartialFunction evaluated() {
    return new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) { return node instanceof SubqueryExpression; }

      public Object applyOrElse(Object node, Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        SubqueryExpression subquery = (SubqueryExpression) node;
        return subquery.withNewPlan(evaluated((LogicalPlan) subquery.plan()));
      }
    };
  }

  private LogicalPlan evaluated(final LogicalPlan plan) {
    LogicalPlan fixed =
        (LogicalPlan) QueryPlanningTracker$.MODULE$.withTracker(pins.tracker(), new AbstractFunction0() {
          public Object apply() { return new PinScans().apply(plan); }
        });
    org.apache.spark.sql.classic.Dataset frame = org.apache.spark.sql.classic.Dataset.ofRows(session, fixed);
    scans.addAll(FileWrite.scans(frame.queryExecution()));
    Dataset kept = frame.localCheckpoint(true);
    rows.add(kept);
    return Frames.plan(kept);
  }
}
