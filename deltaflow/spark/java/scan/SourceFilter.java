package io.deltaflow.spark.scan;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Pattern;

import io.deltaflow.spark.expressions.Plans;
import io.deltaflow.spark.expressions.Rebound;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreePattern$;
import org.apache.spark.sql.classic.ExpressionUtils$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The option sourceFilter of a stream. Spark parses, resolves and simplifies it when the query starts: the settings and
 * variables of the session may change later, and files and rows have to be chosen alike.
 */
public final class SourceFilter {
  /** In a filter: what Spark's parser or optimizer replaces by the time. */
  private static final Pattern NOW =
      Pattern.compile("['\"]\\s*(now|today|tomorrow|yesterday)\\b", Pattern.CASE_INSENSITIVE);

  /** On a stand-in, which has the columns of the schema. */
  private Filter resolved;

  /** The predicate as the JSON of data skipping, or the fault in it. */
  private final Map found = new LinkedHashMap();

  /** Null without the option. */
  public static SourceFilter of(SparkSession session, Map options, String schema) {
    String text = new CaseInsensitiveStringMap(options).get("sourceFilter");
    return text == null || schema == null ? null : new SourceFilter(session, text, schema);
  }

  private SourceFilter(SparkSession session, String text, String schema) {
    found.put("predicate", null);
    found.put("fault", null);
    try {
      found.put("predicate", predicate(session, text, (StructType) DataType.fromJson(schema)));
    } catch (Exception e) {
      // Scala throws Spark's checked AnalysisException without saying so.
      found.put("fault", String.valueOf(e.getMessage()).split("\n")[0]);
    }
  }

  /** For Python, which raises the error for a fault. */
  public Map found() { return found; }

  /** The rows of a plan, which has the columns of the schema, for which the filter is true. */
  LogicalPlan on(LogicalPlan rows) { return new Filter(Rebound.on(rows, resolved.condition()), rows); }

  private Map predicate(SparkSession session, String text, StructType schema) {
    // An empty RDD: from an empty local relation the optimizer would remove the filter.
    Dataset rows = session.createDataFrame(new JavaSparkContext(session.sparkContext()).emptyRDD(), schema);
    LogicalPlan analyzed = ((org.apache.spark.sql.classic.Dataset) rows.where(text)).queryExecution().analyzed();
    if (!analyzed.subqueriesAll().isEmpty()) throw new IllegalArgumentException("it has a subquery");
    resolved = (Filter) analyzed;
    Expression lasting = NOW.matcher(text).find() ? null : lasting(resolved);
    if (lasting == null) return null;
    Dataset kept = rows.where(ExpressionUtils$.MODULE$.column(lasting));
    LogicalPlan plan = ((org.apache.spark.sql.classic.Dataset) kept).queryExecution().optimizedPlan();
    if (!(plan instanceof Filter)) return null;
    Seq filters = CollectionConverters.asScala(Collections.singletonList(((Filter) plan).condition())).toList();
    // The filter may write names in another case than the table, and so than the statistics.
    return Filters.toJson(DataSourceStrategy$.MODULE$.normalizeExprs(filters, plan.output()));
  }

  /** The conjuncts that do not ask for the time, which is another one for each batch; null without any. */
  private static Expression lasting(Filter filter) {
    Expression lasting = null;
    for (Object found : Plans.conjuncts(filter.condition())) {
      Expression conjunct = (Expression) found;
      if (conjunct.containsPattern(TreePattern$.MODULE$.CURRENT_LIKE())) continue;
      lasting = lasting == null ? conjunct : new And(lasting, conjunct);
    }
    return lasting;
  }
}
