package io.deltaflow.spark.sql;

import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.bridge.Thrown;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.catalog.CatalogUtils;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.errors.QueryCompilationErrors;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Product;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Makes and changes the entries of Spark's catalog (CatalogTable). They have other fields in other releases of Spark,
 * so that fields are set by their names.
 */
public final class CatalogEntries {
  private CatalogEntries() {}

  /** Gives the entry of a table another location. For Python: 1 crossing. */
  public static void setLocation(SparkSession session, String name, String path) throws Exception {
    TableIdentifier table = identifier(session.sessionState().sqlParser().parseMultipartIdentifier(name));
    SessionCatalog entries = session.sessionState().catalog();
    CatalogTable entry = entries.getTableRawMetadata(table);
    Map changes = new HashMap();
    changes.put("storage", storage(entry.storage(), path, null));
    entries.alterTable((CatalogTable) copied(entry, changes));
  }

  /** The identifier of a name whose last two parts are the database and the table. */
  private static TableIdentifier identifier(Seq parts) {
    return new TableIdentifier((String) parts.last(), Option.apply((String) ((Seq) parts.init()).last()));
  }

  /** The entry to store. As in delta-spark, it lacks the schema and all else that the log has. */
  public static CatalogTable stored(Identifier ident, String path, boolean managed) {
    return create(identifier(ident), managed ? CatalogTableType.MANAGED() : CatalogTableType.EXTERNAL(),
        storage(CatalogStorageFormat.empty(), path, new HashMap()));
  }

  /** An entry for a table that is named by its path, and has none in the catalog. */
  public static CatalogTable ofPath(Identifier ident) {
    return create(identifier(ident), CatalogTableType.EXTERNAL(),
        storage(CatalogStorageFormat.empty(), ident.name(), new HashMap()));
  }

  /** The entry with Python's description of the table, which may be at a fixed version. */
  public static CatalogTable described(CatalogTable entry, JsonNode table) {
    Map changes = new HashMap();
    Map options = new HashMap();
    if (table.hasNonNull("version")) {
      String version = table.get("version").asText();
      options.put("versionAsOf", version);
      // It overrides the query's own options, which may give the version or time in another way.
      options.put("deltaflow.versionOfName", version);
      // Spark caches relations by the entry's name: a version needs a name of its own.
      TableIdentifier name = entry.identifier();
      changes.put(
          "identifier", new TableIdentifier(name.table(), name.database(), Option.apply("spark_catalog@v" + version)));
    }
    changes.put("schema", DataType.fromJson(table.get("schema").asText()));
    changes.put("provider", Option.apply("delta"));
    changes.put("tracksPartitionsInCatalog", Boolean.FALSE);
    changes.put("partitionColumnNames", strings(table.get("partitionColumns")));
    changes.put("properties", scalaMap(Python.strings(table.get("properties"))));
    changes.put("comment", Option.apply(table.hasNonNull("comment") ? table.get("comment").asText() : null));
    changes.put("stats", Option.empty()); // those of ANALYZE TABLES are out of date
    changes.put("storage", storage(entry.storage(), table.get("path").asText(), options));
    return (CatalogTable) copied(entry, changes);
  }

  /** The entry of a table that CONVERT TO DELTA has converted: as `stored`, with its name and location. */
  public static CatalogTable converted(CatalogTable entry) {
    Map formats = new HashMap();
    formats.put("inputFormat", Option.empty());
    formats.put("outputFormat", Option.empty());
    formats.put("serde", Option.empty());
    Map changes = new HashMap();
    changes.put("storage", copied(entry.storage(), formats));
    changes.put("schema", new StructType());
    changes.put("provider", Option.apply("delta"));
    changes.put("partitionColumnNames", CollectionConverters.asScala(new ArrayList()).toList());
    changes.put("bucketSpec", Option.empty());
    changes.put("properties", scalaMap(new HashMap()));
    changes.put("stats", Option.empty());
    changes.put("tracksPartitionsInCatalog", Boolean.FALSE);
    return (CatalogTable) copied(entry, changes);
  }

  /** The entry's location as a Hadoop path. */
  public static String path(CatalogTable entry) { return new Path(entry.location()).toString(); }

