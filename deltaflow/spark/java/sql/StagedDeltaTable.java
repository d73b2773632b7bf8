package io.deltaflow.spark.sql;

import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.V1Write;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.sources.InsertableRelation;
import org.apache.spark.sql.types.StructType;

/**
 * A Delta table that a statement is about to create or replace. Its rows are written when the statement commits.
 * Until then nothing has changed, so that abortStagedChanges has nothing to undo.
 */
public final class StagedDeltaTable implements StagedTable, SupportsWrite {
  private final TableDefinition definition;
  private Dataset rows;
  private Map options = new HashMap();

  public StagedDeltaTable(TableDefinition definition) { this.definition = definition; }

  public void commitStagedChanges() {
    if (rows == null) definition.commit();
    else definition.commit(rows, options);
  }

  public void abortStagedChanges() {}

  public CustomTaskMetric[] reportDriverMetrics() { return new CustomTaskMetric[0]; }

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    options.putAll(info.options().asCaseSensitiveMap());
    return new Rows();
  }

  public String name() { return definition.ident().toString(); }

  public StructType schema() { return definition.schema(); }

  public Transform[] partitioning() { return new Transform[0]; }

  public Map properties() { return Collections.emptyMap(); }

  public Set capabilities() {
    Set capabilities = new HashSet();
    capabilities.add(TableCapability.V1_BATCH_WRITE);
    capabilities.add(TableCapability.ACCEPT_ANY_SCHEMA);
    capabilities.add(TableCapability.TRUNCATE);
    return capabilities;
  }

  private final class Rows implements SupportsTruncate, V1Write, InsertableRelation {
    /** The commit replaces the rows. */
    public WriteBuilder truncate() { return this; }

    public Write build() { return this; }

    public InsertableRelation toInsertableRelation() { return this; }

    public String description() { return "DeltaWrite(" + name() + ")"; }

    public void insert(Dataset data, boolean overwrite) { rows = data; }
  }
}
