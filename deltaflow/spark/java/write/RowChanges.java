package io.deltaflow.spark.write;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.bridge.Thrown;
import io.deltaflow.spark.expressions.Identities;
import io.deltaflow.spark.expressions.Plans;
import io.deltaflow.spark.expressions.TableExpressions;
import org.apache.spark.sql.catalyst.analysis.TableOutputResolver$;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.Concat;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.RaiseError;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/** Turns the rows of a frame into rows of the table, by Python's RowPlan (deltaflow.spark.write.file_write). */
public final class RowChanges {
  private final SparkPlan plan;
  private final List columns;

  /** rows: the physical plan of the frame. Its columns go by position: those of a micro-batch have other ids. */
  public RowChanges(SparkSession session, SparkPlan rows, JsonNode changes) {
    List attributes = Plans.renamed(rows.output(), Plans.schema(changes.get("frameSchema").asText()));
    if (changes.get("castSchema").isNull()) {
      plan = rows;
      columns = attributes;
      return;
    }
    LogicalPlan changed = selected(session, cast(session, attributes, changes), changes);
    changed = generated(session, numbered(session, changed, changes), changes);
    for (JsonNode check : changes.get("checks"))
      changed = checked(session, changed, check, changes.get("path").asText());
    plan = Plans.on(session, changed, rows);
    columns = Plans.renamed(changed.output(), Plans.schema(changes.get("tableSchema").asText()));
  }

  public SparkPlan plan() { return plan; }

  /** The plan's output under the table's names. */
  public List columns() { return columns; }

  /**
   * The cast of a stand-in for the attributes to the types of the table, analysed. It is one projection. Spark's
   * store assignment refuses texts of values, and by STRICT nulls without a type. So it sees them as the values, and
   * then each of them is put in its place.
   */
  public static LogicalPlan cast(SparkSession session, List attributes, JsonNode changes) {
    StructField[] parsed = Plans.schema(changes.get("parsedSchema").asText()).fields();
    SQLConf conf = session.sessionState().conf();
    boolean parses = !conf.storeAssignmentPolicy().toString().equals("LEGACY");
    final Map values = new HashMap();
    List typed = new ArrayList();
    for (int i = 0; i < parsed.length; i++) {
      Attribute given = (Attribute) attributes.get(i);
      if (!parses || parsed[i].dataType().equals(given.dataType())) {
        typed.add(given);
        continue;
      }
      Attribute value = new AttributeReference(given.name(), parsed[i].dataType(), true, Metadata.empty(),
          NamedExpression.newExprId(), Plans.seq(new ArrayList()));
      typed.add(value);
      Option zone = Option.apply(conf.sessionLocalTimeZone());
      values.put(value.exprId(), new Cast((Expression) given, value.dataType(), zone, EvalMode$.MODULE$.ANSI()));
    }
    LogicalPlan cast = Plans.analyzed(session,
        assigned(session, Plans.standIn(typed), Plans.schema(changes.get("castSchema").asText()),
            changes.get("path").asText()));
    if (values.isEmpty()) return cast;
    List columns = new ArrayList();
    for (Object each : CollectionConverters.asJava(Plans.projection(cast).projectList())) {
      NamedExpression column = (NamedExpression) each;
      Expression value = each instanceof Alias ? ((Alias) each).child() : (Expression) each;
      Expression withTexts = (Expression) value.transform(new AbstractPartialFunction() {
        public boolean isDefinedAt(Object node) {
          return node instanceof Attribute && values.containsKey(((Attribute) node).exprId());
        }

        public Object applyOrElse(Object node, Function1 otherwise) {
          return isDefinedAt(node) ? values.get(((Attribute) node).exprId()) : otherwise.apply(node);
        }
      });
      columns.add(withTexts == value ? each
                                     : new Alias(withTexts, column.name(), column.exprId(), Plans.seq(new ArrayList()),
                                           Option.apply(column.metadata()), Plans.seq(new ArrayList())));
    }
    return new Project(Plans.seq(columns), Plans.standIn(attributes));
  }

