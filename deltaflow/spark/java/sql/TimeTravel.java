package io.deltaflow.spark.sql;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

import io.deltaflow.spark.expressions.Plans;
import org.apache.spark.sql.catalyst.analysis.RelationTimeTravel;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedWith;
import org.apache.spark.sql.classic.SparkSession;
import scala.Function1;
import scala.Option;
import scala.Product;
import scala.Tuple2;
import scala.Tuple3;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * The times of TIMESTAMP AS OF behind a table's path. Spark asks our catalog for a path while it knows the time. In the
 * round before, in which it only finds the time's functions, it takes the path for one of files, and refuses it. So
 * those times are analysed when a statement is parsed. A time that is a subquery is left to Spark, which refuses it.
 */
final class TimeTravel {
  private TimeTravel() {}

  /** The statement with analysed times, or AnalysisException. */
  static LogicalPlan withKnownTimes(final SparkSession session, LogicalPlan statement) {
    return (LogicalPlan) statement.transformWithSubqueries(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) { return node instanceof UnresolvedWith || isOpen(node); }

      public Object applyOrElse(Object node, Function1 otherwise) {
        if (node instanceof UnresolvedWith) return withNames(session, (UnresolvedWith) node);
        return isOpen(node) ? known(session, (RelationTimeTravel) node) : otherwise.apply(node);
      }
    });
  }

  private static boolean isOpen(Object node) {
    if (!(node instanceof RelationTimeTravel)) return false;
    RelationTimeTravel travel = (RelationTimeTravel) node;
    if (travel.timestamp().isEmpty() || !(travel.relation() instanceof UnresolvedRelation)) return false;
    Expression time = (Expression) travel.timestamp().get();
    List name = Statements.nameOf(travel.relation());
    boolean isPath = name.size() == 2 && "delta".equalsIgnoreCase((String) name.get(0));
    boolean isKnownLater = LateStatement.hasParameters(travel) || SubqueryExpression.hasSubquery(time);
    return isPath && !time.resolved() && !isKnownLater;
  }

  private static RelationTimeTravel known(SparkSession session, RelationTimeTravel travel) {
    Alias time = Plans.alias((Expression) travel.timestamp().get(), "time");
    Project project = new Project(Plans.seq(Collections.singletonList(time)), new OneRowRelation());
    LogicalPlan analyzed = Plans.analyzed(session, project);
    // Of an aggregate or a generator, which Spark refuses.
    if (!(analyzed instanceof Project) || !(((Project) analyzed).projectList().head() instanceof Alias)) return travel;
    Expression known = ((Alias) ((Project) analyzed).projectList().head()).child();
    return travel.copy(travel.relation(), Option.apply(known), travel.version());
  }

  /** The queries of a WITH clause are no children of its plan. */
  private static LogicalPlan withNames(SparkSession session, UnresolvedWith with) {
    List queries = new ArrayList();
    for (Object query : CollectionConverters.asJava((Seq) with.productElement(1))) {
      Product named = (Product) query;
      Object known = withKnownTimes(session, (LogicalPlan) named.productElement(1));
      queries.add(named.productArity() == 2 ? new Tuple2(named.productElement(0), known)
                                            : new Tuple3(named.productElement(0), known, named.productElement(2)));
    }
    Object[] fields = new Object[with.productArity()];
    for (int i = 0; i < fields.length; i++) fields[i] = i == 1 ? Plans.seq(queries) : with.productElement(i);
    return (LogicalPlan) with.makeCopy(fields);
  }
}
