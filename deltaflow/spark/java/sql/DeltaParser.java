package io.deltaflow.spark.sql;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;

import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SessionState;
import scala.runtime.AbstractFunction2;

/**
 * The parser of a session. Spark's own parser parses, then statements on Delta tables become commands of ours.
 * DeltaGrammar parses the statements that only Delta has.
 *
 * It is a proxy, because the interface has other methods in other releases of Spark. All methods whose names begin
 * with parsePlan return the plan of a statement.
 */
public final class DeltaParser implements InvocationHandler {
  private final SparkSession session;
  private final ParserInterface parser;

  private DeltaParser(SparkSession session, ParserInterface parser) {
    this.session = session;
    this.parser = parser;
  }

  public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
    boolean isStatement = method.getName().startsWith("parsePlan");
    LogicalPlan deltas = isStatement ? DeltaGrammar.plan(session, parser, "before", arguments) : null;
    if (deltas != null) return deltas;
    Object parsed;
    try {
      parsed = method.invoke(parser, arguments);
    } catch (InvocationTargetException e) {
      if (isStatement && e.getCause() instanceof ParseException) {
        deltas = DeltaGrammar.plan(session, parser, "after", arguments);
      }
      if (deltas != null) return deltas;
      throw e.getCause();
    }
    // The query of a view.
    boolean isQuery = method.getName().equals("parseQuery");
    return isStatement || isQuery ? Statements.withDeltaCommands(session, (LogicalPlan) parsed) : parsed;
  }

  /** Makes the parsers of new sessions. */
  public static final class Injected extends AbstractFunction2 {
    public Object apply(Object session, Object parser) {
      return over((SparkSession) session, (ParserInterface) parser);
    }
  }

  /** Replaces the parser of an existing session in the two fields that hold it. Idempotent. */
  public static void replace(SparkSession session) {
    SessionState state = session.sessionState();
    ParserInterface ours = over(session, state.sqlParser());
    if (ours == state.sqlParser()) return;
    set(SessionState.class, "sqlParser", state, ours);
    // In some releases, EXECUTE IMMEDIATE parses with this one.
    set(SessionCatalog.class, "parser", state.catalog(), ours);
  }

  private static ParserInterface over(SparkSession session, ParserInterface parser) {
    boolean isProxy = Proxy.isProxyClass(parser.getClass());
    if (isProxy && Proxy.getInvocationHandler(parser) instanceof DeltaParser) return parser;
    return (ParserInterface) Proxy.newProxyInstance(
        DeltaParser.class.getClassLoader(), new Class[] {ParserInterface.class}, new DeltaParser(session, parser));
  }

  private static void set(Class owner, String name, Object target, Object value) {
    try {
      Field field = owner.getDeclaredField(name);
      field.setAccessible(true);
      field.set(target, value);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(owner.getName() + " of this Spark has no field " + name + " that can be set", e);
    }
  }
}
