package io.deltaflow.spark;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.execution.streaming.*;
import org.apache.spark.sql.streaming.OutputMode;

/** The sink of a streaming query: every micro-batch is one TableWrite. */
final class DeltaSink implements Sink {
  private final org.apache.spark.sql.classic.SparkSession session;
  private final String path;
  private final Map options;
  private final List partitionColumns;
  private final String outputMode;

  DeltaSink(org.apache.spark.sql.classic.SparkSession session, String path, Map options, List partitionColumns,
            OutputMode outputMode) {
    this.session = session;
    this.path = path;
    this.options = options;
    this.partitionColumns = partitionColumns;
    this.outputMode = outputMode.toString();
  }

  public void addBatch(long batchId, Dataset data) {
    Map request = new LinkedHashMap();
    request.put("kind", "stream");
    request.put("path", path);
    request.put("options", options);
    request.put("partitionBy", partitionColumns);
    request.put("outputMode", outputMode);
    request.put("queryId", session.sparkContext().getLocalProperty("sql.streaming.queryId"));
    request.put("batchId", Long.valueOf(batchId));
    // The batch carries its own incremental execution; the session of its plan is the stream's clone.
    TableWrite.run(((org.apache.spark.sql.classic.Dataset) data).sparkSession(), data, request);
  }

  public String toString() { return "DeltaSink[" + path + "]"; }
}
