package io.deltaflow.spark.sql;

import java.util.Collections;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;

import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.expressions.Expressions;
import io.deltaflow.spark.expressions.Frames;
import io.deltaflow.spark.expressions.Plans;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.AliasIdentifier;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedWith;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.classic.SparkSession;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;

/** A statement while Python runs it. Python finds it by its handle, and asks it for its session and expressions. */
public final class RunningStatement implements AutoCloseable {
  private static final ConcurrentHashMap RUNNING = new ConcurrentHashMap();

  private final Long handle = Long.valueOf(Python.newHandle());
  private final SparkSession session;
  private final LogicalPlan plan;
  private final List expressions;

  /** The statement's fields refer to the expressions by number. */
  public RunningStatement(SparkSession session, LogicalPlan plan, List expressions) {
    this.session = session;
    this.plan = plan;
    this.expressions = expressions;
    RUNNING.put(handle, this);
  }

  /** For Python; null if the statement is over because its caller was interrupted. */
  public static RunningStatement find(long handle) { return (RunningStatement) RUNNING.get(Long.valueOf(handle)); }

  /** How many statements run, for tests. */
  public static int running() { return RUNNING.size(); }

  public Long handle() { return handle; }

  public SparkSession session() { return session; }

  /** An expression of the statement, as it was parsed; its subqueries may use the names of a WITH clause. */
  public Column column(int number) {
    Expression expression = (Expression) expressions.get(number);
    return ExpressionUtils.column(plan instanceof UnresolvedWith ? behindWith(expression) : expression);
  }

  private Expression behindWith(Expression expression) {
    return (Expression) expression.transform(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) { return node instanceof SubqueryExpression; }

      public Object applyOrElse(Object node, Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        SubqueryExpression subquery = (SubqueryExpression) node;
        return subquery.withNewPlan(withNames((LogicalPlan) subquery.plan()));
      }
    });
  }

  /** The relation behind the statement's WITH clause. */
  private LogicalPlan withNames(LogicalPlan relation) {
    return (LogicalPlan) plan.withNewChildren(Plans.seq(Collections.singletonList(relation)));
  }

  /** The value of a constant expression of the statement: a number, a boolean, a string, or null. */
  public Object constant(int number) { return Expressions.value(session, (Expression) expressions.get(number)); }

  /** An expression of the statement as SQL. */
  public String sql(int number) { return ((Expression) expressions.get(number)).sql(); }

  /** The relation in a field of the plan; it may use the names of a WITH clause. */
  public org.apache.spark.sql.Dataset frame(String field) {
    LogicalPlan relation = (LogicalPlan) Statements.field(Statements.statementOf(plan), field);
    return Dataset.ofRows(session, plan instanceof UnresolvedWith ? withNames(relation) : relation);
  }

  /** Rows under the alias that the statement gives to its table, or under the table's name. */
  public org.apache.spark.sql.Dataset named(org.apache.spark.sql.Dataset rows, String table) {
    LogicalPlan statement = Statements.statementOf(plan);
    String field = Statements.description(statement).get("tableField").asText();
    Object target = Statements.field(statement, field);
    AliasIdentifier name =
        target instanceof SubqueryAlias ? ((SubqueryAlias) target).identifier() : Frames.name(session, table);
    return Frames.named(session, rows, name);
  }

  public void close() { RUNNING.remove(handle); }
}
