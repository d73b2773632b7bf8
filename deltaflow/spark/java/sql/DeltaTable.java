package io.deltaflow.spark.sql;

import java.util.HashSet;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.V1Table;
import org.apache.spark.sql.connector.catalog.V2TableWithV1Fallback;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;

/**
 * A Delta table by name as the target of a write or a command. Queries get Spark's V1Table instead, which Spark
 * scans; for a command on a V1Table, Spark would change the table without a commit in its log.
 */
public final class DeltaTable implements SupportsWrite, V2TableWithV1Fallback {
  private final V1Table described;

  public DeltaTable(V1Table described) { this.described = described; }

  /** For writeStream.toTable, which takes the path from it. */
  public CatalogTable v1Table() { return described.catalogTable(); }

  public String path() { return CatalogEntries.path(described.catalogTable()); }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) { return new DeltaV1Write(this, info); }

  public String name() { return described.name(); }

  public StructType schema() { return described.schema(); }

  public Column[] columns() { return described.columns(); }

  public Transform[] partitioning() { return described.partitioning(); }

  public Map properties() { return described.properties(); }

  /**
   * A write gets its rows as a DataFrame (V1_BATCH_WRITE) of any schema, which Python checks. Spark demands
   * BATCH_WRITE for a dynamic overwrite of partitions; DynamicOverwrite plans that as a V1 write, too.
   */
  public Set capabilities() {
    Set capabilities = new HashSet();
    capabilities.add(TableCapability.V1_BATCH_WRITE);
    capabilities.add(TableCapability.BATCH_WRITE);
    capabilities.add(TableCapability.ACCEPT_ANY_SCHEMA);
    capabilities.add(TableCapability.TRUNCATE);
    capabilities.add(TableCapability.OVERWRITE_BY_FILTER);
    capabilities.add(TableCapability.OVERWRITE_DYNAMIC);
    return capabilities;
  }
}
