package io.deltaflow.spark.scan;

import java.util.LinkedHashMap;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.bridge.Settings;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** Makes relations for Spark's own Parquet reader from Python's answers about scans. */
public final class Relations {
  private Relations() {}

  /** A node of a plan that reads the table at a path with these options of a reader. */
  public static LogicalRelation node(SparkSession session, String path, Map options) {
    Map request = new LinkedHashMap();
    request.put("path", path);
    request.put("options", new LinkedHashMap(options));
    return LogicalRelation$.MODULE$.apply(read(session, request), false);
  }

  /** The relation over the table of a request, which has the path and the options. */
  public static BaseRelation read(SparkSession session, Map request) {
    request.put("settings", Settings.ofDelta(session));
    if (ChangeFeeds.areAsked((Map) request.get("options"))) return ChangeFeeds.of(session, request);
    return of(session, Python.call("read", request));
  }

  public static HadoopFsRelation of(SparkSession session, JsonNode scan) { return of(session, scan, null); }

  /** functions: those that a stream keeps; else null. */
  static HadoopFsRelation of(SparkSession session, JsonNode scan, ReadFunctions functions) {
    StructType partitionSchema = (StructType) DataType.fromJson(scan.get("partitionSchema").asText());
    StructType dataSchema = (StructType) DataType.fromJson(scan.get("dataSchema").asText());
    TableScan files = new TableScan(scan.get("root").asText(), scan.get("scan").asText(), partitionSchema,
        scan.get("sizeInBytes").asLong(), session.sessionState().conf().sessionLocalTimeZone(),
        scan.get("pinned").asBoolean(), ColumnMapping.of(scan.get("mapping")), RowIdColumns.of(scan.get("rowIds")),
        scan.get("vectors").isNull() ? -1 : scan.get("vectors").asInt(), functions);
    MappedParquet.prepare(session, ColumnMapping.of(scan.get("mapping")));
    return new HadoopFsRelation(files, partitionSchema, dataSchema, Option.empty(), files.format(),
        scala.collection.immutable.Map$.MODULE$.from(
            scala.jdk.javaapi.CollectionConverters.asScala(Python.strings(scan.get("options")))),
        session);
  }

  /** The same node with the same columns over another scan of its table. */
  public static LogicalRelation withScan(LogicalRelation node, TableScan files) {
    HadoopFsRelation old = (HadoopFsRelation) node.relation();
    HadoopFsRelation relation = new HadoopFsRelation(files, files.partitionSchema(), old.dataSchema(), old.bucketSpec(),
        files.format(), old.options(), old.sparkSession());
    return new LogicalRelation(relation, node.output(), node.catalogTable(), node.isStreaming(), node.stream());
  }
}
