package io.deltaflow.spark.sql;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.deltaflow.spark.bridge.Python;
import org.apache.spark.sql.catalyst.analysis.FieldName;
import org.apache.spark.sql.catalyst.analysis.FieldPosition;
import org.apache.spark.sql.catalyst.analysis.PartitionSpec;
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeAction;
import org.apache.spark.sql.types.DataType;
import scala.Option;
import scala.Product;
import scala.collection.Iterable;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Converts the fields of a parsed statement for Python: case classes become objects, types their JSON, expressions
 * their numbers in a list. Plans are left out.
 */
public final class StatementFields {
  private final List expressions;

  private StatementFields(List expressions) { this.expressions = expressions; }

  public static Object of(LogicalPlan statement) { return of(statement, new ArrayList()); }

  /** Adds the statement's expressions to the list. */
  public static Object of(LogicalPlan statement, List expressions) {
    return statement instanceof DeltaStatement ? read((DeltaStatement) statement, expressions)
                                               : new StatementFields(expressions).object(statement);
  }

  /** The fields of a statement that Spark has no plan for. */
  private static Object read(DeltaStatement statement, List expressions) {
    expressions.addAll(CollectionConverters.asJava(statement.values()));
    ObjectNode fields = (ObjectNode) Python.parse(statement.fields());
    fields.putPOJO("table", Statements.nameOf(statement.table()));
    return fields;
  }

  private Map object(Product product) {
    Map fields = new LinkedHashMap();
    if (product instanceof MergeAction) fields.put("action", product.productPrefix());
    for (int i = 0; i < product.productArity(); i++) {
      if (product.productElement(i) instanceof UnresolvedIdentifier) {
        Seq name = ((UnresolvedIdentifier) product.productElement(i)).nameParts();
        fields.put(product.productElementName(i), CollectionConverters.asJava(name));
      }
      if (product.productElement(i) instanceof LogicalPlan) continue;
      fields.put(product.productElementName(i), value(product.productElement(i)));
    }
    return fields;
  }

  private Object value(Object value) {
    if (value == null || value instanceof String || value instanceof Number || value instanceof Boolean) return value;
    if (value instanceof Expression && !isPartOfPlan(value)) {
      Map number = new LinkedHashMap();
      number.put("expression", Integer.valueOf(expressions.size()));
      expressions.add(value);
      return number;
    }
    if (value instanceof Option) return ((Option) value).isEmpty() ? null : value(((Option) value).get());
    if (value instanceof DataType) return ((DataType) value).json();
    if (value instanceof scala.collection.Map) {
      Map all = CollectionConverters.asJava((scala.collection.Map) value);
      Map values = new LinkedHashMap();
      for (Object key : all.keySet()) values.put(String.valueOf(key), value(all.get(key)));
      return values;
    }
    if (value instanceof Iterable) {
      List values = new ArrayList();
      for (Object item : CollectionConverters.asJava((Iterable) value)) values.add(value(item));
      return values;
    }
    if (value instanceof Product && !(value instanceof LogicalPlan)) return object((Product) value);
    return String.valueOf(value);
  }

  /** Whether an Expression of Spark is none of SQL: an assignment, the position of a column and the like. */
  private static boolean isPartOfPlan(Object value) {
    return value.getClass().getName().startsWith(LogicalPlan.class.getPackage().getName()) || value instanceof FieldName
        || value instanceof FieldPosition || value instanceof PartitionSpec
        || value.getClass().getName().endsWith("Constraint"); // TableConstraint, which Spark 4.0 lacks
  }
}
