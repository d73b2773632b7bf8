package io.deltaflow.spark.sql;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.bridge.Thrown;
import org.apache.spark.sql.AnalysisException;
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
import org.apache.spark.sql.catalyst.util.QuotingUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.command.ExplainCommand;
import scala.Product;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Finds the parsed statements that Python runs. Python describes them; every other plan stays as it is. */
public final class Statements {
  /** Python's descriptions of statements (StatementDescription), by the class names of their plans. */
  private static volatile JsonNode descriptions;

  private Statements() {}

  /** The plan, in which a DeltaCommand replaces a statement on a Delta table. Runs nothing. */
  public static LogicalPlan withDeltaCommands(SparkSession session, LogicalPlan parsed) {
    if (parsed instanceof CompoundBody) return (LogicalPlan) script(session, parsed);
    if (parsed instanceof ExplainCommand) {
      ExplainCommand explain = (ExplainCommand) parsed;
      LogicalPlan explained = withDeltaCommands(session, explain.logicalPlan());
      return explained == explain.logicalPlan() ? parsed : explain.copy(explained, explain.mode());
    }
    LogicalPlan plan = TimeTravel.withKnownTimes(session, parsed);
    LogicalPlan statement = statementOf(plan);
    if (hasOpenName(statement)) return LateStatement.of(plan);
    JsonNode description = description(statement);
    if (description == null) return plan;
    Object target = target(statement, description);
    Map table = target == null ? null : TableNames.find(session, nameOf(target));
    if (statement instanceof Union) table = insertedInto(session, (Union) statement);
    if (!isOurs(table, description) && !concerns(statement, description)) return plan;
    if (LateStatement.hasParameters(plan)) return LateStatement.of(plan);
    return new DeltaCommand(plan, Python.json(table));
  }

  /** Whether a statement that Python describes has IDENTIFIER(…) for its table's name, or is inside of one. */
  private static boolean hasOpenName(LogicalPlan statement) {
    if (statement instanceof PlanWithUnresolvedIdentifier) {
      PlanWithUnresolvedIdentifier open = (PlanWithUnresolvedIdentifier) statement;
      List anyName = new ArrayList();
      anyName.add("name");
      try {
        Seq name = CollectionConverters.asScala(anyName).toList();
        return description((LogicalPlan) open.planBuilder().apply(name, open.children())) != null;
      } catch (Exception e) {
        return false; // the statement takes only certain names; Spark will say so
      }
    }
    JsonNode description = description(statement);
    return description != null && target(statement, description) instanceof PlanWithUnresolvedIdentifier;
  }

  /** The statement behind a WITH clause, or the plan itself. */
  public static LogicalPlan statementOf(LogicalPlan plan) {
    return plan instanceof UnresolvedWith ? ((UnresolvedWith) plan).child() : plan;
  }

  /**
   * A script is parsed before its first statement runs, so that its names cannot be resolved yet. A LateStatement
   * decides about each statement that may be ours when it runs. Not all parts of a script are children of a plan.
   */
  private static Object script(SparkSession session, Object part) {
    if (part instanceof Seq) {
      List parts = new ArrayList();
      for (Object item : CollectionConverters.asJava((Seq) part)) parts.add(script(session, item));
      return CollectionConverters.asScala(parts).toList();
    }
    if (!(part instanceof CompoundPlanStatement)) return part;
    TreeNode node = (TreeNode) part;
    Object[] fields = new Object[node.productArity()];
    for (int i = 0; i < fields.length; i++) fields[i] = script(session, node.productElement(i));
    if (part instanceof SingleStatement) {
      LogicalPlan statement = withTimesIfKnown(session, ((SingleStatement) part).parsedPlan());
      boolean mayBeOurs = description(statementOf(statement)) != null || hasOpenName(statementOf(statement));
      fields[0] = mayBeOurs ? LateStatement.of(statement) : statement;
    }
    return node.makeCopy(fields);
  }

