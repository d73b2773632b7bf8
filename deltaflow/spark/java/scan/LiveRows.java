package io.deltaflow.spark.scan;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.objects.AssertNotNull;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.roaringbitmap.RoaringBitmap;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.ScalaRunTime;

/**
 * Leaves out the rows that deletion vectors delete, by a filter above each scan that has files with vectors. All other
 * scans stay as they are, but those that select the position of a row twice. Runs after PinScans and MetadataOnlyQuery.
 *
 * The filter compares the position of a row in its file with the bitmap of the file. Executors need none of our
 * classes: the bitmaps are RoaringBitmap's, which is one of Spark's jars, in broadcast variables that the scan makes
 * when Spark lists its files. The number of a file's bitmap is the value of a partition column that only this scan has.
 */
public final class LiveRows extends Rule {
  /** Spark's Parquet reader fills a column of this name with the position of each row in its file. */
  private static final String POSITION = "_tmp_metadata_row_index";
  /** The column with the number of a file, in scans that have the places of rows. */
  private static final String FILE = "\0file";
  /** In the metadata of the attribute with which a query selects Spark's column _metadata. */
  private static final String OF_FILE_SOURCE = "__file_source_metadata_col";

  public TreeNode apply(TreeNode plan) {
    return ((LogicalPlan) plan).transformWithSubqueries(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        TableScan scan = PinScans.scan(node);
        if (scan == null || !scan.isPinned() || scan.hasLiveRowsOnly()) return false;
        return scan.vectors() > 0 || hasTwoPositions((LogicalRelation) node);
      }

      public Object applyOrElse(Object node, Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        LogicalRelation scan = (LogicalRelation) node;
        LogicalPlan rows = hasTwoPositions(scan) ? withOnePosition(scan) : scan;
        if (PinScans.scan(node).vectors() == 0) return rows;
        return rows == scan ? liveRows(scan)
                            : rows.withNewChildren(seq(liveRows((LogicalRelation) ((Project) rows).child())));
      }
    });
  }

  /** The columns with the places of rows, of the columns of a scan: the number of the file, and the position in it. */
  public static List places(StructType columns) {
    List places = new ArrayList();
    for (String name : columns.fieldNames()) {
      if (name.equals(FILE)) places.add(attribute(FILE, DataTypes.IntegerType));
      if (name.equals(POSITION)) places.add(attribute(POSITION, DataTypes.LongType));
    }
    return places;
  }

  private static boolean hasTwoPositions(LogicalRelation node) {
    List output = CollectionConverters.asJava(node.output());
    return column(output, POSITION) != null && positionInMetadata(output) != null;
  }

  /** The position of _metadata alone is read: Spark's reader would give it once only. */
  private static LogicalPlan withOnePosition(LogicalRelation node) {
    HadoopFsRelation relation = (HadoopFsRelation) node.relation();
    List read = new ArrayList(CollectionConverters.asJava(node.output()));
    Attribute position = column(read, POSITION);
    List columns = new ArrayList(read);
    columns.set(read.indexOf(position),
        new Alias(positionInMetadata(read), POSITION, position.exprId(), position.qualifier(), Option.empty(), none()));
    read.remove(position);
    StructType schema = new StructType();
    for (StructField field : relation.dataSchema().fields()) {
      if (!field.name().equals(POSITION)) schema = schema.add(field);
    }
    HadoopFsRelation without = new HadoopFsRelation(relation.location(), relation.partitionSchema(), schema,
        relation.bucketSpec(), relation.fileFormat(), relation.options(), relation.sparkSession());
    return new Project(
        seq(columns), new LogicalRelation(without, seq(read), node.catalogTable(), node.isStreaming(), node.stream()));
  }

  private static LogicalPlan liveRows(LogicalRelation node) {
    HadoopFsRelation relation = (HadoopFsRelation) node.relation();
    StructType schema = relation.dataSchema();
    List output = new ArrayList(CollectionConverters.asJava(node.output()));
    Expression position = selectedPosition(output);
    if (position == null) {
      schema = schema.add(POSITION, DataTypes.LongType);
      position = attribute(POSITION, DataTypes.LongType);
      output.add(position);
    }
    AttributeReference vector = attribute(unusedName(schema), DataTypes.IntegerType);
    output.add(vector);
    TableScan scan = PinScans.scan(node).withLiveRowsOnly(vector.name(), Pins.ofThisExecution());
    HadoopFsRelation live = new HadoopFsRelation(scan, scan.partitionSchema(), schema, relation.bucketSpec(),
        relation.fileFormat(), relation.options(), relation.sparkSession());
    LogicalRelation rows =
        new LogicalRelation(live, seq(output), node.catalogTable(), node.isStreaming(), node.stream());
    Expression isLive = new Or(new IsNull(vector), new Not(isDeleted(scan.deleted().sent(), vector, position)));
    return new Project(node.output(), new Filter(isLive, rows));
  }

  /**
   * bitmap(vector).contains((int) position), where a task looks up the bitmap of a vector once:
   *
   * bitmap(vector) = coalesce(known.get(vector), known.put(vector, found), found),
   * found = sent[vector].value().get(vector)
   *
   * Everything depends on `vector`, so that no rule folds a constant. Each task has a copy of the empty map `known`.
   */
  private static Expression isDeleted(Broadcast[] sent, Expression vector, Expression position) {
    Expression known = new Literal(new HashMap(), object(Map.class));
    Expression element = new StaticInvoke(ScalaRunTime.class, object(Object.class), "array_apply",
        seq(new Literal(sent, object(Object.class)), vector), none(), true, true, true, Option.empty());
    Expression broadcast =
        call(new Literal(Broadcast.class, object(Class.class)), "cast", object(Broadcast.class), seq(element));
    Expression part = call(broadcast, "value", object(Map.class), none());
    Expression key = new StaticInvoke(
        Integer.class, object(Integer.class), "valueOf", seq(vector), none(), true, true, true, Option.empty());
    Expression found = call(part, "get", object(RoaringBitmap.class), seq(key));
    List tried = new ArrayList();
    tried.add(call(known, "get", object(RoaringBitmap.class), seq(key)));
    tried.add(call(known, "put", object(RoaringBitmap.class), seq(key, found)));
    tried.add(new AssertNotNull(found, none()));
    // A position that is too large for a signed number becomes the negative one that RoaringBitmap takes for it.
    Expression bits = new Cast(position, DataTypes.IntegerType, Option.empty(), EvalMode$.MODULE$.LEGACY());
    return call(new Coalesce(seq(tried)), "contains", DataTypes.BooleanType, seq(bits));
  }

  private static Expression call(Expression target, String method, DataType type, Seq arguments) {
    return new Invoke(target, method, type, arguments, none(), true, true, true);
  }

  /** The position, if the query selects it already. */
  private static Expression selectedPosition(List output) {
    Attribute column = column(output, POSITION);
    return column == null ? positionInMetadata(output) : column;
  }

  private static Attribute column(List output, String name) {
    for (Object column : output) {
      if (((Attribute) column).name().equals(name)) return (Attribute) column;
    }
    return null;
  }

  private static Expression positionInMetadata(List output) {
    Attribute metadata = metadata(output);
    if (metadata == null) return null;
    String[] names = ((StructType) metadata.dataType()).fieldNames();
    for (int i = 0; i < names.length; i++) {
      if (names[i].equals("row_index")) return new GetStructField(metadata, i, Option.apply("row_index"));
    }
    return null;
  }

  /** Spark's column _metadata among the columns of a scan; null if the query does not select it. */
  static Attribute metadata(Iterable output) {
    for (Object column : output) {
      Attribute attribute = (Attribute) column;
      if (attribute.metadata().contains(OF_FILE_SOURCE) && attribute.dataType() instanceof StructType) return attribute;
    }
    return null;
  }

  private static String unusedName(StructType schema) {
    String name = "__deletion_vector";
    List used = new ArrayList();
    for (String field : schema.fieldNames()) used.add(field.toLowerCase());
    while (used.contains(name)) name = name + "_";
    return name;
  }

  private static AttributeReference attribute(String name, DataType type) {
    return new AttributeReference(name, type, true, Metadata.empty(), NamedExpression.newExprId(), none());
  }

  private static DataType object(Class of) { return new ObjectType(of); }

  private static Seq none() { return seq(new ArrayList()); }

  private static Seq seq(Object one) {
    List list = new ArrayList();
    list.add(one);
    return seq(list);
  }

  private static Seq seq(Object one, Object other) {
    List list = new ArrayList();
    list.add(one);
    list.add(other);
    return seq(list);
  }

  static Seq seq(List list) { return CollectionConverters.asScala(list).toList(); }
}
