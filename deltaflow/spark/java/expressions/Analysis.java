package io.deltaflow.spark.expressions;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.bridge.Thrown;
import io.deltaflow.spark.scan.Filters;
import io.deltaflow.spark.scan.PartitionOnlyScan;
import io.deltaflow.spark.scan.PinScans;
import io.deltaflow.spark.scan.Relations;
import io.deltaflow.spark.scan.TableScan;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.CheckOverflowInTableInsert;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.expressions.SubtractTimestamps;
import org.apache.spark.sql.catalyst.expressions.UpCast;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
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
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * What Python asks of Spark about expressions over a frame. They are analysed once, and then serve over every frame
 * that has the same attributes (of other files, joined). See deltaflow/spark/expressions/analysis.py.
 */
public final class Analysis {
  private Analysis() {}

  /** The columns as analysed expressions over the frame; atOneTime: with one time for now. */
  public static List analysed(Dataset frame, List columns, boolean atOneTime) {
    Column[] named = new Column[columns.size()];
    for (int i = 0; i < named.length; i++) named[i] = ((Column) columns.get(i)).as("\0" + i);
    LogicalPlan plan = plan(frame.select(named));
    if (atOneTime) plan = ComputeCurrentTime$.MODULE$.apply(plan);
    Seq list;
    if (plan instanceof Aggregate) list = ((Aggregate) plan).aggregateExpressions();
    else list = ((Project) plan).projectList();
    List analysed = new ArrayList();
    for (Object expression : CollectionConverters.asJava(list)) {
      Expression found = expression instanceof Alias ? ((Alias) expression).child() : (Expression) expression;
      analysed.add(column(withArguments(found, plan, plan(frame))));
    }
    return analysed;
  }

  /**
   * The expression over columns of the rows alone. Spark computes the arguments of a function that is defined in SQL by
   * projections below it. One that may have other values each time stays there: the function may name it twice.
   */
  private static Expression withArguments(Expression expression, LogicalPlan plan, LogicalPlan rows) {
    Expression found = expression;
    LogicalPlan below = plan instanceof Project ? ((Project) plan).child() : null;
    while (below instanceof Project && !isOfRow(found, rows)) {
      final Map arguments = new HashMap();
      for (Object column : CollectionConverters.asJava(((Project) below).projectList())) {
        if (!(column instanceof Alias) || !((Alias) column).deterministic()) continue;
        arguments.put(((Alias) column).exprId(), ((Alias) column).child());
      }
      found = (Expression) found.transform(new AbstractPartialFunction() {
        public boolean isDefinedAt(Object node) {
          return node instanceof Attribute && arguments.containsKey(((Attribute) node).exprId());
        }

        public Object applyOrElse(Object node, Function1 otherwise) {
          return isDefinedAt(node) ? arguments.get(((Attribute) node).exprId()) : otherwise.apply(node);
        }
      });
      below = ((Project) below).child();
    }
    return found;
  }

  /** As above; null where the frame lacks a column or field. Python would log the exception, though it is caught. */
  public static List analysedIfResolved(Dataset frame, List columns, boolean atOneTime) {
    try {
      return analysed(frame, columns, atOneTime);
    } catch (Exception e) { // AnalysisException, a checked one
      if (Plans.unresolvedColumn(e) == null) throw Thrown.asIs(e);
      return null;
    }
  }

  /** The facts about analysed expressions over a frame, as JSON: a list of analysis.py's _Facts. */
  public static String facts(Dataset frame, List columns) {
    List facts = new ArrayList();
    for (Object column : columns) {
      Expression expression = expression(column);
      Map found = new LinkedHashMap();
      found.put("sql", expression.sql());
      found.put("type", expression.dataType().json());
      found.put("path", path(expression));
      found.put("ofRow", Boolean.valueOf(isOfRow(expression, plan(frame))));
      found.put("nondeterministic", expression.deterministic() ? null : nondeterministic(expression).sql());
      addParts(expression, found);
      found.put("hasSubquery", Boolean.valueOf(SubqueryExpression.hasSubquery(expression)));
      found.put("isCorrelated", Boolean.valueOf(SubqueryExpression.hasCorrelatedSubquery(expression)));
      facts.add(found);
    }
    return Python.json(facts);
  }

  /** Whether the columns are enough for it: windows and generators are evaluated by operators of their own. */
  private static boolean isOfRow(Expression expression, LogicalPlan rows) {
    AttributeSet hidden = AttributeSet$.MODULE$.apply(rows.metadataOutput());
    return expression.references().subsetOf(rows.outputSet().$plus$plus(hidden));
  }

  /** Adds the SQL of an expression's first aggregate and of its first user-defined function. */
  private static void addParts(Expression expression, Map found) {
    if (expression instanceof AggregateExpression) found.putIfAbsent("aggregate", expression.sql());
    if (expression instanceof UserDefinedExpression) found.putIfAbsent("function", expression.sql());
    for (Object child : CollectionConverters.asJava(expression.children())) addParts((Expression) child, found);
  }

