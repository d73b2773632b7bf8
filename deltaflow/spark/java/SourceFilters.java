package io.deltaflow.spark;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.sources.And;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThan;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.In;
import org.apache.spark.sql.sources.IsNotNull;
import org.apache.spark.sql.sources.IsNull;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.sources.Or;
import scala.Option;

/** Catalyst's conditions as Spark's source filters, as JSON. What has no such form is left out. */
final class SourceFilters {
  private SourceFilters() {}

  static List of(List conditions) {
    List filters = new ArrayList();
    for (Object condition : conditions) {
      Option filter = DataSourceStrategy$.MODULE$.translateFilter((Expression) condition, false);
      Map json = filter.isEmpty() ? null : json((Filter) filter.get());
      if (json != null) filters.add(json);
    }
    return filters;
  }

  private static Map json(Filter filter) {
    if (filter instanceof And) return pair("and", ((And) filter).left(), ((And) filter).right());
    if (filter instanceof Or) return pair("or", ((Or) filter).left(), ((Or) filter).right());
    if (filter instanceof IsNull) return of("isNull", ((IsNull) filter).attribute());
    if (filter instanceof IsNotNull) return of("isNotNull", ((IsNotNull) filter).attribute());
    if (filter instanceof EqualTo) return of("=", ((EqualTo) filter).attribute(), ((EqualTo) filter).value());
    if (filter instanceof LessThan) return of("<", ((LessThan) filter).attribute(), ((LessThan) filter).value());
    if (filter instanceof LessThanOrEqual) {
      return of("<=", ((LessThanOrEqual) filter).attribute(), ((LessThanOrEqual) filter).value());
    }
    if (filter instanceof GreaterThan) {
      return of(">", ((GreaterThan) filter).attribute(), ((GreaterThan) filter).value());
    }
    if (filter instanceof GreaterThanOrEqual) {
      return of(">=", ((GreaterThanOrEqual) filter).attribute(), ((GreaterThanOrEqual) filter).value());
    }
    if (filter instanceof In) {
      Map json = of("in", ((In) filter).attribute());
      List texts = new ArrayList();
      for (Object value : ((In) filter).values()) {
        if (!isPlain(value)) return null;
        texts.add(value.toString());
      }
      json.put("values", texts);
      return json;
    }
    return null;
  }

  private static Map of(String operator, String column) {
    Map json = new LinkedHashMap();
    json.put("op", operator);
    json.put("column", column);
    return json;
  }

  private static Map of(String operator, String column, Object value) {
    if (!isPlain(value)) return null;
    Map json = of(operator, column);
    List texts = new ArrayList();
    texts.add(value.toString());
    json.put("values", texts);
    return json;
  }

  private static Map pair(String operator, Filter left, Filter right) {
    Map json = new LinkedHashMap();
    json.put("op", operator);
    json.put("left", json(left));
    json.put("right", json(right));
    return json.get("left") == null || json.get("right") == null ? null : json;
  }

  /** Whether the text of the value is that of a partition value in the log. */
  private static boolean isPlain(Object value) {
    return value instanceof String || value instanceof Number || value instanceof Boolean
        || value instanceof java.sql.Date || value instanceof java.time.LocalDate;
  }
}
