package io.deltaflow.spark;

import java.util.LinkedHashMap;
import java.util.Map;

import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;

/**
 * Spark's session catalog, with an eye on Delta tables: left alone, Spark would plan an INSERT,
 * TRUNCATE or saveAsTable on one past its log. Tables of other formats pass through untouched.
 */
public final class DeltaCatalog extends DelegatingCatalogExtension {

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
}
