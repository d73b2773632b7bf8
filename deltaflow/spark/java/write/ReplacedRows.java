package io.deltaflow.spark.write;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.expressions.Plans;
import io.deltaflow.spark.scan.Filters;
import io.deltaflow.spark.scan.Relations;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.types.DataTypes;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The rows of the table that a predicate is true for, which a write replaces: which files hold any, and the
 * other rows of those files, which are kept.
 */
public final class ReplacedRows {
  private final List columns;
  private final SparkPlan kept;

  public ReplacedRows(SparkSession session, JsonNode plan, Long handle) {
    String predicate = plan.get("replaceWhere").asText();
    LogicalPlan table = scan(session, plan.get("relation"));
    LogicalPlan matching = Plans.analyzed(session, new Filter(Plans.parsed(session, predicate), table));
    List partitionFilters = new ArrayList();
    List partitionColumns = new ArrayList();
    for (JsonNode name : plan.get("partitionColumns")) partitionColumns.add(name.asText());
    boolean hasDataFilters = split((LogicalPlan) session.sessionState().optimizer().execute(matching),
        partitionColumns, partitionFilters);
    Map request = new LinkedHashMap();
    request.put("handle", handle);
    request.put("hasDataFilters", Boolean.valueOf(hasDataFilters));
    request.put("partitionFilter", Filters.toJson(Plans.seq(partitionFilters)));
    request.put("paths", hasDataFilters ? filesWithRows(session, matching) : files(table, partitionFilters));
    JsonNode relation = Python.call("write.replaced", request).get("relation");
    if (relation.isNull()) {
      kept = null;
      columns = null;
      return;
    }
    LogicalPlan touched = scan(session, relation);
    Expression matches = ((Filter) Plans.analyzed(session,
        new Filter(Plans.parsed(session, predicate), touched))).condition();
    // Rows for which it is null are kept, too.
    Expression others = new Not(new EqualNullSafe(matches, Literal.create(Boolean.TRUE, DataTypes.BooleanType)));
    QueryExecution query = Dataset.ofRows(session, new Filter(others, touched)).queryExecution();
    kept = query.executedPlan();
    columns = Plans.renamed(kept.output(), Plans.schema(plan.get("table").asText()));
  }

  /** The rows to write again; null if there are none. */
  public SparkPlan kept() { return kept; }

  /** Their attributes under the table's names. */
  public List columns() { return columns; }

  private static LogicalPlan scan(SparkSession session, JsonNode relation) {
    return LogicalRelation$.MODULE$.apply(Relations.of(session, relation), false);
  }

  /** Collects the conjuncts on partition columns alone; returns whether there are others. */
  public static boolean split(LogicalPlan optimized, List partitionColumns, List partitionFilters) {
    // What the optimizer found to be true or false for every row is no filter over a relation any more.
    if (optimized instanceof LogicalRelation) return false;
    if (!(optimized instanceof Filter) || !(((Filter) optimized).child() instanceof LogicalRelation)) return true;
    boolean hasDataFilters = false;
    // Columns are named as the predicate writes them, whatever the table's case.
    Expression condition = (Expression) DataSourceStrategy$.MODULE$.normalizeExprs(
        Plans.seq(Collections.singletonList(((Filter) optimized).condition())), optimized.output()).head();
    for (Object found : Plans.conjuncts(condition)) {
      Expression conjunct = (Expression) found;
      if (partitionColumns.containsAll(namesOf(conjunct)) && conjunct.deterministic()) partitionFilters.add(conjunct);
      else hasDataFilters = true;
    }
    return hasDataFilters;
  }

  private static List namesOf(Expression expression) {
    List names = new ArrayList();
    for (Object attribute : CollectionConverters.asJava(expression.references().toSeq())) {
      names.add(((Attribute) attribute).name());
    }
    return names;
  }

  /** By a job that reads the columns of the predicate, in the partitions and files that may match. */
  private static List filesWithRows(SparkSession session, LogicalPlan matching) {
    List paths = new ArrayList();
    Object rows = Dataset.ofRows(session, matching).selectExpr(new String[] {"_metadata.file_path"}).distinct()
        .collectAsList();
    for (Object row : (List) rows) paths.add(((Row) row).getString(0));
    return paths;
  }

  /** All files of the partitions. */
  private static List files(LogicalPlan table, List partitionFilters) {
    FileIndex index = ((HadoopFsRelation) ((LogicalRelation) table).relation()).location();
    List paths = new ArrayList();
    for (Object directory : CollectionConverters.asJava(
        index.listFiles(Plans.seq(partitionFilters), Plans.seq(new ArrayList())))) {
      for (Object file : CollectionConverters.asJava(((PartitionDirectory) directory).files())) {
        paths.add(((FileStatusWithMetadata) file).getPath().toUri().toString());
      }
    }
    return paths;
  }
}
