package io.deltaflow.spark.expressions;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import io.deltaflow.spark.bridge.Python;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.optimizer.ConstantFolding$;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.ColumnNodeToExpressionConverter$;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.TimestampType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** What Python asks of a Column before Spark analyses it. */
public final class Expressions {
  private Expressions() {}

  public static boolean hasSubquery(Column column) { return hasSubquery(expression(column)); }

  static boolean hasSubquery(Expression expression) {
    if (expression instanceof SubqueryExpression) return true;
    for (Object child : CollectionConverters.asJava(expression.children())) {
      if (hasSubquery((Expression) child)) return true;
    }
    return false;
  }

  public static String sql(Column column) { return expression(column).sql(); }

  /** An analysed condition as Spark shows it in plans: `(id#7L = 3)`. */
  public static String simpleString(Column condition) { return simpleString(expression(condition)); }

  /** A condition that is parsed alone: `('id = 3)`. */
  public static String simpleString(SparkSession session, String condition) throws ParseException {
    return shown(session.sessionState().sqlParser().parseExpression(condition));
  }

  /** Of the condition as the optimizer leaves it: constants are evaluated. */
  static String simpleString(Expression condition) {
    LogicalPlan folded = ConstantFolding$.MODULE$.apply(new Filter(condition, new OneRowRelation()));
    return shown(((Filter) folded).condition());
  }

  private static String shown(Expression condition) {
    return condition.simpleString(SQLConf.get().maxToStringFields());
  }

  /** Of a statement's column, and of one that PySpark has made, which is a tree of nodes of its own. */
  private static Expression expression(Column column) {
    return ColumnNodeToExpressionConverter$.MODULE$.apply(column.node());
  }

  /**
   * A time as Spark's CAST reads it in the session's time zone, as JSON: its microseconds and its text. null for what
   * is none. Without a session it is the active one.
   */
  public static String timestamp(SparkSession session, String text) {
    SparkSession reading = session == null ? (SparkSession) org.apache.spark.sql.SparkSession.active() : session;
    Option zone = Option.apply(reading.sessionState().conf().sessionLocalTimeZone());
    Expression time =
        new Cast(Literal.create(text, DataTypes.StringType), DataTypes.TimestampType, zone, EvalMode$.MODULE$.TRY());
    Object micros = time.eval(InternalRow.empty());
    if (micros == null) return null;
    Map found = new LinkedHashMap();
    found.put("micros", micros);
    found.put("text",
        new Cast(time, DataTypes.StringType, zone, EvalMode$.MODULE$.TRY()).eval(InternalRow.empty()).toString());
    return Python.json(found);
  }

  /** The value of a constant expression: a number, a boolean, else as text, or null. */
  public static Object value(SparkSession session, Expression expression) {
    Alias named = Plans.alias(expression, "value");
    Dataset row =
        Dataset.ofRows(session, new Project(Plans.seq(Collections.singletonList(named)), new OneRowRelation()));
    Object value = ((Row) row.head()).get(0);
    if (value == null || value instanceof Number || value instanceof Boolean) return value;
    boolean isInstant = row.schema().fields()[0].dataType() instanceof TimestampType;
    String same = isInstant ? "unix_micros(value)" : "CAST(value AS STRING)";
    Object found = ((Row) row.selectExpr(new String[] {same}).head()).get(0);
    return isInstant ? instant(found) : found;
  }

  /**
   * The text in UTC of an instant, in microseconds: the local time may be one that clocks show twice. By date_format,
   * spark.sql.legacy.timeParserPolicy would decide about it.
   */
  public static String instant(Object micros) {
    Expression time = new Literal(micros, DataTypes.TimestampType);
    Expression text = new Cast(time, DataTypes.StringType, Option.apply("UTC"), EvalMode$.MODULE$.TRY());
    return text.eval(InternalRow.empty()) + "Z";
  }

  public static Column identityNumbers(long first, long step) {
    return ExpressionUtils.column(Identities.numbers(first, step));
  }

  /** The parts of a column's name as JSON; null for any other expression. */
  public static String name(Column column) {
    Expression expression = expression(column);
    if (!(expression instanceof UnresolvedAttribute)) return null;
    List parts = CollectionConverters.asJava(((UnresolvedAttribute) expression).nameParts());
    return Python.json(parts);
  }
}
