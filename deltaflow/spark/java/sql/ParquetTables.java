package io.deltaflow.spark.sql;

import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.deltaflow.spark.bridge.Python;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTablePartition;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.util.QuotingUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.PartitioningUtils$;
import org.apache.spark.sql.internal.SQLConf;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Describes Parquet tables to Python, which makes Delta tables of them. */
public final class ParquetTables {
  private static final String HIVE_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe";

  private ParquetTables() {}

  /** Describes a name, or format.`path`, as JSON (see parquet_tables.py). For Python: 1 crossing. */
  public static String describe(SparkSession session, String name) throws Exception {
    SessionCatalog entries = session.sessionState().catalog();
    TableIdentifier ident = session.sessionState().sqlParser().parseTableIdentifier(name);
    Map table = new LinkedHashMap();
    boolean isView = entries.isTempView(ident);
    if (!isView && !entries.tableExists(ident)) {
      boolean isPath = ident.database().isDefined() || new Path(ident.table()).isAbsolute();
      if (!isPath) entries.getTableRawMetadata(ident); // Spark's own error
      table.put("provider", ident.database().isDefined() ? ident.database().get() : null);
      table.put("path", ident.table());
      return Python.json(table);
    }
    CatalogTable entry =
        isView ? entries.getTempViewOrPermanentTableMetadata(ident) : entries.getTableRawMetadata(ident);
    table.put("name", ident.unquotedString());
    table.put("is_view", isView || entry.tableType().equals(CatalogTableType.VIEW()));
    if (Boolean.TRUE.equals(table.get("is_view"))) return Python.json(table);
    TableIdentifier full = entry.identifier();
    table.put("name", full.quotedString());
    table.put("quoted", QuotingUtils.quoted(new String[] {(String) full.database().get(), full.table()}));
    table.put("provider",
        isHiveParquet(entry)               ? "parquet"
            : entry.provider().isDefined() ? entry.provider().get()
                                           : null);
    table.put("path", new Path(entry.location()).toString());
    table.put("schema", entry.schema().json());
    table.put("partition_columns", new ArrayList(CollectionConverters.asJava(entry.partitionColumnNames())));
    table.put("properties", new LinkedHashMap(CollectionConverters.asJava(entry.properties())));
    boolean lists =
        !entry.partitionColumnNames().isEmpty() && (entry.tracksPartitionsInCatalog() || isHiveParquet(entry));
    table.put("partitions", lists ? partitions(entries, full) : null);
    return Python.json(table);
  }

  private static boolean isHiveParquet(CatalogTable entry) {
    return entry.provider().equals(Option.apply("hive")) && entry.storage().serde().equals(Option.apply(HIVE_SERDE));
  }

  private static List partitions(SessionCatalog entries, TableIdentifier table) {
    List partitions = new ArrayList();
    for (Object item : CollectionConverters.asJava(entries.listPartitions(table, Option.empty()))) {
      CatalogTablePartition partition = (CatalogTablePartition) item;
      Map described = new LinkedHashMap();
      described.put("path", new Path(partition.location()).toString());
      described.put("values", new LinkedHashMap(CollectionConverters.asJava(partition.spec())));
      partitions.add(described);
    }
    return partitions;
  }

  /** The schema that Spark infers from folders column=value/…, a JSON array. For Python: 1 crossing. */
  public static String partitionSchema(SparkSession session, String folders) throws IOException {
    List paths = new ArrayList();
    for (Object folder : (List) new ObjectMapper().readValue(folders, List.class))
      paths.add(new Path("/" + folder)); // a relative path with a colon is none for Hadoop
    List base = new ArrayList();
    base.add(new Path("/"));
    SQLConf conf = session.sessionState().conf();
    return PartitioningUtils$.MODULE$
        .parsePartitions((Seq) CollectionConverters.asScala(paths).toList(), conf.partitionColumnTypeInferenceEnabled(),
            CollectionConverters.asScala(base).toSet(), Option.empty(), conf.caseSensitiveAnalysis(),
            conf.validatePartitionColumns(), conf.sessionLocalTimeZone(), false)
        .partitionColumns()
        .json();
  }

  /** Makes the entry of a converted table that of a Delta table. For Python: 1 crossing. */
  public static void makeEntryDelta(SparkSession session, String name) throws Exception {
    SessionCatalog entries = session.sessionState().catalog();
    TableIdentifier ident = session.sessionState().sqlParser().parseTableIdentifier(name);
    entries.alterTable(CatalogEntries.converted(entries.getTableRawMetadata(ident)));
  }
}
