package io.deltaflow.spark.expressions;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.bridge.Thrown;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.SQLConf$;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;

/**
 * The expressions that a table's log has: of constraints, generated columns and defaults. Whoever can write the log
 * chooses them, and whoever writes rows evaluates them. So they may use columns and Spark's own functions, and no
 * others; and Spark's parser for sessions does not see them, which puts settings and the environment of the driver
 * in the place of `${…}`. Names in backticks are names whatever the session says.
 */
public final class TableExpressions {
  /**
   * Functions of Spark that call any method of Java, or open what one of their arguments names: XPath's open the DTD
   * that a document names.
   */
  private static final Set REFUSED =
      new HashSet(Arrays.asList(new String[] {"reflect", "java_method", "try_reflect", "from_xml", "schema_of_xml",
          "xpath", "xpath_boolean", "xpath_double", "xpath_float", "xpath_int", "xpath_long", "xpath_number",
          "xpath_short", "xpath_string", "from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf"}));
  /** What the parser leaves to the analysis, apart from functions. All else may stand for anything. */
  private static final Set UNRESOLVED = new HashSet(Arrays.asList(
      new String[] {"UnresolvedAttribute", "UnresolvedExtractValue", "UnresolvedStar", "UnresolvedCollation"}));
  private static final String ANALYSIS = "org.apache.spark.sql.catalyst.analysis.";

  private TableExpressions() {}

  /** An expression of the table, parsed. Throws Python's error for one that is more than the class allows. */
  public static Expression parsed(String sql, String table) {
    Expression parsed = parsed(sql);
    check(parsed, sql, table);
    return parsed;
  }

  /** As a column, an expression that we have made: names in backticks are no patterns in it. */
  public static Column made(String sql) { return ExpressionUtils.column(parsed(sql)); }

  private static Expression parsed(final String sql) {
    SQLConf conf = SQLConf$.MODULE$.get();
    if (conf.supportQuotedRegexColumnName()) {
      // The parser would take a name in backticks that stands alone for a pattern of names.
      SQLConf own = conf.clone();
      own.setConfString(SQLConf$.MODULE$.SUPPORT_QUOTED_REGEX_COLUMN_NAME().key(), "false");
      return (Expression) SQLConf$.MODULE$.withExistingConf(own, new AbstractFunction0() {
        public Object apply() { return parsed(sql); }
      });
    }
    try {
      return (Expression) CatalystSqlParser$.MODULE$.parseExpression(sql);
    } catch (Exception e) { // ParseException, a checked one
      throw Thrown.asIs(e);
    }
  }

  /** For Python: the same as a column. */
  public static Column column(String sql, String table) { return ExpressionUtils.column(parsed(sql, table)); }

  /**
   * For Python: the same, analysed over a frame whose CHAR has the blanks that readers see. It compares with them, also
   * in a session for which CHAR is a string.
   */
  public static Column over(Dataset rows, String sql, String table) {
    org.apache.spark.sql.classic.Dataset frame = (org.apache.spark.sql.classic.Dataset) rows;
    Alias column = Plans.alias(parsed(sql, table), "value");
    LogicalPlan columns = Plans.standIn(CollectionConverters.asJava(frame.queryExecution().analyzed().output()));
    LogicalPlan plan = new Project(Plans.seq(Collections.singletonList(column)), columns);
    Project analyzed = (Project) Plans.analyzedWithPadding(frame.sparkSession(), plan);
    return ExpressionUtils.column(((Alias) analyzed.projectList().head()).child());
  }

  private static void check(Expression part, String sql, String table) {
    String refused = refused(part);
    if (refused != null) {
      Map request = new LinkedHashMap();
      request.put("expression", sql);
      request.put("part", refused);
      request.put("table", table);
      Python.call("expressions.refused", request);
    }
    for (Object child : CollectionConverters.asJava(part.children())) check((Expression) child, sql, table);
  }

  /** What is not allowed of a part, apart from its children; null if it is allowed. */
  private static String refused(Expression part) {
    if (part instanceof PlanExpression) return "a subquery";
    if (part instanceof UnresolvedFunction) {
      UnresolvedFunction function = (UnresolvedFunction) part;
      String name = function.nameParts().mkString(".").toLowerCase(Locale.ROOT);
      boolean isSparks = function.isInternal()
          || (function.nameParts().size() == 1
              && FunctionRegistry$.MODULE$.builtin().functionExists(FunctionIdentifier.apply(name)));
      return isSparks && !REFUSED.contains(name) ? null : "the function " + name;
    }
    String type = part.getClass().getName();
    if (!type.startsWith(ANALYSIS) || UNRESOLVED.contains(type.substring(ANALYSIS.length()))) return null;
    return part.nodeName();
  }
}
