package io.deltaflow.spark.sql;

import java.lang.reflect.Method;
import java.util.Collections;

import io.deltaflow.spark.scan.ChangeFeeds;
import io.deltaflow.spark.scan.PinScans;
import io.deltaflow.spark.scan.Relations;
import io.deltaflow.spark.scan.TableScan;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CacheManager;
import org.apache.spark.sql.execution.CachedData;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** What Spark has cached of the newest version of a table, which a write makes old. */
public final class CachedFrames {
  private CachedFrames() {}

  /**
   * Lets Spark read anew what it has cached of the table. Spark finds the plans that read it with the schema of now and
   * without options. All others (of an older schema, with options, in a subquery, of the change rows up to now) are
   * cached no more: to plan them anew could fail, and the write is done.
   *
   * Crossings into Python: 1, if anything is cached.
   */
  public static void readAnew(SparkSession session, String path) {
    CacheManager cache = session.sharedState().cacheManager();
    if (cache.isEmpty()) return;
    LogicalRelation table = Relations.node(session, path, Collections.emptyMap());
    Path root = PinScans.scan(table).root();
    for (Object cached : CollectionConverters.asJava(all(cache))) {
      LogicalPlan plan = ((CachedData) cached).plan();
      if (isOld(plan, root, table)) cache.uncacheQuery(session, plan, true);
    }
    cache.recacheByPlan(session, table);
  }

  private static Seq all(CacheManager cache) {
    try {
      Method cached = CacheManager.class.getDeclaredMethod("cachedData");
      cached.setAccessible(true);
      return (Seq) cached.invoke(cache);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Whether a plan reads the table's newest version otherwise than as `table`; without it, whether it does at all. */
  private static boolean isOld(LogicalPlan plan, Path root, LogicalRelation table) {
    TableScan scan = PinScans.scan(plan);
    if (scan != null && !scan.isPinned() && scan.root().equals(root)) return table == null || !plan.sameResult(table);
    if (root.equals(ChangeFeeds.rootOfOpenRange(plan))) return true;
    for (Object child : CollectionConverters.asJava(plan.children())) {
      if (isOld((LogicalPlan) child, root, table)) return true;
    }
    for (Object subquery : CollectionConverters.asJava(plan.subqueries())) {
      if (isOld((LogicalPlan) subquery, root, null)) return true;
    }
    return false;
  }
}
