package io.deltaflow.spark.expressions;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.scan.Filters;
import io.deltaflow.spark.scan.Relations;
import io.deltaflow.spark.scan.TableScan;
import io.deltaflow.spark.sql.DeltaV1Write;
import io.deltaflow.spark.write.FileWrite;
import io.deltaflow.spark.write.RowChanges;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.AliasIdentifier;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression$;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.Window;
import org.apache.spark.sql.classic.ExpressionUtils$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/**
 * What an operation on rows (DELETE, UPDATE, MERGE) asks of Spark for which PySpark has no words. Python drives it,
 * with frames; see deltaflow/spark/expressions/row_operations.py.
 */
public final class RowOperations {
  private RowOperations() {}

  /** The rows of a scan that Python describes. */
  public static Dataset scan(SparkSession session, String relation) {
    return org.apache.spark.sql.classic.Dataset.ofRows(
        session, LogicalRelation$.MODULE$.apply(Relations.of(session, Python.parse(relation)), false));
  }

  /** The rows as those of a table of this name. */
  public static Dataset named(SparkSession session, Dataset rows, String table) {
    return org.apache.spark.sql.classic.Dataset.ofRows(
        session, new SubqueryAlias(name(session, table), ((org.apache.spark.sql.classic.Dataset) rows).logicalPlan()));
  }

  /** A name of SQL in its parts. */
  public static AliasIdentifier name(SparkSession session, String table) {
    try {
      Seq parts = session.sessionState().sqlParser().parseMultipartIdentifier(table);
      return new AliasIdentifier((String) parts.last(), (Seq) parts.init());
    } catch (ParseException e) {
      throw new IllegalStateException(e); // it was given out as one
    }
  }

  /**
   * The condition of a filter, or the expressions of a projection, as JSON; an empty list for any other frame, and
   * for a projection of what windows and generators make.
   */
  public static String expressions(Dataset frame) {
    List described = new ArrayList();
    LogicalPlan plan = analyzed(frame);
    // Over a filter by _metadata Spark puts a projection that hides it.
    if (plan instanceof Project && ((Project) plan).child() instanceof Filter) plan = ((Project) plan).child();
    if (plan instanceof Filter || (plan instanceof Project && !isMade(((Project) plan).child()))) {
      for (Object found : CollectionConverters.asJava(plan.expressions())) {
        Expression expression = found instanceof Alias ? ((Alias) found).child() : (Expression) found;
        Map one = new LinkedHashMap();
        one.put("sql", expression.sql());
        one.put("deterministic", Boolean.valueOf(expression.deterministic()));
        one.put("subquery", Boolean.valueOf(SubqueryExpression$.MODULE$.hasSubquery(expression)));
        described.add(one);
      }
    }
    return Python.json(described);
  }

  /** The condition of a filter, as plans show it. */
  public static String condition(Dataset matching) {
    LogicalPlan plan = analyzed(matching);
    if (plan instanceof Project) plan = ((Project) plan).child();
    return Expressions.simpleString(((Filter) plan).condition());
  }

  private static boolean isMade(LogicalPlan plan) {
    LogicalPlan rows = plan;
    while (rows instanceof Project) rows = ((Project) rows).child();
    return rows instanceof Window || rows instanceof Generate;
  }

  /**
   * The frame in a session of its own in which one task takes what a shuffle brings, in the job of the scan. The
   * caller's would need a job more (adaptive execution) or a task for each of spark.sql.shuffle.partitions.
   */
  public static Dataset withOneReducer(SparkSession session, Dataset frame) {
    SparkSession own = session.cloneSession();
    own.conf().set("spark.sql.shuffle.partitions", "1");
    own.conf().set("spark.sql.adaptive.enabled", "false");
    return org.apache.spark.sql.classic.Dataset.ofRows(own, analyzed(frame));
  }

  /**
   * What a filter over a scan says of partitions: whether it has conjuncts on other columns (data), those on
   * partition columns as a predicate (see Filters), and the numbers of the partitions for which they are true.
   */
  public static String split(SparkSession session, Dataset matching, List partitionColumns) {
    LogicalPlan optimized = (LogicalPlan) session.sessionState().optimizer().execute(analyzed(matching));
    // Above the filter Spark fills up CHAR with blanks.
    while (optimized instanceof Project) optimized = ((Project) optimized).child();
    List filters = new ArrayList();
    Map answer = new LinkedHashMap();
    answer.put("data", Boolean.valueOf(split(optimized, partitionColumns, filters)));
    answer.put("predicate", Filters.toJson(Plans.seq(filters)));
    answer.put("partitions", filters.isEmpty() ? null : scan(optimized).selected(Plans.seq(filters)));
    return Python.json(answer);
  }

