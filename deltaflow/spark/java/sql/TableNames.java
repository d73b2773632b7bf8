package io.deltaflow.spark.sql;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

import io.deltaflow.spark.DeltaProvider;
import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.bridge.Thrown;
import io.deltaflow.spark.scan.PinScans;
import io.deltaflow.spark.scan.TableScan;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.NoSuchDatabaseException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.util.QuotingUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.CatalogNotFoundException;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;
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
    if (entries.isTempView(name)) return view(session, parts, true);
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
    if (entry != null && entry.tableType().equals(CatalogTableType.VIEW())) return view(session, parts, false);
    if (entry != null) return isDelta(entry) ? ofEntry(catalog, entry) : null;
    return isDelta(database) && isPath(table) ? described("delta." + QuotingUtils.quoteIdentifier(table), table) : null;
  }

  /** Whether a name in the namespace delta is a path. A relative one is refused: no other table has a slash. */
  static boolean isPath(String name) {
    if (new Path(name).isAbsolute()) return true;
    if (name.indexOf('/') >= 0) Python.call("catalog.refuseRelativePath", Collections.singletonMap("path", name));
    return false;
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

  /** Describes a view that has rows of a Delta table; null for any other view, and for one that is broken. */
  private static Map view(SparkSession session, List parts, boolean isTemporary) {
    String name = QuotingUtils.quoted((String[]) parts.toArray(new String[0]));
    LogicalPlan plan;
    try {
      plan = session.table(name).queryExecution().analyzed();
    } catch (Exception e) {
      if (e instanceof AnalysisException) return null; // the statement will fail by the same error of Spark's
      throw Thrown.asIs(e);
    }
    for (Object leaf : CollectionConverters.asJava(plan.collectLeaves())) {
      TableScan scan = PinScans.scan(leaf);
      if (scan == null) continue;
      Map view = described(name, null);
      if (isTemporary && isWhole(plan)) view.put("viewed", scan.root().toString());
      return view;
    }
    return null;
  }

  /** Whether a plan has all rows, and all columns under their names, of the newest version of a Delta table. */
  private static boolean isWhole(LogicalPlan plan) {
    TableScan scan = PinScans.scan(plan);
    if (scan != null) return !scan.isPinned();
    boolean isOnlyNamed = plan instanceof SubqueryAlias || plan instanceof View;
    if (!isOnlyNamed && !(plan instanceof Project)) return false;
    LogicalPlan rows = (LogicalPlan) plan.children().head();
    return isWhole(rows) && (isOnlyNamed || hasAllColumns((Project) plan, rows));
  }

  private static boolean hasAllColumns(Project project, LogicalPlan rows) {
    Set columns = new HashSet();
    for (Object item : CollectionConverters.asJava(project.projectList())) {
      NamedExpression column = (NamedExpression) item;
      Expression value = column instanceof Alias ? ((Alias) column).child() : (Expression) column;
      // Spark casts the columns of a view to the types that they had when it was made.
      boolean isSameType = value instanceof Cast && value.dataType().equals(((Cast) value).child().dataType());
      if (isSameType) value = ((Cast) value).child();
      if (!(value instanceof Attribute) || !((Attribute) value).name().equals(column.name())) return false;
      columns.add(((Attribute) value).exprId());
    }
    return columns.size() == rows.output().size() && columns.size() == project.projectList().size();
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