  /** A projection of the rows by Spark's store assignment, by name also in nested types; not analysed. */
  private static LogicalPlan assigned(SparkSession session, LogicalPlan rows, StructType types, String table) {
    List expected = new ArrayList();
    for (StructField field : types.fields()) {
      expected.add(new AttributeReference(field.name(), field.dataType(), true, Metadata.empty(),
          NamedExpression.newExprId(), Plans.seq(new ArrayList())));
    }
    try {
      // The last parameter differs between releases. Its default means in all of them: use no default values.
      Object noDefaults =
          TableOutputResolver$.class.getMethod("resolveOutputColumns$default$6").invoke(TableOutputResolver$.MODULE$);
      for (Method method : TableOutputResolver$.class.getMethods()) {
        if (!method.getName().equals("resolveOutputColumns")) continue;
        return (LogicalPlan) method.invoke(TableOutputResolver$.MODULE$,
            new Object[] {table, Plans.seq(expected), rows, Boolean.TRUE, session.sessionState().conf(), noDefaults});
      }
      throw new IllegalStateException("TableOutputResolver of this Spark has an unknown form");
    } catch (InvocationTargetException e) {
      throw Thrown.asIs(e.getCause());
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** The table's columns, each from its SQL expression. Nested fields are cast by position. */
  public static LogicalPlan selected(SparkSession session, LogicalPlan rows, JsonNode changes) {
    StructType table = Plans.schema(changes.get("tableSchema").asText());
    List selected = new ArrayList();
    int i = 0;
    for (JsonNode column : changes.get("columns")) {
      StructField field = table.fields()[i++];
      Expression value = TableExpressions.parsed(column.asText(), changes.get("path").asText());
      Expression typed = new Cast(value, field.dataType(), Option.empty(), EvalMode$.MODULE$.ANSI());
      selected.add(Plans.alias(typed, field.name(), field.metadata()));
    }
    return Plans.analyzed(session, new Project(Plans.seq(selected), rows));
  }

  /** The rows, in which identity columns have new numbers; the rows themselves if there are no such columns. */
  public static LogicalPlan numbered(SparkSession session, LogicalPlan rows, JsonNode changes) {
    JsonNode identities = changes.get("identities");
    if (identities.size() == 0) return rows;
    List columns = new ArrayList();
    for (Object each : CollectionConverters.asJava(rows.output())) {
      Attribute column = (Attribute) each;
      JsonNode identity = identities.get(column.name());
      if (identity == null) {
        columns.add(column);
        continue;
      }
      Expression number = Identities.numbers(identity.get("first").asLong(), identity.get("step").asLong());
      columns.add(Plans.alias(number, column.name(), column.metadata()));
    }
    return Plans.analyzed(session, new Project(Plans.seq(columns), rows));
  }

  /** The rows, in which columns are computed from the others; the rows themselves if there are none to compute. */
  public static LogicalPlan generated(SparkSession session, LogicalPlan rows, JsonNode changes) {
    JsonNode expressions = changes.get("generated");
    if (expressions.size() == 0) return rows;
    List computed = new ArrayList();
    for (Object each : CollectionConverters.asJava(rows.output())) {
      Attribute column = (Attribute) each;
      if (!expressions.has(column.name())) {
        computed.add(column);
        continue;
      }
      String sql = expressions.get(column.name()).asText();
      Expression value = TableExpressions.parsed(sql, changes.get("path").asText());
      Expression typed = new Cast(value, column.dataType(), Option.empty(), EvalMode$.MODULE$.ANSI());
      computed.add(Plans.alias(typed, column.name(), column.metadata()));
    }
    Project analyzed = (Project) Plans.analyzedWithPadding(session, new Project(Plans.seq(computed), rows));
    List columns = new ArrayList();
    for (Object each : CollectionConverters.asJava(analyzed.projectList())) {
      columns.add(each instanceof Alias ? asRead((Expression) each) : each);
    }
    return new Project(Plans.seq(columns), rows);
  }

  /** The analysed expression over values of CHAR with the blanks that readers see, which functions see, too. */
  private static Expression asRead(Expression analyzed) {
    return (Expression) analyzed.transformUp(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) { return node instanceof AttributeReference; }

      public Object applyOrElse(Object node, Function1 otherwise) {
        return isDefinedAt(node) ? CharVarcharUtils.addPaddingForScan((Attribute) node) : otherwise.apply(node);
      }
    });
  }

