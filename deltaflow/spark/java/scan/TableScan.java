package io.deltaflow.spark.scan;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import io.deltaflow.spark.bridge.Python;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.Predicate;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The files of one scan: those of a version of a table, which is fixed or the newest at each execution, or those that
 * a stream reads between two offsets.
 *
 * It has a description of the scan (JSON: path, table id, version or offsets) and no list of files: Spark asks for the
 * files at planning time, and Python answers from the log. Scans with the same description are equal, which plan
 * caching and self-joins rely on.
 *
 * Crossings into Python for one plan: 1 for an unpartitioned table, 2 for a partitioned one, and that of Pins.
 */
public final class TableScan implements FileIndex {
  private final String root;
  private final String description;
  private final StructType partitionSchema;
  private final long sizeInBytes;
  private final String timeZone;
  private final boolean pinned;
  private final ColumnMapping mapping;
  private int limit = Integer.MAX_VALUE;
  private InternalRow[] partitions;

  /** mapping: that of the table's columns; null if the table is not mapped. */
  public TableScan(String root, String description, StructType partitionSchema, long sizeInBytes, String timeZone,
      boolean pinned, ColumnMapping mapping) {
    this.root = root;
    this.description = description;
    this.partitionSchema = partitionSchema;
    this.sizeInBytes = sizeInBytes;
    this.timeZone = timeZone;
    this.pinned = pinned;
    this.mapping = mapping;
  }

  /** Whether the version is fixed. If not, it is the newest at each execution (see PinScans). */
  public boolean isPinned() { return pinned; }

  /** This scan at the version that an execution reads. schema: the one of the analysed query, or null. */
  public TableScan pinned(Pins pins, StructType schema) {
    if (pinned) return this;
    JsonNode answer = pins.pin(description, root, schema);
    StructType partitionColumns = (StructType) DataType.fromJson(answer.get("partitionSchema").asText());
    return new TableScan(root, answer.get("scan").asText(), partitionColumns, answer.get("sizeInBytes").asLong(),
        timeZone, true, ColumnMapping.of(answer.get("mapping")));
  }

  /** This scan at the newest version, for callers that list files without the optimizer. */
  private TableScan pinned() { return pinned(Pins.ofThisExecution(), null); }

  /** Spark's reader of the files, which finds the table's columns in them. */
  public ParquetFileFormat format() { return mapping == null ? new ParquetFileFormat() : new MappedParquet(mapping); }

  /** Whether the scan has no limit to so many rows yet. */
  public boolean needsFewer(int rows) { return rows < limit; }

  /** This scan for a query that needs only so many rows of it, in any order. */
  public TableScan limitedTo(int rows) {
    TableScan limited = new TableScan(root, description, partitionSchema, sizeInBytes, timeZone, pinned, mapping);
    limited.limit = rows;
    return limited;
  }

  /**
   * The values of aggregate functions over the rows of the partitions that the filters keep; null if the statistics
   * do not give them exactly.
   */
  public JsonNode aggregates(Seq partitionFilters, List functions) {
    Map request = new LinkedHashMap();
    request.put("scan", description);
    request.put("partitions", selected(partitionFilters));
    request.put("functions", functions);
    JsonNode values = Python.call("scan.aggregates", request).get("values");
    return values.isNull() ? null : values;
  }

  /**
   * There are two roots because Spark's analysis refuses to insert into a relation with more than one. An INSERT into
   * a view over this scan would write and delete files without a commit in the log.
   */
  public Seq rootPaths() {
    List paths = new ArrayList();
    paths.add(new Path(root));
    paths.add(new Path(root, "_delta_log"));
    return CollectionConverters.asScala(paths).toList();
  }

  public String description() { return description; }

  public StructType partitionSchema() { return partitionSchema; }

  public long sizeInBytes() { return sizeInBytes; }

  /** Has nothing to do: the scan keeps nothing that a later commit could change. */
  public void refresh() {}

