package io.deltaflow.spark.scan;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Converts Spark's filters to the JSON that deltaflow.log.files.data_skipping evaluates on the statistics of files.
 *
 * A filter that has no such form becomes "unknown", which keeps every file. Literals have Spark's internal values:
 * dates are days, timestamps microseconds.
 */
public final class Filters {
  private Filters() {}

  /** The conjunction of the filters; null if all of them are unknown. */
  public static Map toJson(scala.collection.immutable.Seq filters) {
    List known = new ArrayList();
    for (Object filter : CollectionConverters.asJava(filters)) {
      Map json = toJson((Expression) filter);
      if (!json.get("op").equals("unknown")) known.add(json);
    }
    if (known.isEmpty()) return null;
    return known.size() == 1 ? (Map) known.get(0) : node("and", known);
  }

  private static Map toJson(Expression filter) {
    if (filter instanceof And) return node("and", both(((And) filter).left(), ((And) filter).right()));
    if (filter instanceof Or) return node("or", both(((Or) filter).left(), ((Or) filter).right()));
    if (filter instanceof Not) {
      List one = new ArrayList();
      one.add(toJson(((Not) filter).child()));
      return node("not", one);
    }
    if (filter instanceof IsNull) return ofColumn("isNull", ((IsNull) filter).child());
    if (filter instanceof IsNotNull) return ofColumn("isNotNull", ((IsNotNull) filter).child());
    if (filter instanceof BinaryComparison) return comparison((BinaryComparison) filter);
    if (filter instanceof In) return in((In) filter);
    if (filter instanceof InSet) {
      List values = new ArrayList();
      for (Object value : CollectionConverters.asJava(((InSet) filter).hset().toSeq())) {
        if (!isExact(value)) return unknown();
        values.add(value);
      }
      return in(((InSet) filter).child(), values);
    }
    if (filter instanceof StartsWith) {
      StartsWith starts = (StartsWith) filter;
      if (!isLiteral(starts.right()) || value(starts.right()) == null) return unknown();
      Map json = ofColumn("startsWith", starts.left());
      json.put("value", value(starts.right()).toString());
      return json;
    }
    return unknown();
  }

  private static Map comparison(BinaryComparison filter) {
    Expression left = (Expression) filter.left();
    Expression right = (Expression) filter.right();
    if (isLiteral(right)) return comparison(operator(filter, false), left, (Literal) right);
    if (isLiteral(left)) return comparison(operator(filter, true), right, (Literal) left);
    return unknown();
  }

  private static Map comparison(String operator, Expression column, Literal literal) {
    if (operator == null) return unknown();
    Map json = ofColumn(operator, column);
    json.put("type", literal.dataType().simpleString());
    json.put("value", crossing(literal.value()));
    return json;
  }

  private static String operator(BinaryComparison filter, boolean mirrored) {
    if (filter instanceof EqualTo) return "=";
    if (filter instanceof EqualNullSafe) return "<=>";
    if (filter instanceof LessThan) return mirrored ? ">" : "<";
    if (filter instanceof LessThanOrEqual) return mirrored ? ">=" : "<=";
    if (filter instanceof GreaterThan) return mirrored ? "<" : ">";
    if (filter instanceof GreaterThanOrEqual) return mirrored ? "<=" : ">=";
    return null;
  }

  private static Map in(In filter) {
    List values = new ArrayList();
    for (Object value : CollectionConverters.asJava(filter.list())) {
      if (!isLiteral((Expression) value)) return unknown();
      values.add(value((Expression) value));
    }
    return in(filter.value(), values);
  }

  private static Map in(Expression column, List values) {
    Map json = ofColumn("in", column);
    List crossing = new ArrayList();
    for (Object value : values) crossing.add(crossing(value));
    json.put("type", column.dataType().simpleString());
    json.put("values", crossing);
    return json;
  }

  /**
   * A predicate of a column or a nested field; unknown for any other expression. Of a CHAR column only null checks are
   * known: a literal has the blanks that readers see, and the values in files may lack them.
   */
  private static Map ofColumn(String operator, Expression column) {
    List names = new ArrayList();
    Expression parent = column;
    while (parent instanceof GetStructField) {
      GetStructField field = (GetStructField) parent;
      names.add(0, ((StructType) field.child().dataType()).fields()[field.ordinal()].name());
      parent = field.child();
    }
    boolean known = parent instanceof Attribute && isBinary(column.dataType());
    if (known && !operator.startsWith("is")) known = !hasChar(((Attribute) parent).metadata());
    if (known) names.add(0, ((Attribute) parent).name());
    Map json = node(known ? operator : "unknown", null);
    json.put("column", names);
    return json;
  }

  /** Whether a column's type is CHAR, or has CHAR in it. */
  private static boolean hasChar(Metadata metadata) {
    return metadata.contains(DECLARED) && metadata.getString(DECLARED).replace("varchar(", "").contains("char(");
  }

  private static final String DECLARED = "__CHAR_VARCHAR_TYPE_STRING";

  /** Whether the type is no string with a collation, whose order differs from that of the bounds. */
  private static boolean isBinary(DataType type) {
    return !(type instanceof StringType) || type.equals(DataTypes.StringType);
  }

  private static boolean isLiteral(Expression expression) {
    return expression instanceof Literal && isExact(value(expression));
  }

  /** Whether Python gets the value as it is, which a text is not whose bytes are no UTF-8. */
  private static boolean isExact(Object value) {
    return !(value instanceof UTF8String) || UTF8String.fromString(value.toString()).equals(value);
  }

  private static Object value(Expression literal) { return ((Literal) literal).value(); }

  /** An internal value of Spark as JSON, or as text if JSON has no such value. */
  private static Object crossing(Object value) {
    if (value == null || value instanceof Boolean) return value;
    if (value instanceof Double || value instanceof Float) return value.toString();
    return value instanceof Integer || value instanceof Long || value instanceof Short || value instanceof Byte
        ? value
        : value.toString();
  }

  private static List both(Expression left, Expression right) {
    List arguments = new ArrayList();
    arguments.add(toJson(left));
    arguments.add(toJson(right));
    return arguments;
  }

  private static Map node(String operator, List arguments) {
    Map json = new LinkedHashMap();
    json.put("op", operator);
    if (arguments != null) json.put("args", arguments);
    return json;
  }

  private static Map unknown() { return node("unknown", null); }
}
