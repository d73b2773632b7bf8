package io.deltaflow.spark.sql;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreePattern$;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.command.LeafRunnableCommand;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The methods that Scala would add to a case class that is a LeafRunnableCommand. */
public abstract class StatementCommand extends LogicalPlan implements LeafRunnableCommand {
  protected abstract Seq run(SparkSession session);

  public final Seq run(org.apache.spark.sql.SparkSession session) { return run((SparkSession) session); }

  /** Runs a plan in the place of this command, and returns its rows. */
  public static Seq rows(SparkSession session, LogicalPlan plan) {
    return CollectionConverters.asScala(new ArrayList(Dataset.ofRows(session, plan).collectAsList())).toList();
  }

  public static Seq none() { return CollectionConverters.asScala(new ArrayList()).toList(); }

  public Seq children() { return none(); }

  public TreeNode withNewChildrenInternal(IndexedSeq children) { return this; }

  public AttributeSet producedAttributes() { return outputSet(); }

  public scala.collection.immutable.Map metrics() { return (scala.collection.immutable.Map) Map$.MODULE$.empty(); }

  public Seq nodePatterns() {
    List only = new ArrayList();
    only.add(TreePattern$.MODULE$.COMMAND());
    return CollectionConverters.asScala(only).toList();
  }

  public void org$apache$spark$sql$catalyst$plans$logical$Command$_setter_$nodePatterns_$eq(Seq patterns) {}

  public boolean canEqual(Object other) { return other != null && other.getClass() == getClass(); }

  public boolean equals(Object other) {
    if (!canEqual(other)) return false;
    for (int i = 0; i < productArity(); i++) {
      if (!productElement(i).equals(((StatementCommand) other).productElement(i))) return false;
    }
    return true;
  }

  public int hashCode() {
    Object[] fields = new Object[productArity()];
    for (int i = 0; i < fields.length; i++) fields[i] = productElement(i);
    return Arrays.hashCode(fields);
  }
}