  /** The rows, with an error at the first row that does not satisfy the condition. */
  private static LogicalPlan checked(SparkSession session, LogicalPlan rows, JsonNode check, String table) {
    Expression[] analyzed = check(session, rows, check, table);
    Expression error =
        new Cast(new RaiseError(analyzed[1]), DataTypes.BooleanType, Option.empty(), EvalMode$.MODULE$.ANSI());
    Expression holds = new If(analyzed[0], Literal.create(Boolean.TRUE, DataTypes.BooleanType), error);
    return Plans.analyzed(session, new Filter(holds, rows));
  }

  /** A check as two expressions: whether a row satisfies it (true or false), and the message if it does not. */
  public static Expression[] check(SparkSession session, LogicalPlan rows, JsonNode check, String table) {
    // It is analysed by itself first, to make sure that it is a condition, and to find its columns.
    Expression condition = analyzed(session, rows, check, table);
    List message = new ArrayList();
    message.add(text(check.get("message").asText()));
    if (check.get("showsValues").asBoolean()) {
      for (Object attribute : byName(rows.output())) {
        if (!condition.references().contains((NamedExpression) attribute)) continue;
        message.add(text("\n - " + ((Attribute) attribute).name() + " : "));
        message.add(shown(session, (Expression) attribute));
      }
    }
    Expression holds = new Coalesce(
        Plans.seq(Arrays.asList(new Object[] {condition, Literal.create(Boolean.FALSE, DataTypes.BooleanType)})));
    return new Expression[] {holds, new Concat(Plans.seq(message))};
  }

  private static Expression analyzed(SparkSession session, LogicalPlan rows, JsonNode check, String table) {
    String sql = check.get("condition").asText();
    boolean isUsers = check.get("isUsers").asBoolean();
    JsonNode write = check.get("ofWrite");
    Expression condition = !write.isNull() ? FileWrite.condition(write.asLong(), rows)
        : isUsers                          ? Plans.parsed(session, sql)
                                           : TableExpressions.parsed(sql, table);
    LogicalPlan filter = new Filter(condition, rows);
    try {
      // What the user says is true of rows as this session reads them.
      SQLConf conf = session.sessionState().conf();
      if (isUsers && conf.charVarcharAsString()) return ((Filter) Plans.analyzed(session, filter)).condition();
      Expression analyzed = ((Filter) Plans.analyzedWithPadding(session, filter)).condition();
      return isUsers && !conf.readSideCharPadding() ? analyzed : asRead(analyzed);
    } catch (Exception e) { // AnalysisException, a checked one
      Object column = Plans.unresolvedColumn(e);
      if (column == null || check.get("withoutColumn").isNull()) throw Thrown.asIs(e);
      Map request = new LinkedHashMap();
      request.put("condition", sql);
      request.put("errorClass", check.get("withoutColumn").asText());
      request.put("column", column);
      Python.call("write.withoutColumn", request);
      throw Thrown.asIs(e);
    }
  }

  /** A value as text; "null" for null. */
  public static Expression shown(SparkSession session, Expression value) {
    // Only the analyzer would give it the zone, without which Spark has no text of timestamps.
    Option zone = Option.apply(session.sessionState().conf().sessionLocalTimeZone());
    Expression text = new Cast(value, DataTypes.StringType, zone, EvalMode$.MODULE$.ANSI());
    return new Coalesce(Plans.seq(Arrays.asList(new Object[] {text, text("null")})));
  }

  public static Literal text(String text) { return Literal.create(text, DataTypes.StringType); }

  private static List byName(Seq attributes) {
    List sorted = new ArrayList(CollectionConverters.asJava(attributes));
    sorted.sort(new java.util.Comparator() {
      public int compare(Object left, Object right) {
        return ((Attribute) left).name().compareTo(((Attribute) right).name());
      }
    });
    return sorted;
  }
}
