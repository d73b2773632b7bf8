package io.deltaflow.spark.bridge;

import java.lang.reflect.InvocationTargetException;
import java.util.Properties;

import org.apache.spark.SparkContext;
import org.apache.spark.SparkContext$;
import org.apache.spark.sql.classic.SparkSession;
import scala.Function0;
import scala.Option;

/**
 * What Spark keeps for a thread: the local properties (job group, SQL execution and others), the active session, and
 * the SQL script that runs. It is copied to the thread that calls Python, so that jobs that Python starts belong to the
 * caller's thread, and expressions find the variables of the script.
 *
 * Every call needs it, because a thread of the pool inherits the properties of the thread that first needed it. The
 * copy takes about a microsecond; a call into Python takes hundreds.
 */
public final class SparkThread {
  /** Spark's object that has the script of each thread; null if this Spark has none. */
  private static final Object SCRIPTS =
      firstOf("org.apache.spark.sql.catalyst.SqlScriptingContextManager$", // Spark 4.1 and newer
          "org.apache.spark.sql.catalyst.SqlScriptingLocalVariableManager$");

  private final SparkContext context;
  private final Properties properties;
  private final Option session;
  /** What has the variables of the script; none outside of scripts. */
  private final Option script;

  private SparkThread(SparkContext context, Properties properties, Option session, Option script) {
    this.context = context;
    this.properties = properties;
    this.session = session;
    this.script = script;
  }

  /** The state of the current thread. */
  public static SparkThread current() {
    Option active = SparkContext$.MODULE$.getActive();
    SparkContext context = active.isEmpty() ? null : (SparkContext) active.get();
    Properties properties = context == null ? null : (Properties) context.getLocalProperties().clone();
    Option script = SCRIPTS == null ? Option.empty() : (Option) call(SCRIPTS, "get", null, null);
    return new SparkThread(context, properties, SparkSession.getActiveSession(), script);
  }

  /** Does the work on the current thread, which has this state meanwhile. */
  public Object run(Function0 work) {
    enter();
    try {
      if (script.isEmpty()) return work.apply();
      Object handle = call(SCRIPTS, "createHandle", Option.class, script);
      return call(handle, "runWith", Function0.class, work);
    } finally {
      leave();
    }
  }

  private void enter() {
    if (context != null) context.setLocalProperties(properties);
    if (session.isEmpty()) SparkSession.clearActiveSession();
    else SparkSession.setActiveSession((SparkSession) session.get());
  }

  private void leave() {
    if (context != null) context.setLocalProperties(new Properties());
    SparkSession.clearActiveSession();
  }

  /** The first of these Scala objects that this Spark has; null without any. */
  private static Object firstOf(String... names) {
    for (String name : names) {
      try {
        return Class.forName(name).getField("MODULE$").get(null);
      } catch (ClassNotFoundException e) {
        continue; // Another release has another one, or none.
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
    return null;
  }

  /** Calls a method whose class has another name in another release; parameter: null for a method without any. */
  private static Object call(Object target, String method, Class parameter, Object argument) {
    Class[] parameters = parameter == null ? new Class[0] : new Class[] {parameter};
    Object[] arguments = parameter == null ? new Object[0] : new Object[] {argument};
    try {
      return target.getClass().getMethod(method, parameters).invoke(target, arguments);
    } catch (InvocationTargetException e) {
      throw Thrown.asIs(e.getCause());
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }
}
