package io.deltaflow.spark.sql;

import java.util.Arrays;
import java.util.List;

import io.deltaflow.spark.expressions.Plans;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/**
 * A statement that Spark has no plan for. It has the name and the fields, a JSON object, that Python read from the
 * text, the expressions that the fields refer to by number, and the relation that names its table.
 */
public final class DeltaStatement extends LogicalPlan {
  private static final String[] NAMES = {"name", "fields", "values", "table"};
  private final List parts;

  public DeltaStatement(String name, String fields, Seq values, LogicalPlan table) {
    parts = Arrays.asList(new Object[] {name, fields, values, table});
  }

  public String name() { return (String) parts.get(0); }

  public String fields() { return (String) parts.get(1); }

  public Seq values() { return (Seq) parts.get(2); }

  public LogicalPlan table() { return (LogicalPlan) parts.get(3); }

  public Seq output() { return StatementCommand.none(); }

  public Seq children() { return Plans.seq(parts.subList(3, 4)); }

  public TreeNode withNewChildrenInternal(IndexedSeq children) {
    return new DeltaStatement(name(), fields(), values(), (LogicalPlan) children.head());
  }

  public int productArity() { return NAMES.length; }

  public Object productElement(int i) { return parts.get(i); }

  public String productElementName(int i) { return NAMES[i]; }

  public boolean canEqual(Object other) { return other instanceof DeltaStatement; }

  public boolean equals(Object other) { return canEqual(other) && parts.equals(((DeltaStatement) other).parts); }

  public int hashCode() { return parts.hashCode(); }
}
