package io.deltaflow.spark.expressions;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import io.deltaflow.spark.bridge.Python;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.SparkSession;
import scala.jdk.javaapi.CollectionConverters;

/** Conditions in SQL on the columns of a table that are to become a rule for all its rows. */
public final class Conditions {
  private Conditions() {}

  /**
   * What a condition has in it that no rule may have, as the JSON object {"kind", "sql"}; "null" without any.
   * Spark's AnalysisException or ParseException for what is no condition on these columns at all.
   */
  public static String faultIn(SparkSession session, String condition, String schema) {
    List columns = new ArrayList(CollectionConverters.asJava(DataTypeUtils.toAttributes(Plans.schema(schema))));
    LogicalPlan filter = new Filter(Plans.parsed(session, condition), Plans.standIn(columns));
    LogicalPlan analyzed = (LogicalPlan) session.sessionState().analyzer().execute(filter);
    // Where the analysis puts something else in the filter's place, that is what runs the condition.
    Map fault = analyzed instanceof Filter ? fault(((Filter) analyzed).condition())
                                           : found("expression", ((Filter) filter).condition());
    if (fault == null) session.sessionState().analyzer().checkAnalysis(analyzed);
    return Python.json(fault);
  }

  private static Map fault(Expression expression) {
    if (expression instanceof SubqueryExpression) return found("expression", expression);
    if (expression instanceof AggregateExpression) return found("aggregate", expression);
    if (expression instanceof UserDefinedExpression) return found("function", expression);
    for (Object child : CollectionConverters.asJava(expression.children())) {
      Map fault = fault((Expression) child);
      if (fault != null) return fault;
    }
    return expression.deterministic() ? null : found("nondeterministic", expression);
  }

  private static Map found(String kind, Expression expression) {
    Map fault = new LinkedHashMap();
    fault.put("kind", kind);
    fault.put("sql", expression.sql());
    return fault;
  }
}
