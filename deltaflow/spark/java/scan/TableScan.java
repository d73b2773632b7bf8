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
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
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
  private final RowIdColumns rowIdColumns;
  /** null if the scan is not one of a stream. */
  private final ReadFunctions functions;
  /** How many files have deletion vectors; -1 if that is not known. */
  private int vectors;
  private int limit = Integer.MAX_VALUE;
  /** For a scan under LiveRows: the column with the number of a file's vector, and the vectors. */
  private String vectorColumn;
  private DeletionVectors deleted;
  private InternalRow[] partitions;
  /** Whether Spark gets the row ids of the files. */
  private boolean rowIds;

  /**
   * mapping: that of the table's columns; null if the table is not mapped. rowIdColumns: null if the table has no row
   * tracking. vectors: -1 if that is not known. functions: those that a stream keeps; else null.
   */
  public TableScan(String root, String description, StructType partitionSchema, long sizeInBytes, String timeZone,
      boolean pinned, ColumnMapping mapping, RowIdColumns rowIdColumns, int vectors, ReadFunctions functions) {
    this.root = root;
    this.description = description;
    this.partitionSchema = partitionSchema;
    this.sizeInBytes = sizeInBytes;
    this.timeZone = timeZone;
    this.pinned = pinned;
    this.mapping = mapping;
    this.rowIdColumns = rowIdColumns;
    this.vectors = vectors;
    this.functions = functions;
  }

  private TableScan copy() {
    TableScan copy = new TableScan(
        root, description, partitionSchema, sizeInBytes, timeZone, pinned, mapping, rowIdColumns, vectors, functions);
    copy.limit = limit;
    copy.vectorColumn = vectorColumn;
    copy.deleted = deleted;
    copy.rowIds = rowIds;
    return copy;
  }

  /** Whether the version is fixed. If not, it is the newest at each execution (see PinScans). */
  public boolean isPinned() { return pinned; }

  /** This scan at the version that an execution reads. schema: the one of the analysed query, or null. */
  public TableScan pinned(Pins pins, StructType schema) {
    if (pinned) return this;
    JsonNode answer = pins.pin(description, root, schema);
    StructType partitionColumns = (StructType) DataType.fromJson(answer.get("partitionSchema").asText());
    TableScan found = new TableScan(root, answer.get("scan").asText(), partitionColumns,
        answer.get("sizeInBytes").asLong(), timeZone, true, ColumnMapping.of(answer.get("mapping")),
        RowIdColumns.of(answer.get("rowIds")), answer.get("vectors").asInt(), functions);
    if (rowIds && !rowIdColumns.isSame(found.rowIdColumns)) {
      throw new IllegalStateException("The table " + root + " had row tracking when this query was analysed, and has "
          + "none, or another one, in the version that it reads. Load the table again.");
    }
    found.rowIds = rowIds;
    return found;
  }

  /** This scan at the newest version, for callers that list files without the optimizer. */
  private TableScan pinned() { return pinned(Pins.ofThisExecution(), null); }

  /** Spark's reader of the files, which finds the table's columns in them. */
  public ParquetFileFormat format() {
    boolean minds = SQLConf.get().caseSensitiveAnalysis();
    if (mapping == null && rowIdColumns == null && functions == null && !minds) return new ParquetFileFormat();
    return new MappedParquet(mapping, rowIdColumns, rowIds, functions);
  }

  public boolean hasRowIds() { return rowIds; }

  /** The columns of the files that have row ids. */
  RowIdColumns rowIdColumns() { return rowIdColumns; }

  /** This scan for RowIds: Spark gets the base row id and the version of each file. */
  TableScan withRowIds() {
    TableScan with = copy();
    with.rowIds = true;
    return with;
  }

  /** Whether the scan has no limit to so many rows yet. */
  public boolean needsFewer(int rows) { return rows < limit; }

  /** This scan for a query that needs only so many rows of it, in any order. */
  public TableScan limitedTo(int rows) {
    TableScan limited = copy();
    limited.limit = rows;
    return limited;
  }

  /** How many files of the scan have deletion vectors. */
  public int vectors() {
    if (vectors < 0) {
      Map request = new LinkedHashMap();
      request.put("scan", description);
      vectors = Python.call("scan.vectors", request).get("vectors").asInt();
    }
    return vectors;
  }

  /** This scan as one without deletion vectors, for a look at filters above it. It lists no files that have some. */
  public TableScan withoutVectors() {
    TableScan without = copy();
    without.vectors = 0;
    return without;
  }

  public boolean hasLiveRowsOnly() { return deleted != null; }

  /** This scan for LiveRows: with another partition column, the number of a file's deletion vector or null. */
  public TableScan withLiveRowsOnly(String column, Pins pins) {
    TableScan live = copy();
    live.vectorColumn = column;
    live.deleted = pins.deleted(description, vectors());
    return live;
  }

  /** The vectors. Those of the files that Spark lists are there from then on. */
  public DeletionVectors deleted() { return deleted; }

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

  /** The table's directory. */
  public Path root() { return new Path(root); }

  /**
   * There are two roots because Spark's analysis refuses to insert into a relation with more than one. An INSERT into
   * a view over this scan would write and delete files without a commit in the log.
   */
  public Seq rootPaths() {
    List paths = new ArrayList();
    paths.add(root());
    paths.add(new Path(root, "_delta_log"));
    return CollectionConverters.asScala(paths).toList();
  }

  public String description() { return description; }

  public StructType partitionSchema() {
    return deleted == null ? partitionSchema : partitionSchema.add(vectorColumn, DataTypes.IntegerType);
  }

  public long sizeInBytes() { return sizeInBytes; }

  /** Has nothing to do: the scan keeps nothing that a later commit could change. */
  public void refresh() {}

  public String[] inputFiles() {
    if (!pinned) return pinned().inputFiles();
    List paths = new ArrayList();
    for (Object directory : files(null, null, limit, null)) {
      for (FileStatus file : ((Listed) directory).files()) paths.add(file.getPath().toUri().toString());
    }
    return (String[]) paths.toArray(new String[0]);
  }

  public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
    if (!pinned) return pinned().listFiles(partitionFilters, dataFilters);
    List directories = new ArrayList();
    Seq filters = ofTheQuery(dataFilters);
    for (Object directory : files(selected(partitionFilters), Filters.toJson(filters),
             filters.isEmpty() ? limit : Integer.MAX_VALUE, Boolean.valueOf(deleted != null))) {
      Listed listed = (Listed) directory;
      directories.add(rowIds ? new PartitionDirectory(listed.values, listed.filesWithRowIds())
                             : PartitionDirectory.apply(listed.values, listed.files()));
    }
    return CollectionConverters.asScala(directories).toList();
  }

  /** The filters without that of LiveRows. */
  private Seq ofTheQuery(Seq filters) {
    if (deleted == null) return filters;
    List found = new ArrayList();
    for (Object filter : CollectionConverters.asJava(filters)) {
      boolean isOurs = false;
      for (Object column : CollectionConverters.asJava(((Expression) filter).references().toSeq())) {
        if (((Attribute) column).name().equals(vectorColumn)) isOurs = true;
      }
      if (!isOurs) found.add(filter);
    }
    return CollectionConverters.asScala(found).toList();
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
   *
   * live: whether files with deletion vectors are in entries of their own, and their vectors in `deleted`; if not, such
   * a file is an error, and null if nobody reads the files.
   */
  private List files(List selected, Map predicate, int rows, Boolean live) {
    Map request = new LinkedHashMap();
    request.put("scan", description);
    request.put("partitions", selected);
    request.put("predicate", predicate);
    request.put("limit", rows == Integer.MAX_VALUE ? null : Integer.valueOf(rows));
    request.put("live", live);
    request.put("rowIds", Boolean.valueOf(rowIds));
    InternalRow[] values = partitions();
    BufferAllocator allocator = ArrowUtils.rootAllocator().newChildAllocator("deltaflow", 0, Long.MAX_VALUE);
    ArrowStreamReader reader =
        new ArrowStreamReader(new ByteArrayInputStream(Python.callForBytes("scan.files", request)), allocator);
    try {
      Map listed = new LinkedHashMap();
      List numbers = new ArrayList();
      VectorSchemaRoot batch = reader.getVectorSchemaRoot();
      while (reader.loadNextBatch()) {
        IntVector partition = (IntVector) batch.getVector("partition");
        VarCharVector path = (VarCharVector) batch.getVector("path");
        BigIntVector size = (BigIntVector) batch.getVector("size");
        BigIntVector modified = (BigIntVector) batch.getVector("modificationTime");
        for (int row = 0; row < batch.getRowCount(); row++) {
          Integer number = Integer.valueOf(partition.get(row));
          Integer vector = Boolean.TRUE.equals(live) ? vector(batch, row) : null;
          if (vector != null) numbers.add(vector);
          Object key = vector == null ? number : "vector " + vector;
          Listed directory = (Listed) listed.get(key);
          if (directory == null) {
            directory = new Listed(withVector(values[number.intValue()], vector));
            listed.put(key, directory);
          }
          Path file = new Path(new String(path.get(row), StandardCharsets.UTF_8));
          directory.statuses.add(new FileStatus(size.get(row), false, 1, BLOCK_BYTES, modified.get(row), file));
          if (rowIds) directory.rowIds.add(rowIds(batch, row));
        }
      }
      if (!numbers.isEmpty()) deleted.send(numbers);
      return new ArrayList(listed.values());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } finally {
      close(reader, allocator);
    }
  }

  /** The number of the vector of the file in a row, null without one. */
  private static Integer vector(VectorSchemaRoot batch, int row) {
    IntVector number = (IntVector) batch.getVector("vector");
    return number.isNull(row) ? null : Integer.valueOf(number.get(row));
  }

  /** The values of the fields of _metadata that are the same for all rows of a file. */
  private static scala.collection.immutable.Map rowIds(VectorSchemaRoot batch, int row) {
    Map values = new HashMap();
    values.put(RowIdColumns.BASE_ROW_ID, Long.valueOf(((BigIntVector) batch.getVector("baseRowId")).get(row)));
    values.put(RowIdColumns.DEFAULT_VERSION,
        Long.valueOf(((BigIntVector) batch.getVector("defaultRowCommitVersion")).get(row)));
    return scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(values));
  }

  private InternalRow withVector(InternalRow values, Integer vector) {
    if (deleted == null) return values;
    Object[] all = new Object[partitionSchema.length() + 1];
    for (int i = 0; i < partitionSchema.length(); i++) all[i] = values.get(i, partitionSchema.fields()[i].dataType());
    all[partitionSchema.length()] = vector;
    return new GenericInternalRow(all);
  }

  /** Only a hint for locality, which the log does not know. */
  private static final long BLOCK_BYTES = 128L << 20;

  static void close(ArrowStreamReader reader, BufferAllocator allocator) {
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
    final List rowIds = new ArrayList();

    Listed(InternalRow values) { this.values = values; }

    Seq filesWithRowIds() {
      List files = new ArrayList();
      for (int i = 0; i < statuses.size(); i++) {
        files.add(
            new FileStatusWithMetadata((FileStatus) statuses.get(i), (scala.collection.immutable.Map) rowIds.get(i)));
      }
      return CollectionConverters.asScala(files).toList();
    }

    FileStatus[] files() { return (FileStatus[]) statuses.toArray(new FileStatus[0]); }
  }

  public boolean equals(Object other) {
    return other instanceof TableScan && description.equals(((TableScan) other).description)
        && limit == ((TableScan) other).limit && deleted == ((TableScan) other).deleted
        && rowIds == ((TableScan) other).rowIds;
  }

  public int hashCode() { return description.hashCode(); }

  public String toString() { return "deltaflow" + description; }
}
