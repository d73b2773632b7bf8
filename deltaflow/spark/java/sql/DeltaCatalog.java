package io.deltaflow.spark.sql;

import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;

import com.fasterxml.jackson.databind.JsonNode;
import io.deltaflow.spark.DeltaProvider;
import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.bridge.Settings;
import io.deltaflow.spark.bridge.Thrown;
import org.apache.spark.sql.catalyst.QualifiedTableName;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.util.QuotingUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.V1Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.V2SessionCatalog;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's session catalog, with Delta tables by name and, in the namespace `delta`, by path.
 *
 * Spark's own catalog keeps the entries of Delta tables, which have a name and a location. The log describes the
 * table each time that it is loaded. Tables of other formats are left to Spark's catalog.
 *
 * Crossings into Python: 1 for each table that is loaded; 2 to create or replace one without a query.
 */
public final class DeltaCatalog extends DelegatingCatalogExtension implements StagingTableCatalog {
  private String name;

  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
    // Spark gives a catalog of another name than spark_catalog no delegate: it gets one with the same entries.
    if (!name.equals("spark_catalog")) setDelegateCatalog(new V2SessionCatalog(session().sessionState().catalog()));
  }

  public String name() { return name; }

  public Set capabilities() {
    Set capabilities = new HashSet(super.capabilities());
    capabilities.add(TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE);
    capabilities.add(TableCatalogCapability.SUPPORTS_CREATE_TABLE_WITH_GENERATED_COLUMNS);
    capabilities.add(TableCatalogCapability.SUPPORTS_CREATE_TABLE_WITH_IDENTITY_COLUMNS);
    return capabilities;
  }

  // Loading

  public Table loadTable(Identifier ident) throws NoSuchTableException {
    Table other = isPath(ident) ? null : super.loadTable(ident);
    if (other != null && !isDelta(other)) return other;
    if (Callers.isSaveAsTableReplacing()) refuse("replace it by a table of another format", ident);
    boolean isRelation = Callers.isRelation();
    V1Table table = described(ident, other, null, null, isRelation);
    return isRelation ? (Table) table : new DeltaTable(table);
  }

  /** Loads the target of a write. */
  public Table loadTable(Identifier ident, Set writePrivileges) throws NoSuchTableException {
    Table other = isPath(ident) ? null : super.loadTable(ident);
    if (other != null && !isDelta(other)) {
      // saveAsTable asks to delete only in mode overwrite. Spark would then drop the other table first.
      if (writePrivileges.size() > 1 && Callers.isSaveAsTableLooking()) refuseOther(ident);
      return other;
    }
    return new DeltaTable(described(ident, other, null, null, false));
  }

  /** TIMESTAMP AS OF, in microseconds. */
  public Table loadTable(Identifier ident, long timestamp) throws NoSuchTableException {
    Table other = isPath(ident) ? null : super.loadTable(ident);
    if (other != null && !isDelta(other)) return super.loadTable(ident, timestamp);
    return described(ident, other, null, Long.valueOf(timestamp), true);
  }

  /** VERSION AS OF. */
  public Table loadTable(Identifier ident, String version) throws NoSuchTableException {
    Table other = isPath(ident) ? null : super.loadTable(ident);
    if (other != null && !isDelta(other)) return super.loadTable(ident, version);
    return described(ident, other, version, null, true);
  }

  public boolean tableExists(Identifier ident) {
    if (!isPath(ident)) return super.tableExists(ident);
    Map request = new LinkedHashMap();
    request.put("path", ident.name());
    return Python.call("catalog.exists", request).get("exists").asBoolean();
  }

  public void invalidateTable(Identifier ident) {
    if (!isPath(ident)) super.invalidateTable(ident);
  }

  // Creating and replacing

  public Table createTable(Identifier ident, StructType schema, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    if (!isDeltaProvider(properties)) return super.createTable(ident, schema, partitions, properties);
    return createDelta(ident, schema, partitions, properties);
  }

  public Table createTable(Identifier ident, Column[] columns, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    if (!isDeltaProvider(properties)) return super.createTable(ident, columns, partitions, properties);
    return createDelta(ident, DefinedColumns.schema(columns), partitions, properties);
  }

  private Table createDelta(Identifier ident, StructType schema, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException {
    stageDelta("create", ident, schema, partitions, properties).commitStagedChanges();
    try {
      return loadTable(ident);
    } catch (NoSuchTableException e) {
      throw Thrown.asIs(e); // dropped meanwhile
    }
  }

  public StagedTable stageCreate(Identifier ident, Column[] columns, Transform[] partitions, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    if (isDeltaProvider(properties)) {
      return stageDelta("create", ident, DefinedColumns.schema(columns), partitions, properties);
    }
    return new OtherStagedTable(this, ident, createTable(ident, columns, partitions, properties));
  }

  public StagedTable stageReplace(Identifier ident, Column[] columns, Transform[] partitions, Map properties)
      throws NoSuchNamespaceException, NoSuchTableException {
    if (isDeltaProvider(properties)) return replaceDelta("replace", ident, columns, partitions, properties);
    if (!dropForOther(ident)) throw new NoSuchTableException(ident);
    return new OtherStagedTable(this, ident, createAbsent(ident, columns, partitions, properties));
  }

  public StagedTable stageCreateOrReplace(Identifier ident, Column[] columns, Transform[] partitions, Map properties)
      throws NoSuchNamespaceException {
    if (isDeltaProvider(properties)) return replaceDelta("createOrReplace", ident, columns, partitions, properties);
    dropForOther(ident);
    return new OtherStagedTable(this, ident, createAbsent(ident, columns, partitions, properties));
  }

  private StagedTable replaceDelta(
      String operation, Identifier ident, Column[] columns, Transform[] partitions, Map properties) {
    try {
      return stageDelta(operation, ident, DefinedColumns.schema(columns), partitions, properties);
    } catch (TableAlreadyExistsException e) {
      throw Thrown.asIs(e);
    }
  }

  private StagedTable stageDelta(String operation, Identifier ident, StructType schema, Transform[] partitions,
      Map properties) throws TableAlreadyExistsException {
    CatalogTable existing = isPath(ident) ? null : existing(ident);
    if (existing != null && operation.equals("create")) throw new TableAlreadyExistsException(ident);
    return new StagedDeltaTable(
        new TableDefinition(operation, ident, isPath(ident), existing, schema, partitions, properties));
  }

  /** The entry of the Delta table of this name; null without a table. */
  private CatalogTable existing(Identifier ident) {
    try {
      Table table = super.loadTable(ident);
      if (!isDelta(table)) refuseOther(ident);
      return ((V1Table) table).catalogTable();
    } catch (NoSuchTableException e) {
      return null;
    }
  }

  /** Drops the table that a table of another format replaces, as Spark does for catalogs that cannot stage. */
  private boolean dropForOther(Identifier ident) {
    if (isPath(ident)) refuse("replace it by a table of another format", ident);
    try {
      if (isDelta(super.loadTable(ident))) refuse("replace it by a table of another format", ident);
    } catch (NoSuchTableException e) {
      return false;
    }
    return super.dropTable(ident);
  }

  private Table createAbsent(Identifier ident, Column[] columns, Transform[] partitions, Map properties)
      throws NoSuchNamespaceException {
    try {
      return createTable(ident, columns, partitions, properties);
    } catch (TableAlreadyExistsException e) {
      throw Thrown.asIs(e); // another one came in between
    }
  }

  // Dropping and changing. Spark's catalog drops the entry, and the files of a managed table.

  public boolean dropTable(Identifier ident) {
    if (isPath(ident)) refuse("drop it", ident);
    return super.dropTable(ident);
  }

  public boolean purgeTable(Identifier ident) {
    if (isPath(ident)) refuse("drop it", ident);
    return super.purgeTable(ident);
  }

  public Table alterTable(Identifier ident, TableChange[] changes) throws NoSuchTableException {
    if (isPath(ident) || isDelta(super.loadTable(ident))) refuse("alter it", ident);
    return super.alterTable(ident, changes);
  }

  /** Spark moves the directory of a managed table, which has the log. */
  public void renameTable(Identifier from, Identifier to) throws NoSuchTableException, TableAlreadyExistsException {
    if (isPath(from)) refuse("rename it", from);
    if (isPath(to)) refuse("rename a table to it", to);
    // RENAME of Spark 4.0 does not find what Spark has cached of these tables.
    session().catalog().uncacheTable(QuotingUtils.quoted(new String[] {name(), from.namespace()[0], from.name()}));
    super.renameTable(from, to);
  }

  /**
   * The Delta table as its log describes it now, or at a version or time. entry: the catalog's; null for a path.
   * isRelation: a query reads the table, so that Python raises its own error if there is none.
   */
  private V1Table described(Identifier ident, Table entry, String version, Long timestampMicros, boolean isRelation)
      throws NoSuchTableException {
    CatalogTable known = entry == null ? CatalogEntries.ofPath(ident) : ((V1Table) entry).catalogTable();
    Map request = new LinkedHashMap();
    request.put("name", ident.toString());
    request.put("path", entry == null ? ident.name() : CatalogEntries.path(known));
    request.put("mayBeAbsent", Boolean.valueOf(entry == null && !isRelation));
    request.put("version", version);
    request.put("asOfMicros", timestampMicros);
    request.put("isPathOfQuery", Boolean.valueOf(entry == null && isRelation));
    request.put("settings", Settings.ofDelta(session()));
    JsonNode found = Python.call("catalog.load", request).get("table");
    if (found.isNull()) throw new NoSuchTableException(ident);
    CatalogTable table = CatalogEntries.described(known, found);
    // Spark caches the relation of a name with the schema that it had then. It does so by the name as it is, and would
    // forget by an identifier in lower case, which a path may not be.
    session().sessionState().catalog().invalidateCachedTable(new QualifiedTableName(
        (String) table.identifier().catalog().get(), table.database(), table.identifier().table()));
    return new V1Table(table);
  }

  private static SparkSession session() { return (SparkSession) org.apache.spark.sql.SparkSession.active(); }

  private static boolean isPath(Identifier ident) {
    String[] namespace = ident.namespace();
    return namespace.length == 1 && namespace[0].equalsIgnoreCase("delta") && TableNames.isPath(ident.name());
  }

  private static boolean isDelta(Table table) {
    return isDelta((String) table.properties().get(TableCatalog.PROP_PROVIDER));
  }

  private static boolean isDeltaProvider(Map properties) {
    String provider = (String) properties.get(TableCatalog.PROP_PROVIDER);
    return isDelta(provider != null ? provider : session().sessionState().conf().defaultDataSourceName());
  }

  private static boolean isDelta(String provider) {
    return provider != null && (provider.equalsIgnoreCase("delta") || provider.equals(DeltaProvider.class.getName()));
  }

  private static void refuse(String operation, Identifier ident) {
    Map request = new LinkedHashMap();
    request.put("operation", operation);
    request.put("name", ident.toString());
    Python.call("catalog.refuse", request);
  }

  private static void refuseOther(Identifier ident) {
    Map request = new LinkedHashMap();
    request.put("name", ident.toString());
    Python.call("catalog.refuseOtherFormat", request);
  }
}
