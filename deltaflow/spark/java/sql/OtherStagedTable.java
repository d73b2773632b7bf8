package io.deltaflow.spark.sql;

import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;

/** A table of another format. It is created as soon as it is staged, as Spark does for catalogs that cannot stage. */
public final class OtherStagedTable implements StagedTable, SupportsWrite {
  private final TableCatalog catalog;
  private final Identifier ident;
  private final Table table;

  public OtherStagedTable(TableCatalog catalog, Identifier ident, Table table) {
    this.catalog = catalog;
    this.ident = ident;
    this.table = table;
  }

  public void commitStagedChanges() {}

  public void abortStagedChanges() { catalog.dropTable(ident); }

  public CustomTaskMetric[] reportDriverMetrics() { return new CustomTaskMetric[0]; }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) { return ((SupportsWrite) table).newWriteBuilder(info); }

  public String name() { return table.name(); }

  public StructType schema() { return table.schema(); }

  public Column[] columns() { return table.columns(); }

  public Transform[] partitioning() { return table.partitioning(); }

  public Map properties() { return table.properties(); }

  public Set capabilities() { return table.capabilities(); }
}
