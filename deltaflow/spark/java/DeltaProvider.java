package io.deltaflow.spark;

import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentMap;

import com.fasterxml.jackson.databind.JsonNode;
import com.google.common.collect.MapMaker;
import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.bridge.Settings;
import io.deltaflow.spark.scan.DeltaSource;
import io.deltaflow.spark.scan.Relations;
import io.deltaflow.spark.scan.SourceFilter;
import io.deltaflow.spark.scan.StreamMetadata;
import io.deltaflow.spark.sql.CachedFrames;
import io.deltaflow.spark.sql.Callers;
import io.deltaflow.spark.write.DeltaSink;
import io.deltaflow.spark.write.FileWrite;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.streaming.*;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.RelationProvider;
import org.apache.spark.sql.sources.StreamSinkProvider;
import org.apache.spark.sql.sources.StreamSourceProvider;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The format "delta", which Spark calls for load, save, readStream and writeStream. */
public final class DeltaProvider implements RelationProvider, CreatableRelationProvider, StreamSourceProvider,
                                            StreamSinkProvider, DataSourceRegister, TableProvider {
  /**
   * Python's answers with which streams were defined, by the maps of their options, which are compared by identity:
   * Spark passes the same map when the query starts, though to another instance of this class.
   */
  private static final ConcurrentMap DEFINED = new MapMaker().weakKeys().makeMap();

  public String shortName() { return "delta"; }

  /** Python says which types a table can have. Spark's own list lacks VARIANT. */
  public boolean supportsDataType(DataType type) { return true; }

  /** The format's name in Spark's own messages. */
  public String toString() { return "delta"; }

  // spark.read.format("delta").load(path)
  public BaseRelation createRelation(SQLContext context, scala.collection.immutable.Map options) {
    return Relations.read(session(context), request(options));
  }

  // df.write.format("delta").save(path)
  public BaseRelation createRelation(
      SQLContext context, SaveMode mode, scala.collection.immutable.Map options, Dataset data) {
    Map request = request(options);
    request.put("mode", mode.name());
    request.put("byPosition", null);
    FileWrite.run(session(context), data, "batch", request);
    CachedFrames.readAnew(session(context), (String) request.get("path"));
    // Spark would look in its cache for this relation.
    return new WrittenRelation(context, data.schema());
  }

  // readStream.format("delta"), when the query is defined
  public Tuple2 sourceSchema(
      SQLContext context, Option schema, String provider, scala.collection.immutable.Map options) {
    Map request = request(options);
    request.put("settings", Settings.ofDelta(session(context)));
    request.put("userSchema", schema.isEmpty() ? null : ((StructType) schema.get()).json());
    JsonNode answer = Python.call("source.schema", request);
    DEFINED.put(options, answer);
    StructType found = (StructType) DataType.fromJson(answer.get("schema").asText());
    StreamMetadata.define(found, answer.get("rowIds"));
    return new Tuple2("delta", found);
  }

  // readStream.format("delta"), when the query starts
  public Source createSource(
      SQLContext context, String metadataPath, Option schema, String provider, scala.collection.immutable.Map options) {
    Map request = request(options);
    request.put("metadataPath", metadataPath);
    JsonNode defined = (JsonNode) DEFINED.get(options);
    request.put("defined", defined == null ? null : defined.toString());
    request.put("settings", Settings.ofDelta(session(context)));
    SourceFilter filter = SourceFilter.of(
        session(context), (Map) request.get("options"), defined == null ? null : defined.get("schema").asText());
    request.put("sourceFilter", filter == null ? null : filter.found());
    return new DeltaSource(session(context), filter, Python.call("source.start", request));
  }

  // writeStream.format("delta")
  public Sink createSink(
      SQLContext context, scala.collection.immutable.Map options, Seq partitionColumns, OutputMode outputMode) {
    Map request = request(options);
    List columns = CollectionConverters.asJava(partitionColumns);
    request.put("outputMode", outputMode.toString());
    boolean hasTable = Python.call("sink.open", request).get("hasTable").asBoolean();
    return new DeltaSink(
        session(context), (String) request.get("path"), (Map) request.get("options"), columns, outputMode, hasTable);
  }

  private static Map request(scala.collection.immutable.Map options) {
    Map all = new HashMap(CollectionConverters.asJava(options));
    all.values().removeAll(Collections.singleton(null)); // option(name, None) sets nothing
    Map request = new LinkedHashMap();
    request.put("path", new CaseInsensitiveStringMap(all).get("path"));
    request.put("options", all);
    return request;
  }

  private static SparkSession session(SQLContext context) { return (SparkSession) context.sparkSession(); }

  // As a TableProvider, the format goes through the session catalog in SQL, and so to DeltaCatalog. The provider's own
  // table has no capabilities, so that Spark uses the interfaces above for paths.

  public StructType inferSchema(CaseInsensitiveStringMap options) { return new StructType(); }

  public boolean supportsExternalMetadata() { return Callers.isStreamReader(); }

  public Table getTable(StructType schema, Transform[] partitioning, Map properties) { return new NoTable(schema); }

  private static final class NoTable implements Table {
    private final StructType schema;

    NoTable(StructType schema) { this.schema = schema; }

    public String name() { return "delta"; }

    public StructType schema() { return schema; }

    public Set capabilities() { return Collections.emptySet(); }
  }

  private static final class WrittenRelation extends BaseRelation {
    private final SQLContext context;
    private final StructType schema;

    WrittenRelation(SQLContext context, StructType schema) {
      this.context = context;
      this.schema = schema;
    }

    public SQLContext sqlContext() { return context; }

    public StructType schema() { return schema; }
  }
}
