package io.deltaflow.spark.expressions;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExtractValue$;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.VariableReference;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataTypes;
import scala.Function1;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Puts the columns and fields of other rows in the places of those with the same names in an analysed condition, and
 * the values of SQL variables in their places.
 *
 * The condition stays an expression. Its SQL would be read as something else where settings, quotes, or local times
 * that clocks show twice are in doubt.
 */
public final class Rebound extends AbstractPartialFunction {
  private final LogicalPlan rows;

  private Rebound(LogicalPlan rows) { this.rows = rows; }

  public static Expression on(LogicalPlan rows, Expression condition) {
    return (Expression) condition.transformUp(new Rebound(rows));
  }

  public boolean isDefinedAt(Object expression) {
    return expression instanceof AttributeReference || expression instanceof VariableReference
        || expression instanceof GetStructField;
  }

  public Object applyOrElse(Object expression, Function1 otherwise) {
    if (expression instanceof AttributeReference) return column(((AttributeReference) expression).name());
    if (expression instanceof VariableReference) {
      VariableReference variable = (VariableReference) expression;
      return new Literal(variable.eval(InternalRow.empty()), variable.dataType());
    }
    if (expression instanceof GetStructField) {
      GetStructField field = (GetStructField) expression;
      Literal name = Literal.create(field.extractFieldName(), DataTypes.StringType);
      return ExtractValue$.MODULE$.apply(field.child(), name, SQLConf.get().resolver());
    }
    return otherwise.apply(expression);
  }

  private Expression column(String name) {
    for (Object attribute : CollectionConverters.asJava(rows.output())) {
      if (isSame(((Attribute) attribute).name(), name)) return (Expression) attribute;
    }
    throw new IllegalStateException("No column " + name + " in the rows");
  }

  private static boolean isSame(String name, String other) {
    return ((Boolean) SQLConf.get().resolver().apply(name, other)).booleanValue();
  }
}
