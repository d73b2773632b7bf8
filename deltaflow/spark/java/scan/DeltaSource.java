package io.deltaflow.spark.scan;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

import com.fasterxml.jackson.databind.JsonNode;
import io.deltaflow.spark.bridge.Python;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.streaming.CompositeReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxBytes;
import org.apache.spark.sql.connector.read.streaming.ReadMaxFiles;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.execution.streaming.*;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The source of a streaming query. Python reads and writes the offsets, which are JSON. A batch is a lazy TableScan
 * of the files between two offsets; a batch of change rows is the union of up to two.
 *
 * Crossings into Python for a micro-batch: latestOffset, getBatch, metrics, and those of its scan; with a schema log
 * commit, too.
 */
public final class DeltaSource implements Source, SupportsTriggerAvailableNow, ReportsSourceMetrics {
  private final SparkSession session;
  private final StructType schema;
  private final String root;
  private final String reading;
  private final SourceFilter filter;
  private final boolean hasSchemaLog;
  private final Long handle = Long.valueOf(Python.newHandle());
  private final ReadFunctions functions = new ReadFunctions();
  private final ReadLimit defaultLimit;
  private volatile org.apache.spark.sql.connector.read.streaming.Offset newest;
  private boolean opened;

  /** filter: null without the option; answer: Python's answer to source.start. */
  public DeltaSource(SparkSession session, SourceFilter filter, JsonNode answer) {
    this.session = session;
    this.schema = (StructType) DataType.fromJson(answer.get("schema").asText());
    this.root = answer.get("root").asText();
    this.reading = answer.get("reading").asText();
    this.filter = filter;
    this.hasSchemaLog = answer.get("hasSchemaLog").asBoolean();
    this.defaultLimit = limitOf(answer.get("limits"));
  }

  /**
   * Python keeps the source from its first use on. If another source of the same query cannot be made, Spark drops
   * this one without stopping it.
   */
  private synchronized void open() {
    if (opened) return;
    Map request = request();
    request.put("reading", reading);
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
    Map limits = new LinkedHashMap();
    request.put("unknownLimit", addLimit(limits, limit) ? null : String.valueOf(limit));
    request.put("limits", limits);
    JsonNode answer = Python.call("source.latestOffset", request);
    newest = offset(answer.get("newest"));
    return offset(answer.get("offset"));
  }

  /** For the query's progress: the end of the table at the last call of latestOffset. */
  public org.apache.spark.sql.connector.read.streaming.Offset reportLatestOffset() { return newest; }

  public Dataset getBatch(Option start, Offset end) {
    open();
    Map request = request();
    request.put("start", start.isEmpty() ? null : ((Offset) start.get()).json());
    request.put("end", end.json());
    List scans = new ArrayList();
    for (JsonNode scan : Python.call("source.getBatch", request).get("relations")) {
      scans.add(LogicalRelation$.MODULE$.apply(Relations.of(session, scan, functions), true));
    }
    LogicalPlan plan = (LogicalPlan) scans.get(0);
    if (scans.size() > 1) plan = new Union(CollectionConverters.asScala(scans).toList(), false, false);
    // It has no name to be resolved. Spark puts it into the plan of the batch, where CHAR is padded.
    plan.setAnalyzed();
    return org.apache.spark.sql.classic.Dataset.ofRows(session, filter == null ? plan : filter.on(plan));
  }

  public Map metrics(Optional done) {
    Map request = request();
    request.put(
        "done", done.isPresent() ? ((org.apache.spark.sql.connector.read.streaming.Offset) done.get()).json() : null);
    return Python.strings(Python.call("source.metrics", request).get("metrics"));
  }

  /** All batches up to this offset are done. After an error the query fails. */
  public void commit(Offset end) {
    if (!hasSchemaLog) return;
    Map request = request();
    request.put("end", end.json());
    Python.call("source.commit", request);
  }

  public Option getOffset() {
    throw new UnsupportedOperationException("Spark asks latestOffset(start, limit) of this source");
  }

  public void stop() { Python.callToTheEnd("source.close", request()); }

  private Map request() {
    Map request = new LinkedHashMap();
    request.put("handle", handle);
    return request;
  }

  /** Python's limits as Spark's ReadLimit. */
  private static ReadLimit limitOf(JsonNode limits) {
    List all = new ArrayList();
    if (!limits.get("files").isNull()) all.add(ReadLimit.maxFiles(limits.get("files").asInt()));
    if (!limits.get("bytes").isNull()) all.add(ReadLimit.maxBytes(limits.get("bytes").asLong()));
    if (!limits.get("rows").isNull()) all.add(ReadLimit.maxRows(limits.get("rows").asLong()));
    return all.size() == 1 ? (ReadLimit) all.get(0)
                           : ReadLimit.compositeLimit((ReadLimit[]) all.toArray(new ReadLimit[0]));
  }

  /** Adds Spark's limit to Python's limits; false if Python has no such limit. */
  private static boolean addLimit(Map limits, ReadLimit limit) {
    if (limit instanceof ReadMaxFiles) {
      limits.put("files", Integer.valueOf(((ReadMaxFiles) limit).maxFiles()));
    } else if (limit instanceof ReadMaxBytes) {
      limits.put("bytes", Long.valueOf(((ReadMaxBytes) limit).maxBytes()));
    } else if (limit instanceof ReadMaxRows) {
      limits.put("rows", Long.valueOf(((ReadMaxRows) limit).maxRows()));
    } else if (limit instanceof CompositeReadLimit) {
      for (ReadLimit part : ((CompositeReadLimit) limit).getReadLimits()) {
        if (!addLimit(limits, part)) return false;
      }
    } else {
      return limit instanceof ReadAllAvailable;
    }
    return true;
  }

  private static org.apache.spark.sql.connector.read.streaming.Offset offset(JsonNode json) {
    return json.isNull() ? null : new JsonOffset(json.asText());
  }

  private static final class JsonOffset extends Offset {
    private final String json;

    JsonOffset(String json) { this.json = json; }

    public String json() { return json; }
  }

  public String toString() { return "DeltaSource[" + root + "]"; }
}
