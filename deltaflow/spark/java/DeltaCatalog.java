package io.deltaflow.spark;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;

/**
 * Spark's session catalog, with an eye on Delta tables: left alone, Spark would plan an INSERT,
 * TRUNCATE or saveAsTable on one past its log. Tables of other formats pass through untouched.
 *
 * It stages tables for one reason: to a catalog that doesn't, Spark sends CREATE OR REPLACE as a drop of
 * the table that is there, of whatever format, and only then tells what is to come instead.
 */
public final class DeltaCatalog extends DelegatingCatalogExtension implements StagingTableCatalog {

  public Table loadTable(Identifier ident) throws NoSuchTableException {
    refusePath("read or write", ident);
    return other("read or write", ident, super.loadTable(ident));
  }

  public Table loadTable(Identifier ident, long timestamp) throws NoSuchTableException {
    refusePath("time travel", ident);
    return other("time travel", ident, super.loadTable(ident, timestamp));
  }

  public Table loadTable(Identifier ident, String version) throws NoSuchTableException {
    refusePath("time travel", ident);
    return other("time travel", ident, super.loadTable(ident, version));
  }

  public boolean tableExists(Identifier ident) {
    refusePath("look up", ident);
    return super.tableExists(ident);
  }

  public Table createTable(Identifier ident, Column[] columns, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    refuseProvider(ident, properties);
    return super.createTable(ident, columns, partitions, properties);
  }

  public Table createTable(Identifier ident, StructType schema, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    refuseProvider(ident, properties);
    return super.createTable(ident, schema, partitions, properties);
  }

  public boolean dropTable(Identifier ident) {
    refuseDrop(ident);
    return super.dropTable(ident);
  }

  public boolean purgeTable(Identifier ident) {
    refuseDrop(ident);
    return super.purgeTable(ident);
  }

  public StagedTable stageCreate(Identifier ident, Column[] columns, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return new Created(ident, createTable(ident, columns, partitions, properties));
  }

  public StagedTable stageReplace(Identifier ident, Column[] columns, Transform[] partitions, Map properties)
      throws NoSuchNamespaceException, NoSuchTableException {
    refuseProvider(ident, properties);
    if (!dropTable(ident)) throw new NoSuchTableException(ident);
    return new Created(ident, createAbsent(ident, columns, partitions, properties));
  }

  public StagedTable stageCreateOrReplace(Identifier ident, Column[] columns, Transform[] partitions,
                                          Map properties) throws NoSuchNamespaceException {
    refuseProvider(ident, properties);
    dropTable(ident);
    return new Created(ident, createAbsent(ident, columns, partitions, properties));
  }

  private Table createAbsent(Identifier ident, Column[] columns, Transform[] partitions, Map properties)
      throws NoSuchNamespaceException {
    try {
      return createTable(ident, columns, partitions, properties);
    } catch (TableAlreadyExistsException e) {
      throw Thrown.asIs(e);  // another one came in between
    }
  }

  private void refuseDrop(Identifier ident) {
    refusePath("drop", ident);
    Table table;
    try {
      table = super.loadTable(ident);
    } catch (NoSuchTableException e) {
      return;
    }
    other("drop", ident, table);
  }

  private static Table other(String what, Identifier ident, Table table) {
    Object provider = table.properties().get(TableCatalog.PROP_PROVIDER);
    if (isDelta(provider)) refuse(what, ident);
    return table;
  }

  private static void refuseProvider(Identifier ident, Map properties) {
    if (isDelta(properties.get(TableCatalog.PROP_PROVIDER))) refuse("create", ident);
  }

  private static void refusePath(String what, Identifier ident) {
    if (ident.namespace().length == 1 && isDelta(ident.namespace()[0])) refuse(what, ident);
  }

  private static boolean isDelta(Object provider) {
    if (provider == null) return false;
    String name = (String) provider;
    return name.equalsIgnoreCase("delta") || name.equals(DeltaProvider.class.getName());
  }

  private static void refuse(String what, Identifier ident) {
    Map request = new LinkedHashMap();
    request.put("what", what);
    request.put("table", ident.toString());
    Python.call("catalog.refuse", request);
  }

  /**
   * A table of another format that is there as soon as it is staged, which is what Spark does with
   * catalogs that don't stage.
   */
  private final class Created implements StagedTable, SupportsWrite {
    private final Identifier ident;
    private final Table table;

    Created(Identifier ident, Table table) {
      this.ident = ident;
      this.table = table;
    }

    public void commitStagedChanges() {}

    public void abortStagedChanges() { dropTable(ident); }

    public CustomTaskMetric[] reportDriverMetrics() { return new CustomTaskMetric[0]; }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return ((SupportsWrite) table).newWriteBuilder(info);
    }

    public String name() { return table.name(); }

    public StructType schema() { return table.schema(); }

    public Column[] columns() { return table.columns(); }

    public Transform[] partitioning() { return table.partitioning(); }

    public Map properties() { return table.properties(); }

    public Set capabilities() { return table.capabilities(); }
  }
}
