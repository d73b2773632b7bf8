package io.deltaflow.spark.sql;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.bridge.Settings;
import io.deltaflow.spark.write.FileWrite;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;

/**
 * The definition of a Delta table in a statement that creates or replaces it. Python checks it and commits it to the
 * log. The entry in Spark's catalog is made after that, so that no name stands for a missing table.
 */
public final class TableDefinition {
  private final SparkSession session;
  private final Identifier ident;
  private final boolean isPath;
  private final boolean isInCatalog;
  private final boolean isManaged;
  private final String path;
  private final StructType schema;
  private final Map request = new LinkedHashMap();

  /** existing: the entry of the Delta table of this name, or null. */
  public TableDefinition(String operation, Identifier ident, boolean isPath, CatalogTable existing, StructType schema,
      Transform[] partitions, Map properties) {
    this.session = (SparkSession) org.apache.spark.sql.SparkSession.active();
    this.ident = ident;
    this.isPath = isPath;
    this.isInCatalog = existing != null;
    String location = (String) properties.get(TableCatalog.PROP_LOCATION);
    if (!isPath && location != null) location = CatalogEntries.path(session, CatalogEntries.database(ident), location);
    if (isInCatalog) {
      this.isManaged = existing.tableType().equals(CatalogTableType.MANAGED());
      this.path = CatalogEntries.path(existing);
    } else {
      this.isManaged = !isPath && location == null;
      if (isPath) this.path = ident.name();
      else if (location != null) this.path = location;
      else this.path = CatalogEntries.defaultPath(session, ident);
    }
    if (!isPath && !isInCatalog) CatalogEntries.checkName(session, ident);
    this.schema = schema;
    request.put("operation", operation);
    request.put("name", ident.toString());
    request.put("path", path);
    request.put("location", location);
    request.put("isPath", Boolean.valueOf(isPath));
    request.put("isInCatalog", Boolean.valueOf(isInCatalog));
    request.put("isManaged", Boolean.valueOf(isManaged));
    request.put("isSaveAsTable", Boolean.valueOf(Callers.isSaveAsTable()));
    request.put("definedSchema", schema.json());
    request.put("generated", GenerationExpressions.described(session, schema));
    request.put("partitioning", partitioning(partitions));
    request.put("properties", new LinkedHashMap(properties));
    request.put("settings", Settings.ofDelta(session));
    Python.call("catalog.check", request);
  }

  public Identifier ident() { return ident; }

  public StructType schema() { return schema; }

  /** Commits a definition without a query. */
  public void commit() {
    Python.call("catalog.commit", request);
    register();
  }

  /** Commits the definition together with the rows of a query. */
  public void commit(Dataset data, Map options) {
    Map write = DeltaV1Write.request(path, "Overwrite", options);
    write.put("byPosition", null);
    write.put("definition", request);
    FileWrite.run(session, data, "tableAsSelect", write);
    register();
  }

  private void register() {
    CachedFrames.readAnew(session, path);
    if (isPath || isInCatalog) return;
    session.sessionState().catalog().createTable(CatalogEntries.stored(ident, path, isManaged), false, false);
  }

  private static List partitioning(Transform[] partitions) {
    List described = new ArrayList();
    for (Transform partition : partitions) {
      List columns = new ArrayList();
      for (NamedReference reference : partition.references()) {
        // Names of fields can have dots. Those of the columns of CLUSTER BY may be paths.
        if (partition.name().equals("cluster_by")) columns.add(reference.toString());
        else columns.addAll(Arrays.asList(reference.fieldNames()));
      }
      Map transform = new LinkedHashMap();
      transform.put("transform", partition.name());
      transform.put("columns", columns);
      described.add(transform);
    }
    return described;
  }
}
