package io.deltaflow.spark.sql;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.expressions.Rebound;
import io.deltaflow.spark.write.FileWrite;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsOverwriteV2;
import org.apache.spark.sql.connector.write.V1Write;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.sources.InsertableRelation;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The V1Write of a table by name, and the WriteBuilder that builds it. It writes as
 * df.write.format("delta").save(path) does.
 */
public final class DeltaV1Write implements SupportsOverwriteV2, SupportsDynamicOverwrite, V1Write, InsertableRelation {
  private final DeltaTable table;
  private final Map options;
  private String mode = "Append";
  private boolean byFilter;

  public DeltaV1Write(DeltaTable table, LogicalWriteInfo info) {
    this.table = table;
    this.options = new HashMap(info.options().asCaseSensitiveMap());
  }

  /** The writer's option decides which partitions are replaced, and not the session's setting. */
  public WriteBuilder truncate() {
    mode = "Overwrite";
    String name = "partitionOverwriteMode";
    if (!new CaseInsensitiveStringMap(options).containsKey(name)) options.put(name, "static");
    return this;
  }

  /** Every condition: Python gets it from the statement. */
  public boolean canOverwrite(Predicate[] predicates) { return true; }

  public WriteBuilder overwrite(Predicate[] predicates) {
    if (new CaseInsensitiveStringMap(options).containsKey("replaceWhere")) {
      Map request = new LinkedHashMap();
      request.put("operation", "overwrite by a condition with the option replaceWhere");
      request.put("name", table.name());
      Python.call("catalog.refuse", request);
    }
    truncate();
    byFilter = true;
    return this;
  }

  public WriteBuilder overwriteDynamicPartitions() {
    mode = "Overwrite";
    options.put("partitionOverwriteMode", "dynamic");
    return this;
  }

  public DeltaTable table() { return table; }

  public Write build() { return this; }

  public InsertableRelation toInsertableRelation() { return this; }

  public String description() { return "DeltaWrite(" + table.name() + ")"; }

  /** The rows come from the statement's query: `ignored` has none if DynamicOverwrite has planned the write. */
  public void insert(Dataset ignored, boolean overwrite) {
    SparkSession session = (SparkSession) ignored.sparkSession();
    V2WriteCommand command = command(session);
    Dataset data = org.apache.spark.sql.classic.Dataset.ofRows(session, command.query());
    if (evolves(command) && !new CaseInsensitiveStringMap(options).containsKey("mergeSchema")) {
      options.put("mergeSchema", "true");
    }
    Expression condition = null;
    if (byFilter) {
      condition = ((OverwriteByExpression) command).deleteExpr();
      condition = Rebound.on((DataSourceV2Relation) command.table(), condition);
      options.put("replaceWhere", condition.sql());
    }
    Map request = request(table.path(), mode, options);
    request.put("byPosition", Boolean.valueOf(!command.isByName()));
    FileWrite.run(session, data, "batch", request, condition);
    CachedFrames.readAnew(session, table.path());
  }

  /** Whether the statement says WITH SCHEMA EVOLUTION, which Spark 4.0 and 4.1 have for MERGE alone. */
  private static boolean evolves(V2WriteCommand command) {
    try {
      return ((Boolean) command.getClass().getMethod("withSchemaEvolution").invoke(command)).booleanValue();
    } catch (NoSuchMethodException e) {
      return false;
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** The first fields of the request for a write in this mode. */
  public static Map request(String path, String mode, Map options) {
    Map request = new LinkedHashMap();
    request.put("path", path);
    request.put("mode", mode);
    options.values().removeAll(Collections.singleton(null)); // option(name, None) sets nothing
    request.put("options", options);
    return request;
  }

  /**
   * The part of the running statement that writes this table; FROM … INSERT … INSERT … has several parts. Only the
   * statement knows the predicate, and whether columns go by name.
   */
  private V2WriteCommand command(SparkSession session) {
    String id = session.sparkContext().getLocalProperty("spark.sql.execution.id");
    QueryExecution execution = SQLExecution$.MODULE$.getQueryExecution(Long.parseLong(id));
    List commands = new ArrayList();
    addCommands(execution.analyzed(), commands);
    for (Object command : commands) {
      if (((DataSourceV2Relation) ((V2WriteCommand) command).table()).table() == table) return (V2WriteCommand) command;
    }
    // Spark may have loaded the table once more since.
    if (commands.size() != 1) throw new IllegalStateException("No write into " + table.name() + " in the statement");
    return (V2WriteCommand) commands.get(0);
  }

  private static void addCommands(LogicalPlan plan, List commands) {
    if (plan instanceof V2WriteCommand) {
      if (((V2WriteCommand) plan).table() instanceof DataSourceV2Relation) commands.add(plan);
      return;
    }
    for (Object child : CollectionConverters.asJava(plan.children())) addCommands((LogicalPlan) child, commands);
  }
}
