package io.deltaflow.spark.write;

import java.util.LinkedHashMap;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.bridge.Thrown;
import io.deltaflow.spark.scan.Relations;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.execution.streaming.*;
import org.apache.spark.sql.execution.streaming.runtime.*;
import scala.Option;
import scala.runtime.AbstractFunction0;
import scala.runtime.BoxedUnit;

/**
 * Rewrites of a table's files: Python has chosen the files, in bins, and commits; Spark reads and writes.
 *
 * Every bin is one task of a job and becomes one file; the last of a rewrite's jobs is followed by its commit.
 * Crossings into Python: 1 for a rewrite, 2 for a job, and those of its scans (1 or 2 for a bin).
 */
public final class Rewrites {
  private Rewrites() {}

  /** Runs a rewrite that Python keeps under the handle. */
  public static void run(SparkSession session, long handle, String rewrite) {
    JsonNode request = Python.parse(rewrite);
    while (!request.isNull()) {
      Outcome outcome = attempt(session, handle, request);
      if (outcome.failure != null) throw Thrown.asIs(outcome.failure);
      request = outcome.next;
    }
  }

  /**
   * Runs the rewrite that a commit gave rise to. What fails it fails no commit: that has happened. Only when
   * the caller is to stop does it stop here, too.
   */
  public static void afterCommit(SparkSession session, long handle, JsonNode rewrite) {
    JsonNode request = rewrite;
    while (!request.isNull()) {
      Outcome outcome = attempt(session, handle, request);
      Throwable failure = outcome.failure;
      if (failure instanceof Error || (failure != null && isStop(session, failure))) throw Thrown.asIs(failure);
      request = outcome.next;
    }
  }

  private static Outcome attempt(SparkSession session, long handle, JsonNode rewrite) {
    Outcome outcome = new Outcome();
    Map end = new LinkedHashMap();
    end.put("handle", Long.valueOf(handle));
    end.put("error", null);
    try {
      runJobs(session, handle, rewrite);
    } catch (Throwable e) {
      outcome.failure = e;
      if (!isStop(session, e)) end.put("error", String.valueOf(e.getMessage()));
    }
    outcome.next = Python.callToTheEnd("rewrite.end", end).get("rewrite");
    return outcome;
  }

  /** Whether it is what Spark takes for the clean stop of a query. */
  private static boolean isStop(SparkSession session, Throwable failure) {
    return StreamExecution$.MODULE$.isInterruptionException(failure, session.sparkContext());
  }

  private static final class Outcome {
    Throwable failure;
    JsonNode next;
  }

  private static void runJobs(SparkSession session, long handle, JsonNode rewrite) {
    // A session of its own, for the settings that a rewrite needs.
    final SparkSession own = session.cloneSession();
    Map settings = Python.strings(rewrite.get("settings"));
    for (Object name : settings.keySet()) own.conf().set((String) name, (String) settings.get(name));
    for (JsonNode scans : rewrite.get("jobs")) {
      Dataset bins = null;
      for (JsonNode scan : scans) {
        JsonNode relation = ((ObjectNode) rewrite.get("relation").deepCopy()).put("scan", scan.asText());
        Dataset bin = org.apache.spark.sql.classic.Dataset.ofRows(own,
            LogicalRelation$.MODULE$.apply(Relations.of(own, relation), false)).coalesce(1);
        bins = bins == null ? bin : bins.union(bin);
      }
      final Dataset rows = bins;
      final Map request = new LinkedHashMap();
      request.put("kind", "rewrite");
      request.put("rewrite", Long.valueOf(handle));
      QueryExecution query = ((org.apache.spark.sql.classic.Dataset) rows).queryExecution();
      // An execution of its own: its tasks get the session's settings, and a stream's metrics are not mixed
      // with those of this query.
      SQLExecution$.MODULE$.withNewExecutionId(query, Option.apply("rewrite"), new AbstractFunction0() {
        public Object apply() {
          TableWrite.run(own, rows, request);
          return BoxedUnit.UNIT;
        }
      });
    }
  }
}
