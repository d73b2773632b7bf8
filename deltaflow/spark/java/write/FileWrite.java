package io.deltaflow.spark.write;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;

import com.fasterxml.jackson.databind.JsonNode;
import io.deltaflow.spark.bridge.Metrics;
import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.bridge.Settings;
import io.deltaflow.spark.expressions.Plans;
import io.deltaflow.spark.expressions.Rebound;
import io.deltaflow.spark.scan.CachedScans;
import io.deltaflow.spark.scan.ColumnMapping;
import io.deltaflow.spark.scan.PinScans;
import io.deltaflow.spark.scan.Pins;
import io.deltaflow.spark.scan.TableScan;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.Job;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.Length;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.CollectMetrics;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.FileFormatWriter;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.streaming.*;
import org.apache.spark.sql.execution.streaming.sinks.*;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction0;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * One write into a table, by a batch or by a micro-batch of a stream.
 *
 * Python begins it: it decides whether, where and with which columns the rows are written. Spark's own Parquet
 * writer writes the files on the caller's thread. Python commits them. Crossings into Python: 2, and 1 if a
 * compaction follows the commit.
 */
public final class FileWrite {
  private static final ConcurrentHashMap SESSIONS = new ConcurrentHashMap();
  private static final ConcurrentHashMap CONDITIONS = new ConcurrentHashMap();

  private FileWrite() {}

  /** For Python: the session of a running write; null if the write is over. */
  public static org.apache.spark.sql.classic.SparkSession session(long handle) {
    return (org.apache.spark.sql.classic.SparkSession) SESSIONS.get(Long.valueOf(handle));
  }

  /** For Python: the condition of a running write's statement, over a frame. */
  public static Column condition(long handle, Dataset rows) {
    LogicalPlan plan = ((org.apache.spark.sql.classic.Dataset) rows).queryExecution().analyzed();
    return ExpressionUtils.column(condition(handle, plan));
  }

  static Expression condition(long handle, LogicalPlan rows) {
    return Rebound.on(rows, (Expression) CONDITIONS.get(Long.valueOf(handle)));
  }

  /** As below, without a condition. */
  public static boolean run(org.apache.spark.sql.classic.SparkSession session, Dataset data, String name, Map request) {
    return run(session, data, name, request, null);
  }

  /**
   * Runs the write, which Python begins by write.begin.`name`. request: the fields of that method's request, which
   * this method completes. condition: on the rows that are replaced, if a statement has one. Returns false if Python
   * answers that there is nothing to write.
   */
  public static boolean run(final org.apache.spark.sql.classic.SparkSession session, Dataset data, final String name,
      final Map request, final Expression condition) {
    final QueryExecution query = ((org.apache.spark.sql.classic.Dataset) data).queryExecution();
    // A micro-batch has an execution already.
    if (name.equals("stream")) return run(session, query, name, request, condition);
    // Whoever waits for what the rows are observed by, waits for the end of an execution.
    boolean isObserved = query.analyzed().exists(new AbstractFunction1() {
      public Object apply(Object plan) { return Boolean.valueOf(plan instanceof CollectMetrics); }
    });
    if (!isObserved) return run(session, query, name, request, condition);
    return ((Boolean) SQLExecution$.MODULE$.withNewExecutionId(query, Option.apply("write"), new AbstractFunction0() {
      public Object apply() { return Boolean.valueOf(run(session, query, name, request, condition)); }
    })).booleanValue();
  }

