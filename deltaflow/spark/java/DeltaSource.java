package io.deltaflow.spark;

import java.util.LinkedHashMap;
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
 * Crossings into Python for a micro-batch: latestOffset, getBatch, commit, and those of its scan.
 */
final class DeltaSource implements Source, SupportsTriggerAvailableNow {
  private final SparkSession session;
  private final String path;
  private final StructType schema;
  private final Long handle = Long.valueOf(Python.newHandle());
  private final ReadLimit defaultLimit;

  DeltaSource(SparkSession session, String path, Map options, StructType schema) {
    this.session = session;
    this.path = path;
    this.schema = schema;
    Map request = request();
    request.put("path", path);
    request.put("options", options);
    request.put("schema", schema.json());
    JsonNode maxFiles = Python.call("source.open", request).get("maxFiles");
    this.defaultLimit = maxFiles.isNull() ? ReadLimit.allAvailable() : ReadLimit.maxFiles(maxFiles.asInt());
  }

  public StructType schema() { return schema; }

  public ReadLimit getDefaultReadLimit() { return defaultLimit; }

  public void prepareForTriggerAvailableNow() { Python.call("source.prepareForAvailableNow", request()); }

  public org.apache.spark.sql.connector.read.streaming.Offset latestOffset(
      org.apache.spark.sql.connector.read.streaming.Offset start, ReadLimit limit) {
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

  /** The newest offset without limits, for the query's progress. */
  public org.apache.spark.sql.connector.read.streaming.Offset reportLatestOffset() { return null; }

  public Dataset getBatch(Option start, Offset end) {
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
