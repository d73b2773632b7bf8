package io.deltaflow.spark.sql;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import io.deltaflow.spark.DeltaProvider;
import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.bridge.Thrown;
import io.deltaflow.spark.scan.TableScan;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.NoSuchDatabaseException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.util.QuotingUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.CatalogNotFoundException;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Finds out whether a name in SQL is that of a Delta table, and where the table is. Reads no table. */
public final class TableNames {
  private TableNames() {}

  /** What `find` returns for a name in SQL, as JSON; null if it is no Delta table. For Python: 1 crossing. */
  public static String locate(SparkSession session, String name) throws ParseException {
    Map table =
        find(session, CollectionConverters.asJava(session.sessionState().sqlParser().parseMultipartIdentifier(name)));
    return table == null ? null : Python.json(table);
  }

  /**
   * The full name of a new table of the session catalog, and the path that a managed table would have, as JSON; null
   * if there is a table or view of this name. For Python: 1 crossing.
   */
  public static String locateNew(SparkSession session, String name) throws ParseException {
    SessionCatalog entries = session.sessionState().catalog();
    TableIdentifier ident = session.sessionState().sqlParser().parseTableIdentifier(name);
    String database = ident.database().isDefined() ? (String) ident.database().get() : entries.getCurrentDatabase();
    if (entry(entries, database, ident.table()) != null) return null;
    Identifier full = Identifier.of(new String[] {database}, ident.table());
    CatalogEntries.checkName(session, full);
    return Python.json(described(QuotingUtils.quoted(new String[] {"spark_catalog", database, ident.table()}),
        CatalogEntries.defaultPath(session, full)));
  }

  /** Describes to Python the Delta table of this name, or the view over one; null for anything else. */
  public static Map find(SparkSession session, List parts) {
    if (parts.isEmpty()) return null;
    SessionCatalog entries = session.sessionState().catalog();
    Seq name = CollectionConverters.asScala(parts).toSeq();
    if (entries.isTempView(name)) return view(entries, parts);
    CatalogManager catalogs = session.sessionState().catalogManager();
    CatalogPlugin catalog = catalogs.currentCatalog();
    List namespace = Arrays.asList(catalogs.currentNamespace());
    if (parts.size() > 1) {
      namespace = parts.subList(0, parts.size() - 1);
      try {
        catalog = catalogs.catalog((String) parts.get(0));
        namespace = namespace.subList(1, namespace.size());
      } catch (Exception e) {
        // A checked exception that is not declared cannot be caught by its name. The part is a namespace then.
        if (!(e instanceof CatalogNotFoundException)) throw Thrown.asIs(e);
      }
    }
    // A session catalog of another project counts as well: Spark would run the statement without our log.
    boolean hasEntries = catalog instanceof DeltaCatalog || catalog.name().equals("spark_catalog");
    if (!hasEntries || namespace.size() != 1) return null;
    String database = (String) namespace.get(0);
    String table = (String) parts.get(parts.size() - 1);
    CatalogTable entry = entry(entries, database, table);
    if (entry != null) return isDelta(entry) ? ofEntry(catalog, entry) : null;
    return isDelta(database) && new Path(table).isAbsolute()
        ? described("delta." + QuotingUtils.quoteIdentifier(table), table)
        : null;
  }

  public static boolean isDelta(Object provider) {
    return "delta".equalsIgnoreCase((String) provider) || DeltaProvider.class.getName().equals(provider);
  }

  private static boolean isDelta(CatalogTable entry) {
    return entry.provider().isDefined() && isDelta(entry.provider().get());
  }

  private static CatalogTable entry(SessionCatalog entries, String database, String table) {
    try {
      return entries.getTableRawMetadata(new TableIdentifier(table, Option.apply(database)));
    } catch (Exception e) {
      if (e instanceof NoSuchTableException || e instanceof NoSuchDatabaseException
          || e instanceof NoSuchNamespaceException)
        return null;
      throw Thrown.asIs(e);
    }
  }

  private static Map ofEntry(CatalogPlugin catalog, CatalogTable entry) {
    String database = (String) entry.identifier().database().get();
    return described(QuotingUtils.quoted(new String[] {catalog.name(), database, entry.identifier().table()}),
        new Path(entry.location()).toString());
  }

  private static Map view(SessionCatalog entries, List parts) {
    String name = (String) parts.get(parts.size() - 1);
    Option view = parts.size() == 1 ? entries.getTempView(name) : entries.getGlobalTempView(name);
    if (view.isEmpty()) return null;
    for (Object leaf : CollectionConverters.asJava(((View) view.get()).child().collectLeaves())) {
      if (!(leaf instanceof LogicalRelation)) continue;
      Object relation = ((LogicalRelation) leaf).relation();
      if (!(relation instanceof HadoopFsRelation)) continue;
      if (!(((HadoopFsRelation) relation).location() instanceof TableScan)) continue;
      return described(name, null);
    }
    return null;
  }

  /** Whether `find` has found a view. */
  public static boolean isView(Map table) { return table.get("path") == null; }

  private static Map described(String name, String path) {
    Map table = new LinkedHashMap();
    table.put("name", name);
    table.put("path", path);
    return table;
  }
}