  /** The innermost part that is not deterministic, of an expression that is not. */
  private static Expression nondeterministic(Expression expression) {
    for (Object child : CollectionConverters.asJava(expression.children())) {
      if (!((Expression) child).deterministic()) return nondeterministic((Expression) child);
    }
    return expression;
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
    for (Object attribute : CollectionConverters.asJava(plan(frame).output())) {
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
      if (!conjunct.references().subsetOf(plan(frame).outputSet())) continue;
      joined = joined == null ? conjunct : new And(joined, conjunct);
    }
    return joined == null ? null : column(joined);
  }

  /** The conjuncts without a subquery, joined by AND; null if there are none. */
  public static Column withoutSubqueries(Column condition) {
    Expression joined = null;
    for (Object found : Plans.conjuncts(expression(condition))) {
      Expression conjunct = (Expression) found;
      if (Expressions.hasSubquery(conjunct)) continue;
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
    return !expression.references().isEmpty() && expression.references().subsetOf(plan(frame).outputSet());
  }

  /**
   * What the condition of a filter over a scan says of the scan's files, as JSON (analysis.py's FilterFacts):
   * hasDataFilters, whether some of its conjuncts are not on partition columns alone; partitionPredicate and predicate,
   * those that are and all of them for data skipping (see Filters); partitions, the numbers of the partitions for which
   * the former are true, null without any.
   */
  public static String filter(SparkSession session, Dataset matching, List partitionColumns) {
    LogicalPlan optimized = (LogicalPlan) session.sessionState().optimizer().execute(withoutVectors(plan(matching)));
    // Above the filter Spark fills up CHAR with blanks.
    while (optimized instanceof Project) optimized = ((Project) optimized).child();
    List all = conjuncts(optimized);
    List ofPartitions = new ArrayList();
    for (Object found : all) {
      if (PartitionOnlyScan.isOnPartitions((Expression) found, partitionColumns)) ofPartitions.add(found);
    }
    // What the optimizer found to be true or false for every row is no filter over a relation any more.
    boolean isWholeScan = optimized instanceof LogicalRelation;
    Map facts = new LinkedHashMap();
    facts.put("hasDataFilters", Boolean.valueOf(!isWholeScan && (all.isEmpty() || ofPartitions.size() < all.size())));
    facts.put("partitionPredicate", Filters.toJson(Plans.seq(ofPartitions)));
    facts.put("predicate",
        optimized instanceof LocalRelation ? Collections.singletonMap("op", "never") : Filters.toJson(Plans.seq(all)));
    facts.put("partitions", ofPartitions.isEmpty() ? null : scan(optimized).selected(Plans.seq(ofPartitions)));
    return Python.json(facts);
  }

  /** The plan whose scans have no deletion vectors, so that the optimizer adds no filter for them. */
  private static LogicalPlan withoutVectors(LogicalPlan plan) {
    return (LogicalPlan) plan.transform(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) { return PinScans.scan(node) != null; }

      public Object applyOrElse(Object node, Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        return Relations.withScan((LogicalRelation) node, PinScans.scan(node).withoutVectors());
      }
    });
  }

  /** The conjuncts of a filter over a relation, whose columns are named as the relation names them; else none. */
  private static List conjuncts(LogicalPlan optimized) {
    if (!(optimized instanceof Filter) || !(((Filter) optimized).child() instanceof LogicalRelation)) {
      return Collections.emptyList();
    }
    List condition = Collections.singletonList(((Filter) optimized).condition());
    Seq normalized = DataSourceStrategy$.MODULE$.normalizeExprs(Plans.seq(condition), optimized.output());
    return Plans.conjuncts((Expression) normalized.head());
  }

  private static TableScan scan(LogicalPlan optimized) {
    LogicalRelation relation = (LogicalRelation) ((Filter) optimized).child();
    return (TableScan) ((HadoopFsRelation) relation.relation()).location();
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

  /**
   * The time from 1970 to a timestamp without a zone. Spark's operator - has a type without order for it where
   * spark.sql.legacy.interval.enabled is true.
   */
  public static Column sinceEpoch(Column timestamp) {
    Expression epoch = Literal.create(Long.valueOf(0), DataTypes.TimestampNTZType);
    return column(new SubtractTimestamps(expression(timestamp), epoch, false, Option.empty()));
  }

  private static Expression expression(Object column) { return ExpressionUtils$.MODULE$.expression((Column) column); }

  private static Column column(Expression expression) { return ExpressionUtils$.MODULE$.column(expression); }

  private static LogicalPlan plan(Dataset frame) {
    return ((org.apache.spark.sql.classic.Dataset) frame).queryExecution().analyzed();
  }
}