  private static boolean run(org.apache.spark.sql.classic.SparkSession session, QueryExecution query, String name,
      Map request, Expression condition) {
    Long handle = Long.valueOf(Python.newHandle());
    request.put("handle", handle);
    request.put("schema", query.analyzed().schema().json());
    request.put("settings", Settings.ofDelta(session));
    request.put("partitionOverwriteMode",
        session.sessionState().conf().getConfString("spark.sql.sources.partitionOverwriteMode", "static"));
    request.put("storeAssignmentPolicy", session.sessionState().conf().storeAssignmentPolicy().toString());
    request.put("scans", scans(query));
    request.put("hasCondition", Boolean.valueOf(condition != null));
    boolean ended = false;
    boolean skipped;
    boolean isFollowed = false;
    Map commit = new LinkedHashMap();
    commit.put("handle", handle);
    commit.put("files", null);
    commit.put("quarantined", null);
    Quarantine quarantine = null;
    SESSIONS.put(handle, session);
    if (condition != null) CONDITIONS.put(handle, condition);
    try {
      JsonNode begun = Python.call("write.begin." + name, request);
      JsonNode plan = begun.get("target");
      skipped = plan.isNull();
      if (begun.get("isRepeated").asBoolean()) Metrics.repeatedWrite();
      if (!skipped) {
        // The analysis raises its errors here, before a file is written.
        RowChanges rows = null;
        SparkPlan given = Plans.withDistinctIds(query.executedPlan());
        JsonNode target = begun.get("quarantine");
        if (target.isNull() || plan.get("castSchema").isNull()) {
          commit.put("quarantined", new ArrayList());
          rows = new RowChanges(session, given, plan);
        } else {
          quarantine = new Quarantine(session, given, plan, target);
          quarantine.judge();
          RowChanges refused = quarantine.refused();
          commit.put("quarantined", write(session, refused.plan(), refused.columns(), target, handle));
        }
        commit.put("files",
            quarantine == null ? write(session, rows.plan(), rows.columns(), plan, handle)
                               : write(session, quarantine.accepted(), quarantine.columns(), plan, handle));
        if (quarantine != null) checkJudgedOnce(quarantine, handle);
        isFollowed = Python.call("write.commit", commit).get("isFollowed").asBoolean();
      }
      for (JsonNode setting : begun.get("settingsToUnset")) session.conf().unset(setting.asText());
      if (isFollowed) Python.call("write.followUp", Collections.singletonMap("handle", handle));
      ended = true;
    } finally {
      SESSIONS.remove(handle);
      CONDITIONS.remove(handle);
      if (quarantine != null) quarantine.close();
      if (!ended) {
        // Python forgets the write and removes its files. After this call no commit of the write, or of its
        // follow-up, can appear.
        Python.callToTheEnd("write.abort", commit);
      }
    }
    return !skipped;
  }

  /** Python raises its error if the two writes may have divided the rows in two ways. */
  private static void checkJudgedOnce(Quarantine quarantine, Long handle) {
    int parts = quarantine.partsJudgedTwice();
    if (parts == 0) return;
    Map request = new LinkedHashMap();
    request.put("handle", handle);
    request.put("parts", Integer.valueOf(parts));
    Python.call("write.judgedTwice", request);
  }