  /**
   * The location that a statement gives a table as a Hadoop path. As for all tables in Spark's catalog, one that is
   * relative is below the location of the database: the entry would say so whatever was written elsewhere.
   */
  public static String path(SparkSession session, String database, String location) {
    Path given = new Path(CatalogUtils.stringToURI(location));
    if (given.isAbsolute()) return given.toString();
    return new Path(new Path(session.sessionState().catalog().getDatabaseMetadata(database).locationUri()), given)
        .toString();
  }

  /** As `path`, of a table by its full name. For Python: 1 crossing. */
  public static String pathOfName(SparkSession session, String name, String location) throws Exception {
    TableIdentifier table = identifier(session.sessionState().sqlParser().parseMultipartIdentifier(name));
    return path(session, (String) table.database().get(), location);
  }

  /** The path of a managed table. Throws Spark's own error if there is no such database. */
  public static String defaultPath(SparkSession session, Identifier ident) {
    return new Path(session.sessionState().catalog().defaultTablePath(identifier(ident))).toString();
  }

  /** Throws the errors that Spark would throw only when the entry is stored, after the table's first commit. */
  public static void checkName(SparkSession session, Identifier ident) {
    session.sessionState().catalog().getDatabaseMetadata(database(ident));
    if (!ident.name().matches("\\w+")) {
      throw Thrown.asIs(QueryCompilationErrors.invalidNameForTableOrDatabaseError(ident.name()));
    }
  }

  private static TableIdentifier identifier(Identifier ident) {
    return new TableIdentifier(ident.name(), Option.apply(database(ident)), Option.apply("spark_catalog"));
  }

  public static String database(Identifier ident) {
    String[] namespace = ident.namespace();
    return namespace[namespace.length - 1];
  }

  /** options: null to keep those of the entry. */
  private static CatalogStorageFormat storage(CatalogStorageFormat before, String path, Map options) {
    Map changes = new HashMap();
    changes.put("locationUri", Option.apply(new Path(path).toUri()));
    if (options != null) changes.put("properties", scalaMap(options));
    return (CatalogStorageFormat) copied(before, changes);
  }

  private static CatalogTable create(TableIdentifier name, CatalogTableType type, CatalogStorageFormat storage) {
    Constructor constructor = CatalogTable.class.getConstructors()[0];
    Object[] fields = new Object[constructor.getParameterTypes().length];
    fields[0] = name;
    fields[1] = type;
    fields[2] = storage;
    fields[3] = new StructType();
    fields[4] = Option.apply("delta");
    try {
      for (int i = 5; i < fields.length; i++) {
        fields[i] = CatalogTable.class.getMethod("apply$default$" + (i + 1), new Class[0]).invoke(null, new Object[0]);
      }
    } catch (NoSuchMethodException e) {
      throw new IllegalStateException(e);
    } catch (IllegalAccessException e) {
      throw new IllegalStateException(e);
    } catch (InvocationTargetException e) {
      throw Thrown.asIs(e.getCause());
    }
    return (CatalogTable) made(constructor, fields);
  }

  /** A copy of a case class with some fields changed. */
  private static Object copied(Product before, Map changes) {
    Object[] fields = new Object[before.productArity()];
    for (int i = 0; i < fields.length; i++) {
      Object name = before.productElementName(i);
      fields[i] = changes.containsKey(name) ? changes.get(name) : before.productElement(i);
    }
    return made(before.getClass().getConstructors()[0], fields);
  }

  public static Object made(Constructor constructor, Object[] fields) {
    try {
      return constructor.newInstance(fields);
    } catch (InvocationTargetException e) {
      throw Thrown.asIs(e.getCause());
    } catch (InstantiationException e) {
      throw new IllegalStateException(e);
    } catch (IllegalAccessException e) {
      throw new IllegalStateException(e);
    }
  }

  private static Seq strings(JsonNode array) {
    List strings = new ArrayList();
    for (JsonNode element : array) strings.add(element.asText());
    return CollectionConverters.asScala(strings).toList();
  }

  public static scala.collection.immutable.Map scalaMap(Map map) {
    return scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(map));
  }
}
