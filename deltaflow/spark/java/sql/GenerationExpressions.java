package io.deltaflow.spark.sql;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import io.deltaflow.spark.bridge.Thrown;
import io.deltaflow.spark.expressions.Analysis;
import io.deltaflow.spark.expressions.Expressions;
import io.deltaflow.spark.expressions.Plans;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** What Spark knows of the expressions of generated columns in the definition of a table. */
public final class GenerationExpressions {
  /** Where the metadata of columns have the expression: Spark's name for it, and the log's. */
  private static final String[] NAMES = {"GENERATION_EXPRESSION", "delta.generationExpression"};

  private GenerationExpressions() {}

  /**
   * For each generated column: its name and expression, and either what Analysis.facts says of the expression over
   * the columns that are not generated, as JSON, or the name that it does not find there, or that it has a subquery.
   */
  public static List described(SparkSession session, StructType schema) {
    List described = new ArrayList();
    List others = new ArrayList();
    StructType stored = (StructType) CharVarcharUtils.replaceCharVarcharWithStringInSchema(schema);
    for (StructField field : stored.fields()) {
      if (expression(field) != null) continue;
      others.add(new AttributeReference(field.name(), field.dataType(), true, Metadata.empty(),
          NamedExpression.newExprId(), Plans.seq(new ArrayList())));
    }
    Dataset rows = Dataset.ofRows(session, Plans.standIn(others));
    for (StructField field : stored.fields()) {
      if (expression(field) != null) described.add(described(session, rows, field));
    }
    return described;
  }

  private static Map described(SparkSession session, Dataset rows, StructField field) {
    Map found = new LinkedHashMap();
    found.put("column", field.name());
    found.put("expression", expression(field));
    Column value = ExpressionUtils.column(Plans.parsed(session, expression(field)));
    boolean hasSubquery = Expressions.hasSubquery(value);
    found.put("hasSubquery", Boolean.valueOf(hasSubquery));
    found.put("missing", null);
    found.put("facts", null);
    if (hasSubquery) return found;
    try {
      List analysed = Analysis.analysed(rows, new ArrayList(Collections.singletonList(value)), true);
      found.put("facts", Analysis.facts(rows, analysed));
    } catch (Exception e) { // AnalysisException, a checked one
      Object missing = Plans.unresolvedColumn(e);
      if (missing == null) throw Thrown.asIs(e);
      found.put("missing", missing);
    }
    return found;
  }

  /** The expression of a generated column; null for any other column. */
  public static String expression(StructField field) {
    for (String name : NAMES) {
      if (field.metadata().contains(name)) return field.metadata().getString(name);
    }
    return null;
  }
}
