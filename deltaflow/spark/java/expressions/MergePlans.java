package io.deltaflow.spark.expressions;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.scan.Filters;
import io.deltaflow.spark.scan.Relations;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.CheckOverflowInTableInsert;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression$;
import org.apache.spark.sql.catalyst.expressions.UpCast;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.optimizer.ComputeCurrentTime$;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.ExpressionUtils$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * What MERGE asks of Spark about expressions. They are analysed once, over the target's and the source's columns
 * as its clauses see them, and then serve over every frame that has the same attributes (of other files, joined).
 */
public final class MergePlans {
  private MergePlans() {}

  /** The frame over a scan of a table, but over another one: CHAR columns are padded above it, as Spark planned it. */
  public static Dataset scan(final SparkSession session, String relation, Dataset like) {
    final HadoopFsRelation other = Relations.of(session, Python.parse(relation));
    return rows(session, (LogicalPlan) analyzed(like).transformUp(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) { return node instanceof LogicalRelation; }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        return new LogicalRelation(other, ((LogicalRelation) node).output(), Option.empty(), false, Option.empty());
      }
    }));
  }

  /** The columns as analysed expressions over the frame, with one time for now. */
  public static List resolved(Dataset frame, List columns) {
    Column[] named = new Column[columns.size()];
    for (int i = 0; i < named.length; i++) named[i] = ((Column) columns.get(i)).as("\0" + i);
    LogicalPlan plan = ComputeCurrentTime$.MODULE$.apply(analyzed(frame.select(named)));
    Seq list;
    if (plan instanceof Aggregate) list = ((Aggregate) plan).aggregateExpressions();
    else list = ((Project) plan).projectList();
    List resolved = new ArrayList();
    for (Object expression : CollectionConverters.asJava(list)) {
      resolved.add(column(expression instanceof Alias ? ((Alias) expression).child() : (Expression) expression));
    }
    return resolved;
  }

  /** What there is to know of analysed expressions over a frame, as JSON. */
  public static String described(Dataset frame, List columns) {
    List described = new ArrayList();
    for (Object column : columns) {
      Expression expression = expression(column);
      Map one = new LinkedHashMap();
      one.put("sql", expression.sql());
      one.put("type", expression.dataType().json());
      one.put("deterministic", Boolean.valueOf(expression.deterministic()));
      one.put("subquery", Boolean.valueOf(SubqueryExpression$.MODULE$.hasSubquery(expression)));
      one.put("aggregate", Boolean.valueOf(hasAggregate(expression)));
      // Windows and generators are evaluated by operators of their own, of which this would be an output.
      one.put("ofRow", Boolean.valueOf(expression.references().subsetOf(analyzed(frame).outputSet())));
      one.put("path", path(expression));
      described.add(one);
    }
    return Python.json(described);
  }

  private static boolean hasAggregate(Expression expression) {
    if (expression instanceof AggregateExpression) return true;
    for (Object child : CollectionConverters.asJava(expression.children())) {
      if (hasAggregate((Expression) child)) return true;
    }
    return false;
  }

  /** The names of a column and of the field in it; null for any other expression. */
  private static List path(Expression expression) {
    List names = new ArrayList();
    Expression parent = expression;
    while (parent instanceof GetStructField) {
      GetStructField field = (GetStructField) parent;
      names.add(0, ((StructType) field.child().dataType()).fields()[field.ordinal()].name());
      parent = field.child();
    }
    if (!(parent instanceof Attribute)) return null;
    names.add(0, ((Attribute) parent).name());
    return names;
  }

  /** The frame's own columns that an analysed expression refers to. */
  public static List references(Dataset frame, List columns) {
    List found = new ArrayList();
    for (Object attribute : CollectionConverters.asJava(analyzed(frame).output())) {
      for (Object column : columns) {
        if (!expression(column).references().contains((Attribute) attribute)) continue;
        found.add(column((Expression) attribute));
        break;
      }
    }
    return found;
  }

  /** The conjuncts that need nothing but the frame's columns, joined by AND; null if there are none. */
  public static Column within(Column condition, Dataset frame) {
    Expression joined = null;
    for (Object found : Plans.conjuncts(expression(condition))) {
      Expression conjunct = (Expression) found;
      if (!conjunct.references().subsetOf(analyzed(frame).outputSet())) continue;
      joined = joined == null ? conjunct : new And(joined, conjunct);
    }
    return joined == null ? null : column(joined);
  }

  /** The sides of the conjuncts by which an expression over the target equals one over the source, in turn. */
  public static List keys(Column condition, Dataset target, Dataset source) {
    List keys = new ArrayList();
    for (Object conjunct : Plans.conjuncts(expression(condition))) {
      if (!(conjunct instanceof EqualTo)) continue;
      Expression left = ((EqualTo) conjunct).left();
      Expression right = ((EqualTo) conjunct).right();
      if (isOf(left, target) && isOf(right, source))
        keys.addAll(Arrays.asList(new Object[] {column(left), column(right)}));
      if (isOf(left, source) && isOf(right, target))
        keys.addAll(Arrays.asList(new Object[] {column(right), column(left)}));
    }
    return keys;
  }

  private static boolean isOf(Expression expression, Dataset frame) {
    return !expression.references().isEmpty() && expression.references().subsetOf(analyzed(frame).outputSet());
  }

  /**
   * The condition of a filter over a scan as a predicate for data skipping (see Filters), null where nothing of it
   * is known; {"op": "never"} where the optimizer found that it is true of no row.
   */
  public static String predicate(SparkSession session, Dataset matching) {
    LogicalPlan optimized = (LogicalPlan) session.sessionState().optimizer().execute(analyzed(matching));
    List known = new ArrayList();
    if (optimized instanceof LocalRelation) return "{\"op\": \"never\"}";
    if (!(optimized instanceof Filter)) return "null";
    List condition = new ArrayList();
    condition.add(((Filter) optimized).condition());
    Iterator normal = CollectionConverters
                          .asJava(DataSourceStrategy$.MODULE$.normalizeExprs(Plans.seq(condition), optimized.output()))
                          .iterator();
    return Python.json(Filters.toJson(Plans.seq(Plans.conjuncts((Expression) normal.next()))));
  }

  /** The value as one of an atomic type, by the session's policy of store assignment. */
  public static Column cast(SparkSession session, Column value, String type, String column) {
    DataType to = DataType.fromJson(type);
    Expression from = expression(value);
    String policy = session.sessionState().conf().storeAssignmentPolicy().toString();
    if (policy.equals("STRICT")) return column(new UpCast(from, to, Plans.seq(new ArrayList())));
    boolean ansi = policy.equals("ANSI");
    Expression cast = new Cast(from, to, Option.empty(), ansi ? EvalMode$.MODULE$.ANSI() : EvalMode$.MODULE$.LEGACY());
    boolean mayOverflow = ansi && (to instanceof IntegralType || to instanceof DecimalType)
        && !(from.resolved() && Cast$.MODULE$.canUpCast(from.dataType(), to));
    return column(mayOverflow ? new CheckOverflowInTableInsert(cast, column) : cast);
  }

  private static Expression expression(Object column) { return ExpressionUtils$.MODULE$.expression((Column) column); }

  private static Column column(Expression expression) { return ExpressionUtils$.MODULE$.column(expression); }

  private static LogicalPlan analyzed(Dataset frame) {
    return ((org.apache.spark.sql.classic.Dataset) frame).queryExecution().analyzed();
  }

  private static Dataset rows(SparkSession session, LogicalPlan plan) {
    return org.apache.spark.sql.classic.Dataset.ofRows(session, plan);
  }
}
