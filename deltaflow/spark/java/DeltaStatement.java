package io.deltaflow.spark;


import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/** A statement that Spark has no plan for: its kind and its fields, a JSON object, as Python named them. */
public final class DeltaStatement extends LogicalPlan {
  private final String kind;
  private final String fields;

  public DeltaStatement(String kind, String fields) {
    this.kind = kind;
    this.fields = fields;
  }

  /** For Python: the rows of a statement on a table, run as if SQL had said it. */
  public static org.apache.spark.sql.Dataset run(SparkSession session, String kind, String table, String fields) {
    return Dataset.ofRows(session, new DeltaCommand(new DeltaStatement(kind, fields), table));
  }

  String kind() { return kind; }

  String fields() { return fields; }

  public Seq output() { return StatementCommand.none(); }

  public Seq children() { return StatementCommand.none(); }

  public TreeNode withNewChildrenInternal(IndexedSeq children) { return this; }

  public int productArity() { return 2; }

  public Object productElement(int i) { return i == 0 ? kind : fields; }

  public String productElementName(int i) { return i == 0 ? "kind" : "fields"; }

  public boolean canEqual(Object other) { return other instanceof DeltaStatement; }

  public boolean equals(Object other) {
    return canEqual(other) && kind.equals(((DeltaStatement) other).kind) && fields.equals(((DeltaStatement) other).fields);
  }

  public int hashCode() { return 31 * kind.hashCode() + fields.hashCode(); }
}
