package io.deltaflow.spark;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.streaming.CompositeReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxFiles;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.streaming.*;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * The source of a streaming query. Offsets are the JSON that Python reads and writes; a batch is
 * a lazy TableScan between two of them.
 *
 * Crossings into Python for a micro-batch: latestOffset, getBatch, and those of its scan.
 */
final class DeltaSource implements Source, SupportsTriggerAvailableNow {
  private final SparkSession session;
  private final String path;
  private final Map options;
  private final StructType schema;
  private final String tableId;
  private final List partitionColumns = new ArrayList();
  private final Long handle = Long.valueOf(Python.newHandle());
  private final ReadLimit defaultLimit;
  private boolean opened;

  /** answer: what Python says of the table and the options when the query starts. */
  DeltaSource(SparkSession session, String path, Map options, StructType schema, JsonNode answer) {
    this.session = session;
    this.path = path;
    this.options = options;
    this.schema = schema;
    this.tableId = answer.get("tableId").asText();
    for (JsonNode column : answer.get("partitionColumns")) this.partitionColumns.add(column.asText());
    this.defaultLimit = ReadLimit.maxFiles(answer.get("maxFiles").asInt());
  }

  /**
   * Python keeps the source from its first use on, not before: Spark forgets a source, unstopped, if
   * another source of the same query can't be made.
   */
  private synchronized void open() {
    if (opened) return;
    Map request = request();
    request.put("path", path);
    request.put("options", options);
    request.put("schema", schema.json());
    request.put("tableId", tableId);
    request.put("partitionColumns", partitionColumns);
    opened = true;
    Python.call("source.open", request);
  }

  public StructType schema() { return schema; }

  public ReadLimit getDefaultReadLimit() { return defaultLimit; }

  public void prepareForTriggerAvailableNow() {
    open();
    Python.call("source.prepareForAvailableNow", request());
  }

  public org.apache.spark.sql.connector.read.streaming.Offset latestOffset(
      org.apache.spark.sql.connector.read.streaming.Offset start, ReadLimit limit) {
    open();
    Map request = request();
    request.put("start", start == null ? null : start.json());
    if (limit instanceof ReadMaxFiles) {
      request.put("maxFiles", Integer.valueOf(((ReadMaxFiles) limit).maxFiles()));
    } else if (limit instanceof ReadAllAvailable) {
      request.put("maxFiles", null);
    } else {
      request.put("unknownLimit", String.valueOf(limit));
    }
    return offset(Python.call("source.latestOffset", request));
  }

  public Dataset getBatch(Option start, Offset end) {
    open();
    Map request = request();
    request.put("start", start.isEmpty() ? null : ((Offset) start.get()).json());
    request.put("end", end.json());
    JsonNode batch = Python.call("source.getBatch", request);
    return org.apache.spark.sql.classic.Dataset.ofRows(session,
        org.apache.spark.sql.execution.datasources.LogicalRelation$.MODULE$.apply(
            Relations.of(session, batch), true));
  }

  public void commit(Offset end) {}

  public Option getOffset() {
    throw new UnsupportedOperationException("Spark asks latestOffset(start, limit) of this source");
  }

  public void stop() { Python.callToTheEnd("source.close", request()); }

  private Map request() {
    Map request = new LinkedHashMap();
    request.put("handle", handle);
    return request;
  }

  private static Offset offset(JsonNode answer) {
    JsonNode json = answer.get("offset");
    return json.isNull() ? null : new JsonOffset(json.asText());
  }

  private static final class JsonOffset extends Offset {
    private final String json;

    JsonOffset(String json) { this.json = json; }

    public String json() { return json; }
  }

  public String toString() { return "DeltaSource[" + path + "]"; }
}
