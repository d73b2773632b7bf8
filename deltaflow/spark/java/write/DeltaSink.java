package io.deltaflow.spark.write;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.connector.read.streaming.ReportsSinkMetrics;
import org.apache.spark.sql.execution.streaming.*;
import org.apache.spark.sql.execution.streaming.checkpointing.*;
import org.apache.spark.sql.execution.streaming.runtime.*;
import org.apache.spark.sql.streaming.OutputMode;
import scala.Option;

/** The sink of a streaming query. It writes every micro-batch by one FileWrite. */
public final class DeltaSink implements Sink, ReportsSinkMetrics {
  private final org.apache.spark.sql.classic.SparkSession session;
  private final String path;
  private final Map options;
  private final List partitionColumns;
  private final String outputMode;
  private volatile int skipped;
  private boolean isRecorded;
  private boolean hasTable;

  public DeltaSink(org.apache.spark.sql.classic.SparkSession session, String path, Map options, List partitionColumns,
      OutputMode outputMode, boolean hasTable) {
    this.session = session;
    this.path = path;
    this.options = options;
    this.partitionColumns = partitionColumns;
    this.outputMode = outputMode.toString();
    this.hasTable = hasTable;
  }

  public void addBatch(long batchId, Dataset data) {
    Map request = new LinkedHashMap();
    request.put("path", path);
    request.put("options", options);
    request.put("partitionBy", partitionColumns);
    request.put("outputMode", outputMode);
    String queryId = session.sparkContext().getLocalProperty("sql.streaming.queryId");
    request.put("queryId", queryId);
    request.put("batchId", Long.valueOf(batchId));
    OffsetSeqLog log = offsetLog(queryId);
    request.put("offsets", offsets(log, batchId));
    // Python records the table in the checkpoint, once for each run.
    request.put("checkpoint", log == null || isRecorded ? null : log.metadataPath().getParent().toString());
    isRecorded = true;
    // A table that was there in this run is not made anew by its next batch.
    request.put("hadTable", Boolean.valueOf(hasTable));
    // The batch has its own incremental execution. The session of its plan is the stream's clone.
    if (!FileWrite.run(((org.apache.spark.sql.classic.Dataset) data).sparkSession(), data, "stream", request))
      skipped++;
    hasTable = true;
  }

  /** For the query's progress: how many batches of this run the table had already. */
  public Map metrics() { return Collections.singletonMap("numSkippedBatches", String.valueOf(skipped)); }

  /** The log in the query's checkpoint of the offsets of its batches; null if the query is unknown. */
  private OffsetSeqLog offsetLog(String queryId) {
    Object query = session.sharedState().activeStreamingQueries().get(UUID.fromString(queryId));
    return query == null ? null : ((StreamExecution) query).offsetLog();
  }

  /**
   * The text of the checkpoint's file offsets/<batchId>; null without a log. Spark has the newest entries in memory,
   * so that no file is read.
   */
  private static String offsets(OffsetSeqLog log, long batchId) {
    if (log == null) return null;
    Option entry = log.get(batchId);
    if (entry.isEmpty()) return null;
    ByteArrayOutputStream text = new ByteArrayOutputStream();
    log.serialize(entry.get(), text);
    return new String(text.toByteArray(), StandardCharsets.UTF_8);
  }

  public String toString() { return "DeltaSink[" + path + "]"; }
}