  /** Collects the conjuncts on partition columns alone; returns whether there are others. */
  private static boolean split(LogicalPlan optimized, List partitionColumns, List partitionFilters) {
    // What the optimizer found to be true or false for every row is no filter over a relation any more.
    if (optimized instanceof LogicalRelation) return false;
    if (!(optimized instanceof Filter) || !(((Filter) optimized).child() instanceof LogicalRelation)) return true;
    boolean hasDataFilters = false;
    // Columns are named as the predicate writes them, whatever the table's case.
    Expression condition =
        (Expression) DataSourceStrategy$.MODULE$
            .normalizeExprs(Plans.seq(Collections.singletonList(((Filter) optimized).condition())), optimized.output())
            .head();
    for (Object found : Plans.conjuncts(condition)) {
      Expression conjunct = (Expression) found;
      if (partitionColumns.containsAll(namesOf(conjunct)) && conjunct.deterministic()) partitionFilters.add(conjunct);
      else hasDataFilters = true;
    }
    return hasDataFilters;
  }

  private static List namesOf(Expression expression) {
    List names = new ArrayList();
    for (Object attribute : CollectionConverters.asJava(expression.references().toSeq())) {
      names.add(((Attribute) attribute).name());
    }
    return names;
  }

  private static TableScan scan(LogicalPlan optimized) {
    LogicalRelation relation = (LogicalRelation) ((Filter) optimized).child();
    return (TableScan) ((HadoopFsRelation) relation.relation()).location();
  }

  /**
   * The paths of names that the columns of a projection select, as JSON; null for what is no column and no field
   * of structs.
   */
  public static String fields(Dataset projection) {
    List paths = new ArrayList();
    for (Object found : CollectionConverters.asJava(((Project) analyzed(projection)).projectList())) {
      paths.add(path((Expression) found));
    }
    return Python.json(paths);
  }

  private static List path(Expression expression) {
    if (expression instanceof Alias) return path(((Alias) expression).child());
    List path = null;
    if (expression instanceof GetStructField) {
      GetStructField field = (GetStructField) expression;
      path = path(field.child());
      if (path != null) path.add(((StructType) field.child().dataType()).fields()[field.ordinal()].name());
    } else if (expression instanceof Attribute) {
      path = new ArrayList();
      path.add(((Attribute) expression).name());
    }
    return path;
  }

  /**
   * The columns of a projection as values of these types, by Spark's own store assignment: expressions over the
   * projection's child.
   */
  public static Column[] assigned(SparkSession session, Dataset values, String types, String table) {
    Project projection = (Project) analyzed(values);
    LogicalPlan cast = analyzed(org.apache.spark.sql.classic.Dataset.ofRows(
        session, RowChanges.assigned(session, projection, Plans.schema(types), table)));
    final Map inlined = new HashMap();
    for (Object found : CollectionConverters.asJava(projection.projectList())) {
      if (found instanceof Alias) inlined.put(((NamedExpression) found).exprId(), ((Alias) found).child());
    }
    List columns = new ArrayList();
    for (Object found : CollectionConverters.asJava(((Project) cast).projectList())) {
      Expression value = found instanceof Alias ? ((Alias) found).child() : (Expression) found;
      columns.add(ExpressionUtils$.MODULE$.column((Expression) value.transform(new Inlining(inlined))));
    }
    return (Column[]) columns.toArray(new Column[0]);
  }

  private static final class Inlining extends AbstractPartialFunction {
    private final Map inlined;

    Inlining(Map inlined) { this.inlined = inlined; }

    public boolean isDefinedAt(Object expression) {
      return expression instanceof AttributeReference
          && inlined.containsKey(((AttributeReference) expression).exprId());
    }

    public Object apply(Object expression) { return inlined.get(((AttributeReference) expression).exprId()); }
  }

  /**
   * Writes the rows by a write that Python keeps under a handle. An execution of its own: its tasks get the session's
   * settings.
   */
  public static void write(final SparkSession session, final Dataset rows, long write, String name) {
    final Map request = new LinkedHashMap();
    request.put("write", Long.valueOf(write));
    QueryExecution query = ((org.apache.spark.sql.classic.Dataset) rows).queryExecution();
    SQLExecution$.MODULE$.withNewExecutionId(query, Option.apply(name), new AbstractFunction0() {
      public Object apply() {
        FileWrite.run(session, rows, "frame", request);
        return BoxedUnit.UNIT;
      }
    });
  }

  /** What the session sets of Delta's own settings, as JSON. */
  public static String settings(SparkSession session) { return Python.json(FileWrite.deltaSettings(session)); }

  /** What Spark has cached of the table is read anew. */
  public static void recache(SparkSession session, String path) { DeltaV1Write.recache(session, path); }

  private static LogicalPlan analyzed(Dataset frame) {
    return ((org.apache.spark.sql.classic.Dataset) frame).queryExecution().analyzed();
  }
}
