package io.deltaflow.spark.sql;

import java.util.ArrayList;
import java.util.List;

import io.deltaflow.spark.expressions.Expressions;
import org.apache.spark.sql.catalyst.analysis.Parameter;
import org.apache.spark.sql.catalyst.analysis.PlanWithUnresolvedIdentifier;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CommandExecutionMode$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * A statement whose table is known only when it runs: one in a script, or one with IDENTIFIER(…). When it runs, it
 * becomes a command of ours or stays Spark's.
 *
 * Spark binds the parameters of spark.sql(text, args) in the expressions of a plan's nodes. That is why this node
 * has the parameters of its statement among its fields.
 */
public final class LateStatement extends StatementCommand {
  private final LogicalPlan statement;
  private final Seq parameters;
  private final Seq values;
  private transient Seq output;

  public LateStatement(LogicalPlan statement, Seq parameters, Seq values) {
    this.statement = statement;
    this.parameters = parameters;
    this.values = values;
  }

  public static LateStatement of(LogicalPlan statement) {
    List found = new ArrayList();
    addParameters(statement, found);
    List names = new ArrayList();
    for (Object parameter : found) names.add(((Parameter) parameter).name());
    return new LateStatement(
        statement, CollectionConverters.asScala(names).toList(), CollectionConverters.asScala(found).toList());
  }

  public static boolean hasParameters(LogicalPlan statement) {
    List found = new ArrayList();
    addParameters(statement, found);
    return !found.isEmpty();
  }

  public Seq output() {
    for (Object value : CollectionConverters.asJava(values)) {
      if (value instanceof Parameter) return none();
    }
    if (output == null) {
      SparkSession session = (SparkSession) SparkSession.active();
      output = session.sessionState()
                   .executePlan(settled(session), CommandExecutionMode$.MODULE$.SKIP())
                   .analyzed()
                   .output();
    }
    return output;
  }

  protected Seq run(SparkSession session) { return rows(session, settled(session)); }

  /** The statement with its parameters bound and its names resolved, as if it had been parsed so. */
  private LogicalPlan settled(final SparkSession session) {
    LogicalPlan bound = (LogicalPlan) statement.transformAllExpressions(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) { return node instanceof Parameter; }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        return isDefinedAt(node) ? value(((Parameter) node).name()) : otherwise.apply(node);
      }
    });
    // Downwards: the plan behind a name may have the name once more inside, as ADD CONSTRAINT has.
    LogicalPlan named = (LogicalPlan) bound.transformDown(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) { return node instanceof PlanWithUnresolvedIdentifier; }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        return isDefinedAt(node) ? named(session, (PlanWithUnresolvedIdentifier) node) : otherwise.apply(node);
      }
    });
    if (hasOpenName(named)) return named;
    LogicalPlan answered = Statements.withDeltaCommands(session, named);
    // Spark does not know a statement that only Delta has. On a table of another format, Python refuses it.
    return answered instanceof DeltaStatement ? new DeltaCommand(answered, "null") : answered;
  }

  private static boolean hasOpenName(LogicalPlan plan) {
    if (plan instanceof PlanWithUnresolvedIdentifier) return true;
    for (Object child : CollectionConverters.asJava(plan.children())) {
      if (hasOpenName((LogicalPlan) child)) return true;
    }
    return false;
  }

  private Object value(String name) { return values.apply(parameters.indexOf(name)); }

  /** The plan for the name that the expression gives. If it gives none, the plan stays, and Spark refuses it. */
  public static LogicalPlan named(SparkSession session, PlanWithUnresolvedIdentifier plan) {
    if (plan.identifierExpr() instanceof Parameter) return plan;
    Object name = Expressions.value(session, plan.identifierExpr());
    if (!(name instanceof String)) return plan;
    try {
      return (LogicalPlan) plan.planBuilder().apply(
          session.sessionState().sqlParser().parseMultipartIdentifier((String) name), plan.children());
    } catch (ParseException e) {
      return plan;
    }
  }

  private static void addParameters(LogicalPlan plan, List found) {
    for (Object part : CollectionConverters.asJava(plan.expressions())) addParameters((Expression) part, found);
    for (Object child : CollectionConverters.asJava(plan.children())) addParameters((LogicalPlan) child, found);
  }

  private static void addParameters(Expression expression, List found) {
    if (expression instanceof Parameter) found.add(expression);
    for (Object child : CollectionConverters.asJava(expression.children())) addParameters((Expression) child, found);
  }

  public int productArity() { return 3; }

  public Object productElement(int i) { return i == 0 ? statement : i == 1 ? (Object) parameters : values; }

  public String productElementName(int i) { return i == 0 ? "statement" : i == 1 ? "parameters" : "values"; }
}
