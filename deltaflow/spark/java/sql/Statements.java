package io.deltaflow.spark.sql;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import io.deltaflow.spark.bridge.Python;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.PlanWithUnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTable;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableOrView;
import org.apache.spark.sql.catalyst.plans.logical.CompoundBody;
import org.apache.spark.sql.catalyst.plans.logical.CompoundPlanStatement;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SingleStatement;
import org.apache.spark.sql.catalyst.plans.logical.UnaryNode;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedWith;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.command.ExplainCommand;
import scala.Product;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Which parsed statements are ours to answer. Their kinds are Python's to name; every other plan stays as it is. */
public final class Statements {
  /** By the class name of a statement's plan: the field with its table, and how Python is asked. */
  private static volatile JsonNode kinds;

  private Statements() {}

  /** The plan, with a command of ours in the place of a statement on a Delta table. Runs nothing. */
  public static LogicalPlan answered(SparkSession session, LogicalPlan plan) {
    if (plan instanceof CompoundBody) return (LogicalPlan) script(plan);
    if (plan instanceof ExplainCommand) {
      ExplainCommand explain = (ExplainCommand) plan;
      LogicalPlan explained = answered(session, explain.logicalPlan());
      return explained == explain.logicalPlan() ? plan : explain.copy(explained, explain.mode());
    }
    LogicalPlan statement = statementOf(plan);
    if (hasOpenName(statement)) return LateStatement.of(plan);
    JsonNode kind = kind(statement);
    if (kind == null) return plan;
    Object target = target(statement, kind);
    Map table = target == null ? null : TableNames.find(session, nameOf(target));
    if (statement instanceof Union) table = insertedInto(session, (Union) statement);
    if (!isOurs(table, kind) && !concerns(statement, kind)) return plan;
    if (LateStatement.hasParameters(plan)) return LateStatement.of(plan);
    return new DeltaCommand(plan, Python.json(table));
  }

  /** Whether a statement of our kinds has IDENTIFIER(…) for its table's name, in its field or around it all. */
  private static boolean hasOpenName(LogicalPlan statement) {
    if (statement instanceof PlanWithUnresolvedIdentifier) {
      PlanWithUnresolvedIdentifier open = (PlanWithUnresolvedIdentifier) statement;
      List anyName = new ArrayList();
      anyName.add("name");
      try {
        Seq name = CollectionConverters.asScala(anyName).toList();
        return kind((LogicalPlan) open.planBuilder().apply(name, open.children())) != null;
      } catch (Exception e) {
        return false; // the statement wants a certain name, which Spark will tell
      }
    }
    JsonNode kind = kind(statement);
    return kind != null && target(statement, kind) instanceof PlanWithUnresolvedIdentifier;
  }

  /** What comes behind WITH, or the plan itself. */
  public static LogicalPlan statementOf(LogicalPlan plan) {
    return plan instanceof UnresolvedWith ? ((UnresolvedWith) plan).child() : plan;
  }

  /**
   * A script is parsed before its first statement runs, so what names mean in it is not known yet: each
   * statement that may be ours is decided when it runs. Not all parts of a script are children of their plan.
   */
  private static Object script(Object part) {
    if (part instanceof Seq) {
      List parts = new ArrayList();
      for (Object item : CollectionConverters.asJava((Seq) part)) parts.add(script(item));
      return CollectionConverters.asScala(parts).toList();
    }
    if (!(part instanceof CompoundPlanStatement)) return part;
    TreeNode node = (TreeNode) part;
    Object[] fields = new Object[node.productArity()];
    for (int i = 0; i < fields.length; i++) fields[i] = script(node.productElement(i));
    if (part instanceof SingleStatement) {
      LogicalPlan statement = ((SingleStatement) part).parsedPlan();
      if (kind(statementOf(statement)) == null && !hasOpenName(statementOf(statement))) return part;
      fields[0] = LateStatement.of(statement);
    }
    return node.makeCopy(fields);
  }

  /** What Python says of statements of this kind; null if they are not ours. */
  public static JsonNode kind(LogicalPlan statement) {
    // The plan of a query, which is most of what is parsed, is of another package or name.
    if (statement instanceof Union && !(statement.children().head() instanceof InsertIntoStatement)) return null;
    if (kinds == null) kinds = Python.call("statement.kinds", new LinkedHashMap()).get("kinds");
    return kinds.get(kindOf(statement));
  }

  public static String kindOf(LogicalPlan statement) {
    boolean isDeltas = statement instanceof DeltaStatement;
    return isDeltas ? ((DeltaStatement) statement).kind() : statement.getClass().getSimpleName();
  }

  private static Object target(LogicalPlan statement, JsonNode kind) {
    if (statement instanceof DeltaStatement) return ((DeltaStatement) statement).table();
    Object target = kind.get("table").isNull() ? null : field(statement, kind.get("table").asText());
    while (target instanceof UnaryNode) target = ((UnaryNode) target).child();
    return target;
  }

  /** FROM … INSERT … INSERT, which Spark plans as a union of them: the first Delta table among theirs. */
  private static Map insertedInto(SparkSession session, Union inserts) {
    for (Object insert : CollectionConverters.asJava(inserts.children())) {
      Map table = TableNames.find(session, nameOf(((InsertIntoStatement) insert).table()));
      if (table != null && !TableNames.isView(table)) return table;
    }
    return null;
  }

  private static boolean isOurs(Map table, JsonNode kind) {
    return table != null && (kind.get("views").asBoolean() || !TableNames.isView(table));
  }

  /** Whether Python claims a statement that names no Delta table. Crossings into Python: 1. */
  private static boolean concerns(LogicalPlan statement, JsonNode kind) {
    if (!kind.get("asks").asBoolean()) return false;
    Map request = new LinkedHashMap();
    request.put("kind", kindOf(statement));
    request.put("statement", StatementFields.of(statement));
    return Python.call("statement.concerns", request).get("concerns").asBoolean();
  }

  public static List nameOf(Object target) {
    if (target instanceof UnresolvedTable) return parts(((UnresolvedTable) target).multipartIdentifier());
    if (target instanceof UnresolvedTableOrView) return parts(((UnresolvedTableOrView) target).multipartIdentifier());
    if (target instanceof UnresolvedRelation) return parts(((UnresolvedRelation) target).multipartIdentifier());
    if (target instanceof TableIdentifier) return parts(((TableIdentifier) target).nameParts());
    return new ArrayList();
  }

  private static List parts(Seq names) { return new ArrayList(CollectionConverters.asJava(names)); }

  public static Object field(Product product, String name) {
    for (int i = 0; i < product.productArity(); i++) {
      if (product.productElementName(i).equals(name)) return product.productElement(i);
    }
    throw new IllegalStateException(product.productPrefix() + " of this Spark has no field " + name);
  }
}
