package io.deltaflow.spark.expressions;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.bridge.Thrown;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.optimizer.RewriteWithExpression$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.DataSourceUtils$;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;

/**
 * Projections and filters that are put on top of a physical plan without planning it anew: that of a
 * micro-batch can be executed only as it is. They are analysed over a stand-in that has its columns.
 */
public final class Plans {
  private Plans() {}

  /** The stand-in: a relation without rows that has these attributes. */
  public static LogicalPlan standIn(List attributes) {
    return new LocalRelation(seq(attributes), seq(new ArrayList()), false, Option.empty());
  }

  /** As Spark analyses a plan, or its AnalysisException. */
  public static LogicalPlan analyzed(SparkSession session, LogicalPlan plan) {
    LogicalPlan analyzed = (LogicalPlan) session.sessionState().analyzer().execute(plan);
    session.sessionState().analyzer().checkAnalysis(analyzed);
    refuseWhatNeedsPlanning(analyzed);
    return analyzed;
  }

  /**
   * The same of a plan over rows whose CHAR lacks the blanks that readers see: it compares with them, also in a session
   * for which CHAR is a string.
   */
  public static LogicalPlan analyzedWithPadding(final SparkSession session, final LogicalPlan plan) {
    SQLConf conf = session.sessionState().conf().clone();
    conf.setConfString("spark.sql.readSideCharPadding", "false");
    conf.setConfString("spark.sql.legacy.charVarcharAsString", "false");
    return (LogicalPlan) SQLConf.withExistingConf(conf, new AbstractFunction0() {
      public Object apply() { return analyzed(session, plan); }
    });
  }

  /** Subqueries and Python's functions run only where Spark has planned them. */
  private static void refuseWhatNeedsPlanning(LogicalPlan plan) {
    for (Object part : CollectionConverters.asJava(plan.expressions())) refuse((Expression) part);
    for (Object child : CollectionConverters.asJava(plan.children())) refuseWhatNeedsPlanning((LogicalPlan) child);
  }

  private static void refuse(Expression expression) {
    if (expression instanceof SubqueryExpression || expression instanceof PythonUDF) {
      Map request = new LinkedHashMap();
      request.put("expression", expression.sql());
      Python.call("write.unplannable", request);
    }
    for (Object child : CollectionConverters.asJava(expression.children())) refuse((Expression) child);
  }

  /** The column or field that the analysis did not find; null where it failed for another reason. */
  public static Object unresolvedColumn(Exception e) {
    if (!(e instanceof AnalysisException)) return null;
    String condition = ((AnalysisException) e).getCondition();
    Map parameters = ((AnalysisException) e).getMessageParameters();
    if (condition != null && condition.startsWith("UNRESOLVED_COLUMN")) return parameters.get("objectName");
    return "FIELD_NOT_FOUND".equals(condition) ? parameters.get("fieldName") : null;
  }

  /** The plan's projection; Spark makes none if all columns pass through. */
  public static Project projection(LogicalPlan plan) {
    return plan instanceof Project ? (Project) plan : new Project(plan.output(), plan);
  }

  /** An analysed plan of projections and filters over a stand-in, on top of the physical plan instead. */
  public static SparkPlan on(SparkSession session, LogicalPlan analyzed, SparkPlan rows) {
    // What Spark's optimizer has to do before an expression can be evaluated at all.
    LogicalPlan finished = (LogicalPlan) session.sessionState().optimizer().FinishAnalysis().apply(analyzed);
    return physical(RewriteWithExpression$.MODULE$.apply(finished), rows);
  }

  private static SparkPlan physical(LogicalPlan plan, SparkPlan rows) {
    if (plan instanceof LocalRelation) return rows;
    if (plan instanceof Project) {
      return new ProjectExec(((Project) plan).projectList(), physical(((Project) plan).child(), rows));
    }
    if (plan instanceof Filter) {
      return new FilterExec(((Filter) plan).condition(), physical(((Filter) plan).child(), rows));
    }
    throw new IllegalStateException("no projection or filter: " + plan.nodeName());
  }

  /**
   * The attributes under other names and types, in their order. Attributes are bound by id and nested
   * fields by position, so this renames without a projection.
   */
  public static List renamed(Seq attributes, StructType schema) {
    List renamed = new ArrayList();
    int i = 0;
    for (Object found : CollectionConverters.asJava(attributes)) {
      Attribute attribute = (Attribute) found;
      StructField field = schema.fields()[i++];
      renamed.add(new AttributeReference(
          field.name(), field.dataType(), true, Metadata.empty(), attribute.exprId(), seq(new ArrayList())));
    }
    return renamed;
  }

  /**
   * The plan, each of whose columns has an id of its own. A column that a query selects twice has one id, and Spark
   * would take both for the partition column if one of them is it, and leave both out of the files.
   */
  public static SparkPlan withDistinctIds(SparkPlan rows) {
    Set ids = new HashSet();
    List columns = new ArrayList();
    for (Object each : CollectionConverters.asJava(rows.output())) {
      Attribute column = (Attribute) each;
      columns.add(ids.add(column.exprId()) ? column : alias(column, column.name()));
    }
    return ids.size() == columns.size() ? rows : new ProjectExec(seq(columns), rows);
  }

  /** The expression as a new column without metadata. */
  public static Alias alias(Expression value, String name) { return alias(value, name, NamedExpression.newExprId()); }

  /** The same with metadata, as a field of a table has. */
  public static Alias alias(Expression value, String name, Metadata metadata) {
    return new Alias(
        value, name, NamedExpression.newExprId(), seq(new ArrayList()), Option.apply(metadata), seq(new ArrayList()));
  }

  /** The column of this id instead, without metadata. */
  public static Alias alias(Expression value, String name, ExprId id) {
    return new Alias(value, name, id, seq(new ArrayList()), Option.empty(), seq(new ArrayList()));
  }

  public static Expression parsed(SparkSession session, String sql) {
    try {
      return (Expression) session.sessionState().sqlParser().parseExpression(sql);
    } catch (Exception e) { // ParseException, a checked one
      throw Thrown.asIs(e);
    }
  }

  /** The parts that AND joins. */
  public static List conjuncts(Expression condition) {
    return CollectionConverters.asJava(DataSourceUtils$.MODULE$.splitConjunctivePredicates(condition));
  }

  public static StructType schema(String json) { return (StructType) DataType.fromJson(json); }

  public static Seq seq(List list) { return CollectionConverters.asScala(list).toList(); }
}
