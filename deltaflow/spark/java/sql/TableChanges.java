package io.deltaflow.spark.sql;

import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.expressions.Expressions;
import io.deltaflow.spark.expressions.Plans;
import io.deltaflow.spark.scan.Relations;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.optimizer.ComputeCurrentTime;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.TimestampType;
import scala.Tuple3;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/** table_changes('name', start[, end]) and table_changes_by_path('path', start[, end]) in FROM. */
public final class TableChanges extends AbstractFunction1 {
  private static final String BY_NAME = "table_changes";
  private static final String BY_PATH = "table_changes_by_path";
  private final String function;

  private TableChanges(String function) { this.function = function; }

  /** Adds both functions to the sessions that are made from now on. */
  public static void inject(SparkSession session) {
    String[] functions = {BY_NAME, BY_PATH};
    for (int i = 0; i < functions.length; i++) {
      session.extensions().injectTableFunction(
          new Tuple3(new FunctionIdentifier(functions[i]), info(functions[i]), new TableChanges(functions[i])));
    }
  }

  /** Adds the injected functions to an existing session, under the names that this Spark gives to them. Idempotent. */
  public static void register(SparkSession session) {
    session.extensions().registerTableFunctions(session.sessionState().tableFunctionRegistry());
  }

  private static ExpressionInfo info(String function) {
    return new ExpressionInfo(TableChanges.class.getName(), null, function);
  }

  /** The plan of a call with these arguments, which Spark has resolved. */
  public Object apply(Object arguments) {
    SparkSession session = (SparkSession) SparkSession.active();
    List all = CollectionConverters.asJava((Seq) arguments);
    if (all.size() < 2 || all.size() > 3) throw refused("number", String.valueOf(all.size()), 0);
    Map options = new HashMap();
    options.put("readChangeFeed", "true");
    addBound(options, "starting", (Expression) all.get(1), 2);
    if (all.size() == 3) addBound(options, "ending", (Expression) all.get(2), 3);
    Expression table = (Expression) all.get(0);
    if (!(table.dataType() instanceof StringType) || !table.foldable()) throw refused("table", table.sql(), 1);
    String name = String.valueOf(table.eval(InternalRow.empty()));
    return Relations.node(session, function.equals(BY_PATH) ? name : path(session, name), options);
  }

  private String path(SparkSession session, String name) {
    try {
      Seq parts = session.sessionState().sqlParser().parseMultipartIdentifier(name);
      Map found = TableNames.find(session, CollectionConverters.asJava(parts));
      if (found == null) session.table(name); // Spark's error if there is no table of this name
      if (found == null || TableNames.isView(found)) throw refused("delta", name, 1);
      return (String) found.get("path");
    } catch (ParseException e) {
      throw refused("delta", name, 1);
    }
  }

  /** The option for a start or an end: a number is a version, a text or a timestamp is a time. */
  private void addBound(Map options, String boundary, Expression given, int position) {
    DataType type = given.dataType();
    Expression bound = constant(given);
    if (bound == null) throw refused(boundary, given.sql(), position);
    Object value = bound.eval(InternalRow.empty());
    if (value == null) throw refused("null", boundary, position);
    if (type instanceof IntegerType || type instanceof LongType) {
      options.put(boundary + "Version", value.toString());
    } else if (type instanceof StringType) {
      options.put(boundary + "Timestamp", value.toString());
    } else if (type instanceof TimestampType) {
      options.put(boundary + "Timestamp", Expressions.instant(value));
    } else {
      throw refused("type", type.sql(), position);
    }
  }

  /** The expression with the present time in it, as a query gets it; null if it has columns, or no one value. */
  private static Expression constant(Expression given) {
    if (!given.references().isEmpty() || !given.deterministic()) return null;
    Seq columns = Plans.seq(Collections.singletonList(Plans.alias(given, "bound")));
    Project computed = (Project) ComputeCurrentTime.apply(new Project(columns, new OneRowRelation()));
    Expression bound = ((Alias) computed.projectList().head()).child();
    return bound.foldable() ? bound : null;
  }

  /** Python raises the error for what a call lacks. */
  private RuntimeException refused(String what, String given, int position) {
    Map request = new LinkedHashMap();
    request.put("function", function);
    request.put("fault", what);
    request.put("given", given);
    request.put("position", Integer.valueOf(position));
    Python.call("changes.refuse", request);
    return new IllegalStateException(what);
  }
}