  /** Writes rows into the table's folder; returns the files. */
  private static List write(
      org.apache.spark.sql.classic.SparkSession session, SparkPlan rows, List named, JsonNode plan, Long handle) {
    String root = plan.get("path").asText();
    ColumnMapping mapping = ColumnMapping.of(plan.get("mapping"));
    List columns = mapping == null ? named : mapping.physical(named);
    List partitionColumns = new ArrayList();
    for (JsonNode name : plan.get("partitionColumns")) {
      for (int i = 0; i < columns.size(); i++) {
        if (((Attribute) named.get(i)).name().equals(name.asText())) partitionColumns.add(columns.get(i));
      }
    }
    if (plan.get("keepsPartitionColumns").asBoolean()) {
      // Spark leaves the columns out of the files by which it makes folders: it gets copies of them. It makes null of
      // an empty string there, and so the file has null, too.
      List output = new ArrayList(CollectionConverters.asJava(rows.output()));
      List all = new ArrayList(columns);
      for (int i = 0; i < partitionColumns.size(); i++) {
        Attribute column = (Attribute) partitionColumns.get(i);
        int index = columns.indexOf(column);
        Attribute value = (Attribute) output.get(index);
        if (value.dataType() instanceof StringType) {
          Expression zero = Literal.create(Integer.valueOf(0), DataTypes.IntegerType);
          Expression isEmpty = new EqualTo(new Length(value), zero);
          Expression orNull = new If(isEmpty, Literal.create(null, value.dataType()), value);
          output.set(index, Plans.alias(orNull, value.name(), value.exprId()));
        }
        Alias copy = Plans.alias(value, column.name());
        output.add(copy);
        all.add(copy.toAttribute());
        partitionColumns.set(i, copy.toAttribute());
      }
      rows = new ProjectExec(Plans.seq(output), rows);
      columns = all;
    }
    scala.collection.immutable.Map scalaOptions =
        scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(Python.strings(plan.get("options"))));
    Written written = Written.create(session);
    ManifestFileCommitProtocol committer = new ManifestFileCommitProtocol(UUID.randomUUID().toString(), root);
    committer.setupManifestOptions(written, 0L);
    Configuration hadoopConf = session.sessionState().newHadoopConfWithOptions(scalaOptions);
    Object outputSpec = new FileFormatWriter.OutputSpec(
        root, scala.collection.immutable.Map$.MODULE$.empty(), CollectionConverters.asScala(columns).toList());
    List arguments = new ArrayList(Arrays.asList(new Object[] {session, rows, new BoundedParquet(), committer,
        outputSpec, hadoopConf, CollectionConverters.asScala(partitionColumns).toList(), Option.empty(),
        CollectionConverters.asScala(new ArrayList()).toList(), scalaOptions, Integer.valueOf(0)}));
    Method write = fileFormatWriterWrite();
    if (write.getParameterTypes().length == 12) arguments.add(new Nothing());
    // Tasks take settings from these properties. Dates are always written in the proleptic Gregorian calendar: only
    // Spark knows the mark in the footers of files that use the Julian one.
    String calendar = session.sparkContext().getLocalProperty(CALENDAR);
    session.sparkContext().setLocalProperty(CALENDAR, "CORRECTED");
    try {
      arguments.set(1, OptimizedWrite.over(session, rows, columns, partitionColumns, plan));
      write.invoke(org.apache.spark.sql.execution.datasources.FileFormatWriter$.MODULE$, arguments.toArray());
    } catch (InvocationTargetException e) {
      throw Violations.found(e.getCause(), handle);
    } catch (IllegalAccessException e) {
      throw new IllegalStateException(e);
    } finally {
      session.sparkContext().setLocalProperty(CALENDAR, calendar);
    }
    return written.files;
  }

  private static final String CALENDAR = "spark.sql.parquet.datetimeRebaseModeInWrite";

  /**
   * The descriptions of the scans of Delta tables in the query and its subqueries. A scan of the newest version is
   * described with the version that this execution reads.
   */
  public static List scans(QueryExecution query) {
    List plans = new ArrayList();
    plans.add(query.analyzed());
    for (Object subquery : CollectionConverters.asJava(query.analyzed().subqueriesAll())) plans.add(subquery);
    List descriptions = new ArrayList();
    boolean newest = false;
    for (Object part : plans) {
      for (Object leaf : CollectionConverters.asJava(((LogicalPlan) part).collectLeaves())) {
        TableScan scan = PinScans.scan(leaf);
        if (scan == null) continue;
        if (scan.isPinned()) descriptions.add(scan.description());
        else newest = true;
      }
    }
    if (newest) {
      query.optimizedPlan();
      descriptions.addAll(Pins.of(query.tracker()).descriptions());
      CachedScans.addTo(descriptions, query.withCachedData());
    }
    return descriptions;
  }

  /** FileFormatWriter.write has 11 parameters in Spark 4.0 and 12 since; the first 11 are the same. */
  private static Method fileFormatWriterWrite() {
    for (Method method : org.apache.spark.sql.execution.datasources.FileFormatWriter$.class.getMethods()) {
      int count = method.getParameterTypes().length;
      if (method.getName().equals("write") && (count == 11 || count == 12)) return method;
    }
    throw new IllegalStateException("FileFormatWriter.write of this Spark has an unknown form");
  }

  /**
   * Parquet files whose footers have more bounds than Spark's defaults give: timestamps are TIMESTAMP_MICROS instead
   * of INT96, and the bounds of long strings are truncated instead of dropped together with the null count. They have
   * the ids of columns that are mapped by id, whatever the session says: without them, no reader could read the table.
   */
  private static final class BoundedParquet extends ParquetFileFormat {
    public OutputWriterFactory prepareWrite(
        org.apache.spark.sql.SparkSession session, Job job, scala.collection.immutable.Map options, StructType schema) {
      OutputWriterFactory factory = super.prepareWrite(session, job, options, schema);
      job.getConfiguration().set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS");
      job.getConfiguration().set("spark.sql.parquet.fieldId.write.enabled", "true");
      job.getConfiguration().setIfUnset("parquet.statistics.truncate.length", "256");
      return factory;
    }
  }

  private static final class Nothing extends AbstractFunction0 {
    public Object apply() { return BoxedUnit.UNIT; }

    public void apply$mcV$sp() {}
  }

  /**
   * The manifest of Spark's commit protocol, kept in memory. Spark adds the files of each committed task once, and
   * never those of failed tasks.
   */
  private static final class Written extends FileStreamSinkLog {
    final List files = new ArrayList();

    private Written(org.apache.spark.sql.classic.SparkSession session, String directory) {
      super(1, session, directory, Option.empty());
    }

    /** The log's constructor makes its directory, so it gets an empty one, which is removed at once. */
    static Written create(org.apache.spark.sql.classic.SparkSession session) {
      try {
        java.nio.file.Path directory = Files.createTempDirectory("deltaflow-");
        try {
          return new Written(session, "file:" + directory);
        } finally {
          Files.delete(directory);
        }
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    public boolean add(long batchId, Object[] statuses) {
      for (Object status : statuses) {
        SinkFileStatus file = (SinkFileStatus) status;
        files.add(Arrays.asList(
            new Object[] {file.path(), Long.valueOf(file.size()), Long.valueOf(file.modificationTime())}));
      }
      return true;
    }
  }
}
