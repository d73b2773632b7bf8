package io.deltaflow.spark;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import com.fasterxml.jackson.databind.JsonNode;
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
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** A frame's rows as the table's, by what Python decided (deltaflow.spark.write.RowPlan). */
final class RowChanges {
  private final SparkPlan plan;
  private final List columns;

  RowChanges(SparkSession session, QueryExecution query, JsonNode rows) {
    StructType frame = Plans.schema(rows.get("frame").asText());
    // By position: where a micro-batch passes a column of its source through, the ids of the two plans differ.
    List attributes = Plans.renamed(query.executedPlan().output(), frame);
    if (rows.get("cast").isNull()) {
      plan = query.executedPlan();
      columns = attributes;
      return;
    }
    StructType table = Plans.schema(rows.get("table").asText());
    LogicalPlan changed = cast(session, Plans.standIn(attributes), Plans.schema(rows.get("cast").asText()),
        rows.get("path").asText());
    changed = selected(session, changed, rows.get("columns"), table);
    for (JsonNode check : rows.get("checks")) changed = checked(session, changed, check);
    plan = Plans.on(session, changed, query.executedPlan());
    columns = Plans.renamed(changed.output(), table);
  }

  SparkPlan plan() { return plan; }

  /** The plan's output under the table's names. */
  List columns() { return columns; }

  /** Spark's own store assignment, by name, in nested types too. */
  private static LogicalPlan cast(SparkSession session, LogicalPlan rows, StructType types, String table) {
    List expected = new ArrayList();
    for (StructField field : types.fields()) {
      expected.add(new AttributeReference(field.name(), field.dataType(), true, Metadata.empty(),
          NamedExpression.newExprId(), Plans.seq(new ArrayList())));
    }
    try {
      // Its last parameter differs between releases; its default asks for no default values in all.
      Object noDefaults = TableOutputResolver$.class.getMethod("resolveOutputColumns$default$6")
          .invoke(TableOutputResolver$.MODULE$);
      for (Method method : TableOutputResolver$.class.getMethods()) {
        if (!method.getName().equals("resolveOutputColumns")) continue;
        Object resolved = method.invoke(TableOutputResolver$.MODULE$, new Object[] {
            table, Plans.seq(expected), rows, Boolean.TRUE, session.sessionState().conf(), noDefaults});
        return Plans.analyzed(session, (LogicalPlan) resolved);
      }
      throw new IllegalStateException("TableOutputResolver of this Spark has an unknown form");
    } catch (InvocationTargetException e) {
      throw Thrown.asIs(e.getCause());
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** One column a field of the table, from SQL, by position of its nested fields. */
  private static LogicalPlan selected(SparkSession session, LogicalPlan rows, JsonNode columns, StructType table) {
    List selected = new ArrayList();
    int i = 0;
    for (JsonNode column : columns) {
      StructField field = table.fields()[i++];
      Expression value = Plans.parsed(session, column.asText());
      Expression typed = new Cast(value, field.dataType(), Option.empty(), EvalMode$.MODULE$.ANSI());
      selected.add(new Alias(typed, field.name(), NamedExpression.newExprId(), Plans.seq(new ArrayList()),
          Option.empty(), Plans.seq(new ArrayList())));
    }
    return Plans.analyzed(session, new Project(Plans.seq(selected), rows));
  }

  /** The rows, or an error at the first that does not satisfy the condition. */
  private static LogicalPlan checked(SparkSession session, LogicalPlan rows, JsonNode check) {
    Expression condition = Plans.parsed(session, check.get("condition").asText());
    // Analysed by itself first: it is to be a condition, and tells which columns it speaks of.
    LogicalPlan alone = Plans.analyzed(session, new Filter(condition, rows));
    List message = new ArrayList();
    message.add(text(check.get("message").asText()));
    if (check.get("shows_values").asBoolean()) {
      for (Object attribute : byName(rows.output())) {
        if (!((Filter) alone).condition().references().contains((NamedExpression) attribute)) continue;
        message.add(text("\n - " + ((Attribute) attribute).name() + " : "));
        Expression value = new Cast((Expression) attribute, DataTypes.StringType, Option.empty(),
            EvalMode$.MODULE$.ANSI());
        message.add(new Coalesce(Plans.seq(Arrays.asList(new Object[] {value, text("null")}))));
      }
    }
    Expression holds = new Coalesce(Plans.seq(Arrays.asList(new Object[] {
        ((Filter) alone).condition(), Literal.create(Boolean.FALSE, DataTypes.BooleanType)})));
    Expression error = new Cast(new RaiseError(new Concat(Plans.seq(message))), DataTypes.BooleanType,
        Option.empty(), EvalMode$.MODULE$.ANSI());
    return Plans.analyzed(session, new Filter(new If(holds, Literal.create(Boolean.TRUE, DataTypes.BooleanType), error), rows));
  }

  private static Literal text(String text) { return Literal.create(text, DataTypes.StringType); }

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
