package io.deltaflow.spark.sql;

import java.math.BigDecimal;
import java.time.LocalDate;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.TextNode;
import io.deltaflow.spark.bridge.Python;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.*;

/** Converts the rows of a statement from Python's JSON to Spark's. A struct is an object, or a list of its values. */
public final class StatementRows {
  private StatementRows() {}

  /** For Python: a DataFrame of the rows, a local relation. rows, schema: JSON. */
  public static Dataset frame(SparkSession session, String rows, String schema) {
    StructType type = (StructType) DataType.fromJson(schema);
    return session.createDataFrame(of(Python.parse(rows), type), type);
  }

  public static List of(JsonNode rows, StructType schema) {
    List converted = new ArrayList();
    for (JsonNode row : rows) converted.add(value(row, schema));
    return converted;
  }

  private static Object value(JsonNode value, DataType type) {
    if (value == null || value.isNull()) return null;
    if (type instanceof StructType) return struct(value, (StructType) type);
    if (type instanceof ArrayType) return array(value, (ArrayType) type);
    if (type instanceof MapType) return map(value, (MapType) type);
    if (type instanceof StringType) return value.asText();
    if (type instanceof BooleanType) return Boolean.valueOf(value.asBoolean());
    if (type instanceof LongType) return Long.valueOf(value.asLong());
    if (type instanceof IntegerType) return Integer.valueOf(value.asInt());
    if (type instanceof DoubleType) return Double.valueOf(value.asDouble());
    if (type instanceof DecimalType) return new BigDecimal(value.asText());
    if (type instanceof TimestampType) return OffsetDateTime.parse(value.asText()).toInstant();
    if (type instanceof DateType) return LocalDate.parse(value.asText());
    throw new IllegalStateException("a statement returns no values of type " + type.sql());
  }

  private static Object struct(JsonNode value, StructType type) {
    StructField[] fields = type.fields();
    Object[] values = new Object[fields.length];
    for (int i = 0; i < fields.length; i++) {
      JsonNode field = (JsonNode) (value.isArray() ? value.get(i) : value.get(fields[i].name()));
      values[i] = value(field, fields[i].dataType());
    }
    return RowFactory.create(values);
  }

  private static List array(JsonNode value, ArrayType type) {
    List items = new ArrayList();
    for (JsonNode item : value) items.add(value(item, type.elementType()));
    return items;
  }

  private static Map map(JsonNode value, MapType type) {
    Map entries = new LinkedHashMap();
    Iterator keys = value.fieldNames();
    while (keys.hasNext()) {
      String key = (String) keys.next();
      entries.put(value(TextNode.valueOf(key), type.keyType()), value((JsonNode) value.get(key), type.valueType()));
    }
    return entries;
  }
}
