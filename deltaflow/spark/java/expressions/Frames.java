package io.deltaflow.spark.expressions;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.bridge.Settings;
import io.deltaflow.spark.scan.LiveRows;
import io.deltaflow.spark.scan.Relations;
import io.deltaflow.spark.sql.CachedFrames;
import io.deltaflow.spark.write.FileWrite;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.AliasIdentifier;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/**
 * What Python asks of Spark about frames for which PySpark has no words: scans, names, writes. See
 * deltaflow/spark/expressions/frames.py.
 */
public final class Frames {
  private Frames() {}

  /** The rows of a scan that Python describes. */
  public static Dataset scan(SparkSession session, String relation) {
    return org.apache.spark.sql.classic.Dataset.ofRows(
        session, LogicalRelation$.MODULE$.apply(Relations.of(session, Python.parse(relation)), false));
  }

  /**
   * A frame of filters and projections over a scan of a table, but over another one: CHAR columns are padded above it,
   * as Spark planned it. Columns that this scan alone has, the places of rows, are added to the frame.
   */
  public static Dataset scan(SparkSession session, String relation, Dataset like) {
    final HadoopFsRelation other = Relations.of(session, Python.parse(relation));
    final List added = new ArrayList();
    return org.apache.spark.sql.classic.Dataset.ofRows(
        session, (LogicalPlan) plan(like).transformUp(new AbstractPartialFunction() {
          public boolean isDefinedAt(Object node) {
            return node instanceof LogicalRelation || (node instanceof Project && !added.isEmpty());
          }

          public Object applyOrElse(Object node, scala.Function1 otherwise) {
            if (!isDefinedAt(node)) return otherwise.apply(node);
            if (node instanceof Project) {
              return new Project(with(((Project) node).projectList(), added), ((Project) node).child());
            }
            Seq output = ((LogicalRelation) node).output();
            added.addAll(LiveRows.places(other.schema()));
            return new LogicalRelation(other, with(output, added), Option.empty(), false, Option.empty());
          }
        }));
  }

  private static Seq with(Seq columns, List more) {
    List all = new ArrayList(CollectionConverters.asJava(columns));
    all.addAll(more);
    return Plans.seq(all);
  }

  /** The rows as those of a table of this name. */
  public static Dataset named(SparkSession session, Dataset rows, String table) {
    return named(session, rows, name(session, table));
  }

  public static Dataset named(SparkSession session, Dataset rows, AliasIdentifier name) {
    return org.apache.spark.sql.classic.Dataset.ofRows(session, named(name, plan(rows)));
  }

  /**
   * The name goes below the projection that fills up CHAR columns: on Spark 4.1 a name hides the scan's column
   * _metadata unless it is right above the scan.
   */
  private static LogicalPlan named(AliasIdentifier name, LogicalPlan rows) {
    if (!(rows instanceof Project) || !(((Project) rows).child() instanceof LogicalRelation)) {
      return new SubqueryAlias(name, rows);
    }
    SubqueryAlias scan = new SubqueryAlias(name, ((Project) rows).child());
    Seq qualifier = ((Attribute) scan.output().head()).qualifier();
    List columns = new ArrayList();
    for (Object column : CollectionConverters.asJava(((Project) rows).projectList())) {
      columns.add(column instanceof Alias ? qualified((Alias) column, qualifier)
                                          : ((Attribute) column).withQualifier(qualifier));
    }
    return new Project(Plans.seq(columns), scan);
  }

  private static Alias qualified(Alias column, Seq qualifier) {
    return new Alias(column.child(), column.name(), column.exprId(), qualifier, column.explicitMetadata(),
        column.nonInheritableMetadataKeys());
  }

  /** A name of SQL in its parts. */
  public static AliasIdentifier name(SparkSession session, String table) {
    try {
      Seq parts = session.sessionState().sqlParser().parseMultipartIdentifier(table);
      return new AliasIdentifier((String) parts.last(), (Seq) parts.init());
    } catch (ParseException e) {
      throw new IllegalStateException(e); // it was given out as one
    }
  }

  /**
   * The frame in a session of its own in which one task takes what a shuffle brings, in the job of the scan. The
   * caller's would need a job more (adaptive execution) or a task for each of spark.sql.shuffle.partitions.
   */
  public static Dataset withOneReducer(SparkSession session, Dataset frame) {
    SparkSession own = session.cloneSession();
    own.conf().set("spark.sql.shuffle.partitions", "1");
    own.conf().set("spark.sql.adaptive.enabled", "false");
    return org.apache.spark.sql.classic.Dataset.ofRows(own, plan(frame));
  }

  /**
   * Writes the rows by a write that Python keeps under a handle. An execution of its own: its tasks get the session's
   * settings. Returns the first value of each observation of the frame, as JSON.
   */
  public static String write(final SparkSession session, final Dataset rows, long write, String name) {
    final Map request = new LinkedHashMap();
    request.put("write", Long.valueOf(write));
    QueryExecution query = ((org.apache.spark.sql.classic.Dataset) rows).queryExecution();
    SQLExecution$.MODULE$.withNewExecutionId(query, Option.apply(name), new AbstractFunction0() {
      public Object apply() {
        FileWrite.run(session, rows, "frame", request);
        return BoxedUnit.UNIT;
      }
    });
    Map observed = new LinkedHashMap();
    Map found = CollectionConverters.asJava(query.observedMetrics());
    for (Object observation : found.keySet()) observed.put(observation, ((Row) found.get(observation)).get(0));
    return Python.json(observed);
  }

  /** What the session sets of Delta's own settings, as JSON. */
  public static String settings(SparkSession session) { return Python.json(Settings.ofDelta(session)); }

  /** What Spark has cached of the table is read anew. */
  public static void recache(SparkSession session, String path) { CachedFrames.readAnew(session, path); }

  /** The frame's analysed plan. */
  static LogicalPlan plan(Dataset frame) {
    return ((org.apache.spark.sql.classic.Dataset) frame).queryExecution().analyzed();
  }
}
