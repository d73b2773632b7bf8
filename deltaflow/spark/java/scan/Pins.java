package io.deltaflow.spark.scan;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentMap;

import com.fasterxml.jackson.databind.JsonNode;
import com.google.common.collect.MapMaker;
import io.deltaflow.spark.bridge.Python;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * The versions that one query execution reads: one version of each table, however often the query scans it.
 *
 * They are kept by the execution's tracker, which a query and its subqueries share. Crossings into Python: 1 for each
 * table and schema of an execution.
 */
public final class Pins {
  private static final ConcurrentMap OF_EXECUTIONS = new MapMaker().weakKeys().makeMap();
  private final Map versions = new LinkedHashMap();
  private final Map answers = new LinkedHashMap();
  private final Map changes = new LinkedHashMap();
  private final Map deleted = new LinkedHashMap();

  private Pins() {}

  /** The pins of the execution that this thread optimizes; new ones if there is none. */
  public static Pins ofThisExecution() {
    Option tracker = QueryPlanningTracker.get();
    return tracker.isEmpty() ? new Pins() : of((QueryPlanningTracker) tracker.get());
  }

  public static Pins of(QueryPlanningTracker tracker) {
    Pins pins = new Pins();
    Pins earlier = (Pins) OF_EXECUTIONS.putIfAbsent(tracker, pins);
    return earlier == null ? pins : earlier;
  }

  /** From now on the execution reads this version of the table at the root. */
  public synchronized void readAt(String root, long version) { versions.put(root, Long.valueOf(version)); }

  /** The deletion vectors of a scan: the same object for all of the execution's scans like it. */
  public synchronized DeletionVectors deleted(String description, int vectors) {
    DeletionVectors found = (DeletionVectors) deleted.get(description);
    if (found == null) {
      found = new DeletionVectors(description, vectors);
      deleted.put(description, found);
    }
    return found;
  }

  /** The descriptions of all scans that were pinned, also of those that the optimizer has dropped since. */
  public synchronized List descriptions() {
    List descriptions = new ArrayList();
    for (Object answer : answers.values()) descriptions.add(((JsonNode) answer).get("scan").asText());
    return descriptions;
  }

  /**
   * Python's description of the scan at the version that this execution reads, or else at the newest one.
   *
   * schema: the one with which the query was analysed, which Python compares; null if it is unknown.
   */
  public synchronized JsonNode pin(String description, String root, StructType schema) {
    List key = new ArrayList();
    key.add(description);
    key.add(schema);
    JsonNode answer = (JsonNode) answers.get(key);
    if (answer == null) {
      Map request = new LinkedHashMap();
      request.put("scan", description);
      request.put("schema", schema == null ? null : schema.json());
      request.put("version", versions.get(root));
      answer = Python.call("scan.pin", request);
      versions.put(root, Long.valueOf(answer.get("version").asLong()));
      answers.put(key, answer);
    }
    return answer;
  }

  /** Python's scans with the change rows of a range, which ends at the version that this execution reads, at most. */
  public synchronized JsonNode changes(String description, String root) {
    JsonNode answer = (JsonNode) changes.get(description);
    if (answer == null) {
      Map request = new LinkedHashMap();
      request.put("scan", description);
      request.put("version", versions.get(root));
      answer = Python.call("changes.pin", request);
      versions.put(root, Long.valueOf(answer.get("version").asLong()));
      changes.put(description, answer);
    }
    return answer;
  }
}
