package io.deltaflow.spark.sql;

import java.util.Arrays;
import java.util.List;

import io.deltaflow.spark.expressions.Plans;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/**
 * A statement that Spark has no plan for: its kind and its fields, a JSON object, as Python named them, the
 * expressions that the fields refer to by number, and the relation that names its table.
 */
public final class DeltaStatement extends LogicalPlan {
  private static final String[] NAMES = {"kind", "fields", "values", "table"};
  private final List parts;

  public DeltaStatement(String kind, String fields, Seq values, LogicalPlan table) {
    parts = Arrays.asList(new Object[] {kind, fields, values, table});
  }

  /** For Python: the rows of a statement on a table, run as if SQL had said it. */
  public static org.apache.spark.sql.Dataset run(SparkSession session, String kind, String table, String fields) {
    LogicalPlan statement = new DeltaStatement(kind, fields, StatementCommand.none(), new OneRowRelation());
    return Dataset.ofRows(session, new DeltaCommand(statement, table));
  }

  public String kind() { return (String) parts.get(0); }

  public String fields() { return (String) parts.get(1); }

  public Seq values() { return (Seq) parts.get(2); }

  public LogicalPlan table() { return (LogicalPlan) parts.get(3); }

  public Seq output() { return StatementCommand.none(); }

  public Seq children() { return Plans.seq(parts.subList(3, 4)); }

  public TreeNode withNewChildrenInternal(IndexedSeq children) {
    return new DeltaStatement(kind(), fields(), values(), (LogicalPlan) children.head());
  }

  public int productArity() { return NAMES.length; }

  public Object productElement(int i) { return parts.get(i); }

  public String productElementName(int i) { return NAMES[i]; }

  public boolean canEqual(Object other) { return other instanceof DeltaStatement; }

  public boolean equals(Object other) { return canEqual(other) && parts.equals(((DeltaStatement) other).parts); }

  public int hashCode() { return parts.hashCode(); }
}
