package io.deltaflow.spark;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.DataType;
import scala.Option;
import scala.Product;
import scala.collection.Iterable;
import scala.jdk.javaapi.CollectionConverters;

/** The fields of a parsed statement for Python: case classes as objects, types as their JSON, plans left out. */
final class StatementFields {
  private StatementFields() {}

  static Object of(LogicalPlan statement) {
    return statement instanceof DeltaStatement ? (Object) Python.parse(((DeltaStatement) statement).fields())
        : of((Product) statement);
  }

  private static Map of(Product product) {
    Map fields = new LinkedHashMap();
    for (int i = 0; i < product.productArity(); i++) {
      if (product.productElement(i) instanceof LogicalPlan) continue;
      fields.put(product.productElementName(i), value(product.productElement(i)));
    }
    return fields;
  }

  private static Object value(Object value) {
    if (value == null || value instanceof String || value instanceof Number || value instanceof Boolean) return value;
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
    if (value instanceof Product && !(value instanceof LogicalPlan)) return of((Product) value);
    return String.valueOf(value);
  }
}