  /** As it is where a time cannot be analysed: the script may not come to it, may handle the error, or mend it. */
  private static LogicalPlan withTimesIfKnown(SparkSession session, LogicalPlan statement) {
    try {
      return TimeTravel.withKnownTimes(session, statement);
    } catch (Exception e) {
      if (e instanceof AnalysisException) return statement;
      throw Thrown.asIs(e);
    }
  }

  /** Python's description of such statements; null if Python does not run them. */
  public static JsonNode description(LogicalPlan statement) {
    // A union is ours only as FROM … INSERT … INSERT.
    if (statement instanceof Union && !(statement.children().head() instanceof InsertIntoStatement)) return null;
    if (descriptions == null) {
      descriptions = Python.call("statement.descriptions", new LinkedHashMap()).get("descriptions");
    }
    return descriptions.get(statementName(statement));
  }

  /** The name by which Python knows the statement. */
  public static String statementName(LogicalPlan statement) {
    boolean isDeltas = statement instanceof DeltaStatement;
    return isDeltas ? ((DeltaStatement) statement).name() : statement.getClass().getSimpleName();
  }

  /** The plan or identifier that names the statement's table; null if there is none. */
  private static Object target(LogicalPlan statement, JsonNode description) {
    if (statement instanceof DeltaStatement) return ((DeltaStatement) statement).table();
    if (description.get("tableField").isNull()) return null;
    Object target = field(statement, description.get("tableField").asText());
    while (target instanceof UnaryNode) target = ((UnaryNode) target).child();
    return target;
  }

  /** The first Delta table that a FROM … INSERT … INSERT writes; Spark plans it as a union of its inserts. */
  private static Map insertedInto(SparkSession session, Union inserts) {
    for (Object insert : CollectionConverters.asJava(inserts.children())) {
      Map table = TableNames.find(session, nameOf(((InsertIntoStatement) insert).table()));
      if (table != null && !TableNames.isView(table)) return table;
    }
    return null;
  }

  private static boolean isOurs(Map table, JsonNode description) {
    return table != null && (description.get("views").asBoolean() || !TableNames.isView(table));
  }

  /** Whether Python runs a statement that names no Delta table. Crossings into Python: 1. */
  private static boolean concerns(LogicalPlan statement, JsonNode description) {
    if (!description.get("asks").asBoolean()) return false;
    Map request = new LinkedHashMap();
    request.put("statement", statementName(statement));
    request.put("fields", StatementFields.of(statement));
    return Python.call("statement.concerns", request).get("concerns").asBoolean();
  }

  /** The table's name in a statement that only Delta has, as SQL; null in a statement of Spark's. */
  public static String writtenName(LogicalPlan statement) {
    return statement instanceof DeltaStatement ? quotedName(((DeltaStatement) statement).table()) : null;
  }

  /** The parts of the table's name; empty if the target has none. */
  public static List nameOf(Object target) {
    if (target instanceof UnresolvedTable) return parts(((UnresolvedTable) target).multipartIdentifier());
    if (target instanceof UnresolvedTableOrView) return parts(((UnresolvedTableOrView) target).multipartIdentifier());
    if (target instanceof UnresolvedRelation) return parts(((UnresolvedRelation) target).multipartIdentifier());
    if (target instanceof TableIdentifier) return parts(((TableIdentifier) target).nameParts());
    return new ArrayList();
  }

  /** The table's name as SQL. */
  public static String quotedName(Object target) {
    return QuotingUtils.quoted((String[]) nameOf(target).toArray(new String[0]));
  }

  private static List parts(Seq names) { return new ArrayList(CollectionConverters.asJava(names)); }

  public static Object field(Product product, String name) {
    for (int i = 0; i < product.productArity(); i++) {
      if (product.productElementName(i).equals(name)) return product.productElement(i);
    }
    throw new IllegalStateException(product.productPrefix() + " of this Spark has no field " + name);
  }
}
