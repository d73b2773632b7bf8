package io.deltaflow.spark.scan;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Answers count(*), min and max of a whole table or of whole partitions by statistics alone, and reduces a scan to
 * the files that a LIMIT needs. Python decides whether the statistics are exact. Runs after PinScans.
 *
 * Crossings into Python: 1 for each aggregate of this form, 2 with filters on partitions.
 */
public final class MetadataOnlyQuery extends Rule {
  private static final String ENABLED = "spark.databricks.delta.optimizeMetadataQuery.enabled";

  public TreeNode apply(TreeNode plan) {
    final boolean answers = conf().getConfString(ENABLED, "true").equalsIgnoreCase("true");
    return ((LogicalPlan) plan).transformWithSubqueries(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) { return node instanceof Aggregate || node instanceof LocalLimit; }

      public Object applyOrElse(Object node, Function1 otherwise) {
        Object answer = null;
        if (node instanceof Aggregate && answers) answer = answered((Aggregate) node);
        if (node instanceof LocalLimit) answer = limited((LocalLimit) node);
        return answer == null ? otherwise.apply(node) : answer;
      }
    });
  }

  /** The aggregate's row as a local relation; null if Spark has to scan the files. */
  private static LogicalPlan answered(Aggregate aggregate) {
    if (!aggregate.groupingExpressions().isEmpty()) return null;
    List asked = new ArrayList();
    for (Object column : CollectionConverters.asJava(aggregate.aggregateExpressions())) {
      if (!(column instanceof Alias) || !collect(((Alias) column).child(), asked)) return null;
    }
    if (asked.isEmpty()) return null;
    PartitionOnlyScan found = PartitionOnlyScan.of(aggregate.child(), false);
    if (found == null) return null;
    List requests = new ArrayList();
    for (Object function : asked) requests.add(request((AggregateExpression) function));
    JsonNode answer = found.scan.aggregates(found.partitionFilters, requests);
    if (answer == null) return null;
    final Map values = new LinkedHashMap();
    Iterator answers = answer.elements();
    for (Object function : asked) {
      DataType type = ((AggregateExpression) function).dataType();
      values.put(function, Literal.create(value((JsonNode) answers.next(), type), type));
    }
    List row = new ArrayList();
    for (Object column : CollectionConverters.asJava(aggregate.aggregateExpressions())) {
      Expression result = (Expression) ((Alias) column).child().transform(new AbstractPartialFunction() {
        public boolean isDefinedAt(Object node) { return values.containsKey(node); }

        public Object applyOrElse(Object node, Function1 otherwise) {
          return isDefinedAt(node) ? values.get(node) : otherwise.apply(node);
        }
      });
      if (!result.foldable()) return null;
      row.add(result.eval(InternalRow.empty()));
    }
    List rows = new ArrayList();
    rows.add(new GenericInternalRow(row.toArray()));
    return new LocalRelation(aggregate.output(), CollectionConverters.asScala(rows).toList(), false, Option.empty());
  }

  /** Adds the aggregate functions of an expression; false if statistics cannot answer one of them. */
  private static boolean collect(Expression expression, List asked) {
    if (expression instanceof AggregateExpression) {
      if (request((AggregateExpression) expression) == null) return false;
      asked.add(expression);
      return true;
    }
    if (expression instanceof Attribute) return false;
    for (Object child : CollectionConverters.asJava(expression.children())) {
      if (!collect((Expression) child, asked)) return false;
    }
    return true;
  }

  /** The request for a function; null if it is not count(*), or min or max of a column. */
  private static Map request(AggregateExpression function) {
    if (function.isDistinct() || function.filter().isDefined()) return null;
    Expression of = (Expression) function.aggregateFunction();
    Map request = new LinkedHashMap();
    if (of instanceof Count) {
      Object counted = ((Count) of).children().size() == 1 ? ((Count) of).children().head() : null;
      if (!(counted instanceof Literal) || ((Literal) counted).value() == null) return null;
      request.put("function", "count");
      return request;
    }
    if (!(of instanceof Min || of instanceof Max)) return null;
    Object column = of.children().head();
    if (!(column instanceof Attribute)) return null;
    request.put("function", of instanceof Min ? "min" : "max");
    request.put("column", ((Attribute) column).name());
    request.put("type", ((Attribute) column).dataType().simpleString());
    return request;
  }

  private static Object value(JsonNode json, DataType type) {
    if (json.isNull()) return null;
    if (json.isTextual()) return UTF8String.fromString(json.asText());
    if (type.equals(DataTypes.LongType)) return Long.valueOf(json.asLong());
    if (type.equals(DataTypes.ShortType)) return Short.valueOf((short) json.asInt());
    if (type.equals(DataTypes.ByteType)) return Byte.valueOf((byte) json.asInt());
    return Integer.valueOf(json.asInt());
  }

  /** The limit over a scan of only as many files as it needs; null if nothing changes. */
  private static LogicalPlan limited(LocalLimit limit) {
    if (!(limit.limitExpr() instanceof Literal)) return null;
    final int rows = ((Number) ((Literal) limit.limitExpr()).value()).intValue();
    PartitionOnlyScan found = PartitionOnlyScan.of(limit.child(), true);
    if (found == null || !found.scan.needsFewer(rows)) return null;
    return (LogicalPlan) limit.transform(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) { return PinScans.scan(node) != null; }

      public Object applyOrElse(Object node, Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        return Relations.withScan((LogicalRelation) node, PinScans.scan(node).limitedTo(rows));
      }
    });
  }
}
