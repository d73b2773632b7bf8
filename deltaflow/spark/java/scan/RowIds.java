package io.deltaflow.spark.scan;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat$;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Gives _metadata.row_id and _metadata.row_commit_version their values, by a projection above each scan of which a
 * query asks them. All other scans stay as they are. Runs before LiveRows.
 *
 * A row that was copied has its id in a column of its file. Any other has the file's base_row_id and its position.
 */
public final class RowIds extends Rule {
  private static final String ROW_INDEX = "row_index";

  public TreeNode apply(TreeNode plan) {
    return ((LogicalPlan) plan).transformWithSubqueries(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        TableScan scan = PinScans.scan(node);
        return scan != null && !scan.hasRowIds() && asked((LogicalRelation) node) != null;
      }

      public Object applyOrElse(Object node, Function1 otherwise) {
        return isDefinedAt(node) ? withRowIds((LogicalRelation) node) : otherwise.apply(node);
      }
    });
  }

  /** The column _metadata, if a query asks a field of it that row tracking has; null otherwise. */
  private static AttributeReference asked(LogicalRelation node) {
    Attribute metadata = LiveRows.metadata(CollectionConverters.asJava(node.output()));
    if (metadata == null) return null;
    for (String name : ((StructType) metadata.dataType()).fieldNames()) {
      if (RowIdColumns.isOneOf(name)) return (AttributeReference) metadata;
    }
    return null;
  }

  private static LogicalPlan withRowIds(LogicalRelation node) {
    HadoopFsRelation relation = (HadoopFsRelation) node.relation();
    TableScan scan = PinScans.scan(node).withRowIds();
    AttributeReference asked = asked(node);
    StructType wanted = (StructType) asked.dataType();
    AttributeReference read = new AttributeReference(asked.name(), ofFiles(wanted, scan.rowIdColumns()), false,
        asked.metadata(), NamedExpression.newExprId(), asked.qualifier());
    List columns = new ArrayList();
    List output = new ArrayList();
    for (Object column : CollectionConverters.asJava(node.output())) {
      boolean isMetadata = ((Attribute) column).exprId().equals(asked.exprId());
      columns.add(isMetadata ? read : column);
      output.add(isMetadata ? values(wanted, read, asked) : column);
    }
    HadoopFsRelation files = new HadoopFsRelation(scan, scan.partitionSchema(), relation.dataSchema(),
        relation.bucketSpec(), scan.format(), relation.options(), relation.sparkSession());
    return new Project(LiveRows.seq(output),
        new LogicalRelation(files, LiveRows.seq(columns), node.catalogTable(), node.isStreaming(), node.stream()));
  }

  /** The fields to read, and those from which they are computed. */
  private static StructType ofFiles(StructType wanted, RowIdColumns columns) {
    StructType read = new StructType();
    for (StructField field : wanted.fields()) {
      read = read.add(RowIdColumns.isOneOf(field.name()) ? columns.ofFile(field.name()) : field);
    }
    List names = Arrays.asList(wanted.fieldNames());
    if (names.contains(RowIdColumns.ROW_ID)) {
      if (!names.contains(RowIdColumns.BASE_ROW_ID)) read = read.add(columns.ofFile(RowIdColumns.BASE_ROW_ID));
      if (!names.contains(ROW_INDEX)) read = read.add(ParquetFileFormat$.MODULE$.ROW_INDEX_FIELD());
    }
    if (names.contains(RowIdColumns.VERSION) && !names.contains(RowIdColumns.DEFAULT_VERSION)) {
      read = read.add(columns.ofFile(RowIdColumns.DEFAULT_VERSION));
    }
    return read;
  }

  /** The column _metadata as the query has asked it. */
  private static Alias values(StructType wanted, AttributeReference read, AttributeReference asked) {
    List fields = new ArrayList();
    for (String name : wanted.fieldNames()) {
      fields.add(Literal.create(name, DataTypes.StringType));
      Expression value = field(read, name);
      if (name.equals(RowIdColumns.ROW_ID)) {
        value = first(value, new Add(field(read, RowIdColumns.BASE_ROW_ID), field(read, ROW_INDEX)));
      } else if (name.equals(RowIdColumns.VERSION)) {
        value = first(value, field(read, RowIdColumns.DEFAULT_VERSION));
      }
      fields.add(value);
    }
    return new Alias(new CreateNamedStruct(LiveRows.seq(fields)), asked.name(), asked.exprId(), asked.qualifier(),
        Option.apply(asked.metadata()), LiveRows.seq(new ArrayList()));
  }

  private static Expression field(AttributeReference struct, String name) {
    return new GetStructField(struct, ((StructType) struct.dataType()).fieldIndex(name), Option.apply(name));
  }

  private static Expression first(Expression value, Expression otherwise) {
    return new Coalesce(LiveRows.seq(Arrays.asList(new Object[] {value, otherwise})));
  }
}