  public String[] inputFiles() {
    if (!pinned) return pinned().inputFiles();
    List paths = new ArrayList();
    for (Object directory : files(null, null, limit)) {
      for (FileStatus file : ((Listed) directory).files()) paths.add(file.getPath().toUri().toString());
    }
    return (String[]) paths.toArray(new String[0]);
  }

  public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
    if (!pinned) return pinned().listFiles(partitionFilters, dataFilters);
    List directories = new ArrayList();
    for (Object directory : files(selected(partitionFilters), Filters.toJson(dataFilters),
             dataFilters.isEmpty() ? limit : Integer.MAX_VALUE)) {
      Listed listed = (Listed) directory;
      directories.add(PartitionDirectory.apply(listed.values, listed.files()));
    }
    return CollectionConverters.asScala(directories).toList();
  }

  /** The numbers of the partitions that the filters keep; null for all. */
  public List selected(Seq partitionFilters) {
    if (partitionSchema.isEmpty() || partitionFilters.isEmpty()) return null;
    Expression condition = null;
    for (Object filter : CollectionConverters.asJava(partitionFilters)) {
      condition = condition == null ? (Expression) filter : new And(condition, (Expression) filter);
    }
    BasePredicate keeps = Predicate.create(condition, partitionAttributes(condition));
    List kept = new ArrayList();
    InternalRow[] rows = partitions();
    for (int i = 0; i < rows.length; i++) {
      if (keeps.eval(rows[i])) kept.add(Integer.valueOf(i));
    }
    return kept;
  }

  /** The partition columns as the filter refers to them; a column that it does not use gets a new id. */
  private Seq partitionAttributes(Expression condition) {
    Map mentioned = new HashMap();
    for (Object attribute : CollectionConverters.asJava(condition.references().toSeq())) {
      mentioned.put(((Attribute) attribute).name(), attribute);
    }
    List attributes = new ArrayList();
    for (StructField field : partitionSchema.fields()) {
      Object attribute = mentioned.get(field.name());
      attributes.add(attribute != null
              ? attribute
              : new AttributeReference(field.name(), field.dataType(), true, Metadata.empty(),
                    NamedExpression.newExprId(), CollectionConverters.asScala(new ArrayList()).toList()));
    }
    return CollectionConverters.asScala(attributes).toList();
  }

  /** The values of every partition, as Spark's types. */
  private synchronized InternalRow[] partitions() {
    if (partitions == null) {
      if (partitionSchema.isEmpty()) {
        partitions = new InternalRow[] {InternalRow.empty()};
      } else {
        Map request = new LinkedHashMap();
        request.put("scan", description);
        request.put("timestamps", timestampColumns());
        request.put("timeZone", DateTimeUtils.getZoneId(timeZone).getId());
        partitions = readPartitions(Python.callForBytes("scan.partitions", request));
      }
    }
    return partitions;
  }

  private List timestampColumns() {
    List names = new ArrayList();
    for (StructField field : partitionSchema.fields()) {
      if (field.dataType() instanceof TimestampType) names.add(field.name());
    }
    return names;
  }

  private InternalRow[] readPartitions(byte[] arrow) {
    BufferAllocator allocator = ArrowUtils.rootAllocator().newChildAllocator("deltaflow", 0, Long.MAX_VALUE);
    ArrowStreamReader reader = new ArrowStreamReader(new ByteArrayInputStream(arrow), allocator);
    try {
      List rows = new ArrayList();
      VectorSchemaRoot batch = reader.getVectorSchemaRoot();
      StructField[] fields = partitionSchema.fields();
      while (reader.loadNextBatch()) {
        for (int row = 0; row < batch.getRowCount(); row++) {
          Object[] values = new Object[fields.length];
          for (int column = 0; column < fields.length; column++) {
            VarCharVector vector = (VarCharVector) batch.getVector(column);
            values[column] = vector.isNull(row) ? null : typed(vector.get(row), fields[column]);
          }
          rows.add(new GenericInternalRow(values));
        }
      }
      return (InternalRow[]) rows.toArray(new InternalRow[0]);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } finally {
      close(reader, allocator);
    }
  }

  /**
   * A partition value of the log as Spark's type; the empty string is null (PROTOCOL.md, "Partition Value
   * Serialization"). Python has converted timestamps to microseconds.
   */
  private Object typed(byte[] value, StructField field) {
    if (value.length == 0) return null;
    UTF8String string = UTF8String.fromBytes(value);
    if (field.dataType() instanceof StringType) return string;
    if (field.dataType() instanceof TimestampType) return Long.valueOf(string.toString());
    Expression literal = new Literal(string, org.apache.spark.sql.types.DataTypes.StringType);
    // Null if the type has no such value, whatever the session's ANSI mode.
    Object typed = new Cast(literal, field.dataType(), scala.Option.apply(timeZone), EvalMode$.MODULE$.TRY())
                       .eval(InternalRow.empty());
    if (typed == null) {
      Map request = new LinkedHashMap();
      request.put("scan", description);
      request.put("column", field.name());
      request.put("type", field.dataType().sql());
      request.put("value", new String(value, StandardCharsets.UTF_8));
      Python.call("scan.badPartitionValue", request);
    }
    return typed;
  }

  /**
   * The files of the selected partitions (null: of all) that may have rows for which the predicate is true (null: any),
   * with an entry for each partition that has files; only as many files as are sure to have so many rows.
   */
  private List files(List selected, Map predicate, int rows) {
    Map request = new LinkedHashMap();
    request.put("scan", description);
    request.put("partitions", selected);
    request.put("predicate", predicate);
    request.put("limit", rows == Integer.MAX_VALUE ? null : Integer.valueOf(rows));
    InternalRow[] values = partitions();
    BufferAllocator allocator = ArrowUtils.rootAllocator().newChildAllocator("deltaflow", 0, Long.MAX_VALUE);
    ArrowStreamReader reader =
        new ArrowStreamReader(new ByteArrayInputStream(Python.callForBytes("scan.files", request)), allocator);
    try {
      Map listed = new LinkedHashMap();
      VectorSchemaRoot batch = reader.getVectorSchemaRoot();
      while (reader.loadNextBatch()) {
        IntVector partition = (IntVector) batch.getVector("partition");
        VarCharVector path = (VarCharVector) batch.getVector("path");
        BigIntVector size = (BigIntVector) batch.getVector("size");
        BigIntVector modified = (BigIntVector) batch.getVector("modificationTime");
        for (int row = 0; row < batch.getRowCount(); row++) {
          Integer number = Integer.valueOf(partition.get(row));
          Listed directory = (Listed) listed.get(number);
          if (directory == null) {
            directory = new Listed(values[number.intValue()]);
            listed.put(number, directory);
          }
          Path file = new Path(new String(path.get(row), StandardCharsets.UTF_8));
          directory.statuses.add(new FileStatus(size.get(row), false, 1, BLOCK_BYTES, modified.get(row), file));
        }
      }
      return new ArrayList(listed.values());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } finally {
      close(reader, allocator);
    }
  }

  /** Only a hint for locality, which the log does not know. */
  private static final long BLOCK_BYTES = 128L << 20;

  private static void close(ArrowStreamReader reader, BufferAllocator allocator) {
    try {
      reader.close();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } finally {
      allocator.close();
    }
  }

  private static final class Listed {
    final InternalRow values;
    final List statuses = new ArrayList();

    Listed(InternalRow values) { this.values = values; }

    FileStatus[] files() { return (FileStatus[]) statuses.toArray(new FileStatus[0]); }
  }

  public boolean equals(Object other) {
    return other instanceof TableScan && description.equals(((TableScan) other).description)
        && limit == ((TableScan) other).limit;
  }

  public int hashCode() { return description.hashCode(); }

  public String toString() { return "deltaflow" + description; }
}
