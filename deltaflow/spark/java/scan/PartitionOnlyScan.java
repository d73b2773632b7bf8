package io.deltaflow.spark.scan;

import java.util.Arrays;
import java.util.List;

import org.apache.spark.sql.catalyst.FileSourceOptions;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.trees.TreePattern$;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A plan of projections, over filters on partition columns, over one pinned scan. Its rows are exactly those of the
 * partitions that the filters keep.
 */
public final class PartitionOnlyScan {
  public final TableScan scan;
  /** The filters, all of which use partition columns only. */
  public final Seq partitionFilters;

  private PartitionOnlyScan(TableScan scan, Seq partitionFilters) {
    this.scan = scan;
    this.partitionFilters = partitionFilters;
  }

  /** The plan as a partition-only scan; null if it is none. renames: whether projections may compute columns. */
  public static PartitionOnlyScan of(LogicalPlan plan, boolean renames) {
    java.util.List filters = new java.util.ArrayList();
    LogicalPlan node = plan;
    while (true) {
      if (node instanceof Project) {
        // Above a projection a filter may be on another column of the same name, and Spark may leave it there.
        if (!filters.isEmpty()) return null;
        if (!passes(((Project) node).projectList(), renames)) return null;
        node = ((Project) node).child();
      } else if (node instanceof Filter) {
        filters.add(((Filter) node).condition());
        node = ((Filter) node).child();
      } else {
        break;
      }
    }
    TableScan scan = PinScans.scan(node);
    if (scan == null || !scan.isPinned() || mayLackFiles((LogicalRelation) node)) return null;
    List partitionColumns = Arrays.asList(scan.partitionSchema().fieldNames());
    for (Object filter : filters) {
      if (!isOnPartitions((Expression) filter, partitionColumns)) return null;
    }
    return new PartitionOnlyScan(scan, CollectionConverters.asScala(filters).toList());
  }

  /** Whether Spark may leave out files that are missing or corrupt, so that statistics may count too many rows. */
  private static boolean mayLackFiles(LogicalRelation node) {
    HadoopFsRelation relation = (HadoopFsRelation) node.relation();
    FileSourceOptions options = new FileSourceOptions(relation.options());
    return options.ignoreMissingFiles() || options.ignoreCorruptFiles();
  }

  private static boolean passes(Seq projectList, boolean renames) {
    for (Object column : CollectionConverters.asJava(projectList)) {
      boolean plain = column instanceof Attribute;
      if (!plain && !(renames && ((Expression) column).deterministic())) return false;
    }
    return true;
  }

  /** Whether a filter says which partitions are read: the driver can evaluate it for each of them. */
  public static boolean isOnPartitions(Expression filter, List partitionColumns) {
    if (!filter.deterministic() || SubqueryExpression.hasSubquery(filter)) return false;
    // Spark runs functions of Python in an operator of their own, above the scan.
    if (filter.containsPattern(TreePattern$.MODULE$.PYTHON_UDF())) return false;
    // One without columns says nothing of partitions. Spark folds most of them, but none with a lambda.
    if (filter.references().isEmpty()) return false;
    for (Object column : CollectionConverters.asJava(filter.references().toSeq())) {
      if (!partitionColumns.contains(((Attribute) column).name())) return false;
    }
    return true;
  }
}
