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
 * The versions that one query execution reads: every table at one, however often the query scans it.
 *
 * Kept by the execution's tracker, which is the same for the optimizer's runs over a query and its
 * subqueries. Crossings into Python: 1 for each table and schema of an execution.
 */
public final class Pins {
  private static final ConcurrentMap OF_EXECUTIONS = new MapMaker().weakKeys().makeMap();
  private final Map versions = new LinkedHashMap();
  private final Map answers = new LinkedHashMap();

  private Pins() {}

  /** Those of the execution that is being optimized on this thread; without one, of nothing else. */
  public static Pins ofThisExecution() {
    Option tracker = QueryPlanningTracker.get();
    return tracker.isEmpty() ? new Pins() : of((QueryPlanningTracker) tracker.get());
  }

  public static Pins of(QueryPlanningTracker tracker) {
    Pins pins = new Pins();
    Pins earlier = (Pins) OF_EXECUTIONS.putIfAbsent(tracker, pins);
    return earlier == null ? pins : earlier;
  }

  /** The descriptions of the scans that were pinned, those that the optimizer dropped later included. */
  public synchronized List descriptions() {
    List descriptions = new ArrayList();
    for (Object answer : answers.values()) descriptions.add(((JsonNode) answer).get("scan").asText());
    return descriptions;
  }

  /**
   * What Python says of the newest version, or of the one that this execution reads already.
   *
   * schema: that with which the query was analysed, which Python compares; null where nobody knows.
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
}
