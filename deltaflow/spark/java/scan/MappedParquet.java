package io.deltaflow.spark.scan;

import java.util.ArrayList;
import java.util.List;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.And;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.Not;
import org.apache.spark.sql.sources.Or;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Product;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's Parquet reader for a mapped table: it gets the columns and filters as they are in the files. Plans have the
 * table's own names, so that nothing else of Spark is to be told. For a table with row tracking, _metadata has more
 * fields. For a stream, the functions that read a file are kept. In a session that minds the case of names, it finds
 * the columns in any case.
 *
 * The function that reads a file is made by Spark's own class, which is the only one that executors need.
 */
final class MappedParquet extends ParquetFileFormat {
  private static final String FINDS_BY_ID = "spark.sql.parquet.fieldId.read.enabled";
  /** null if the table is not mapped. */
  private final ColumnMapping mapping;
  /** null if the table has no row tracking. */
  private final RowIdColumns rowIdColumns;
  /** Whether the rule RowIds has been there, so that row ids are read. */
  private final boolean readsRowIds;
  /** null if the scan is not one of a stream. */
  private final ReadFunctions functions;

  /**
   * Lets the session's tasks find columns by ids. Spark's reader that is not vectorised takes this from the session
   * alone, and would take columns by names without an error.
   */
  static void prepare(org.apache.spark.sql.classic.SparkSession session, ColumnMapping mapping) {
    if (mapping != null && mapping.byId) session.conf().set(FINDS_BY_ID, "true");
  }

  MappedParquet(ColumnMapping mapping, RowIdColumns rowIdColumns, boolean readsRowIds, ReadFunctions functions) {
    this.mapping = mapping;
    this.rowIdColumns = rowIdColumns;
    this.readsRowIds = readsRowIds;
    this.functions = functions;
  }

  /** The fields of _metadata. */
  public Seq metadataSchemaFields() {
    List fields = new ArrayList(CollectionConverters.asJava(super.metadataSchemaFields()));
    if (rowIdColumns != null) fields.addAll(readsRowIds ? rowIdColumns.fieldsOfFiles() : RowIdColumns.fields());
    return CollectionConverters.asScala(fields).toList();
  }

  public Function1 buildReaderWithPartitionValues(SparkSession session, StructType dataSchema,
      StructType partitionSchema, StructType requiredSchema, Seq filters, scala.collection.immutable.Map options,
      Configuration hadoopConf) {
    if (rowIdColumns != null) RowIdColumns.check(requiredSchema);
    if (mapping == null) {
      return function(session, dataSchema, partitionSchema, requiredSchema, filters, options, hadoopConf);
    }
    if (mapping.byId && !hadoopConf.getBoolean(FINDS_BY_ID, false)) {
      throw new IllegalStateException(
          FINDS_BY_ID + " is false, and the table has columns that are found by their ids. Set it to true.");
    }
    return function(session, mapping.physical(dataSchema, mapping.byId), partitionSchema,
        mapping.physical(requiredSchema, mapping.byId), physical(filters), options, hadoopConf);
  }

  private Function1 function(SparkSession session, StructType dataSchema, StructType partitionSchema,
      StructType requiredSchema, Seq filters, scala.collection.immutable.Map options, Configuration hadoopConf) {
    if (functions == null) {
      return new ParquetFileFormat().buildReaderWithPartitionValues(
          inAnyCase(session), dataSchema, partitionSchema, requiredSchema, filters, options, hadoopConf);
    }
    return functions.of(session, dataSchema, partitionSchema, requiredSchema, filters, options, hadoopConf);
  }

  /**
   * The session, or one like it for which the case of names does not matter. The columns of a table differ by more than
   * case, and files that others have written may have their names in another case: a reader that does not find them
   * gives null, and an operation would write it.
   */
  static SparkSession inAnyCase(SparkSession session) {
    org.apache.spark.sql.classic.SparkSession own = (org.apache.spark.sql.classic.SparkSession) session;
    if (!own.sessionState().conf().caseSensitiveAnalysis()) return session;
    org.apache.spark.sql.classic.SparkSession other = own.cloneSession();
    other.conf().set(SQLConf.CASE_SENSITIVE().key(), "false");
    return other;
  }

  /** The filters that row groups are chosen by. By ids Spark cannot choose them: it looks for names. */
  private Seq physical(Seq filters) {
    List physical = new ArrayList();
    for (Object filter : CollectionConverters.asJava(filters)) {
      Filter found = mapping.byId ? null : physical((Filter) filter);
      if (found != null) physical.add(found);
    }
    return CollectionConverters.asScala(physical).toList();
  }

  /** null if the filter has another form than Spark's filters, or a column that the table lacks. */
  private Filter physical(Filter filter) {
    if (filter instanceof Not) {
      Filter child = physical(((Not) filter).child());
      return child == null ? null : new Not(child);
    }
    if (filter instanceof And || filter instanceof Or) {
      Filter left = physical((Filter) ((Product) filter).productElement(0));
      Filter right = physical((Filter) ((Product) filter).productElement(1));
      if (left == null || right == null) return null;
      return filter instanceof And ? new And(left, right) : new Or(left, right);
    }
    return onColumn(filter);
  }

  /** All other filters on a column are case classes whose first parameter is its name. */
  private Filter onColumn(Filter filter) {
    Product parts = (Product) filter;
    if (parts.productArity() == 0 || !(parts.productElement(0) instanceof String)) return null;
    Object[] arguments = new Object[parts.productArity()];
    for (int i = 0; i < arguments.length; i++) arguments[i] = parts.productElement(i);
    arguments[0] = mapping.physicalName((String) arguments[0]);
    if (arguments[0] == null) return null;
    try {
      return (Filter) filter.getClass().getConstructors()[0].newInstance(arguments);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }
}
