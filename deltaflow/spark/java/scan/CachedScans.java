package io.deltaflow.spark.scan;

import java.util.List;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.deltaflow.spark.bridge.Python;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.DataSourceScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import scala.jdk.javaapi.CollectionConverters;

/** Finds the scans that filled Spark's cache for a query, which reads their versions. */
public final class CachedScans {
  private CachedScans() {}

  /** Adds their descriptions, which say that they are "cached". */
  public static void addTo(List descriptions, LogicalPlan withCachedData) {
    addLeaves(descriptions, withCachedData);
    for (Object subquery : CollectionConverters.asJava(withCachedData.subqueriesAll())) {
      addLeaves(descriptions, (LogicalPlan) subquery);
    }
  }

  private static void addLeaves(List descriptions, LogicalPlan plan) {
    for (Object leaf : CollectionConverters.asJava(plan.collectLeaves())) {
      if (leaf instanceof InMemoryRelation) addCached(descriptions, (InMemoryRelation) leaf);
    }
  }

  private static void addCached(List descriptions, InMemoryRelation cached) {
    add(descriptions, cached.cacheBuilder().cachedPlan());
  }

  private static void add(List descriptions, SparkPlan plan) {
    if (plan instanceof DataSourceScanExec) {
      Object relation = ((DataSourceScanExec) plan).relation();
      Object files = relation instanceof HadoopFsRelation ? ((HadoopFsRelation) relation).location() : null;
      if (files instanceof TableScan) {
        ObjectNode description = (ObjectNode) Python.parse(((TableScan) files).description());
        descriptions.add(description.put("cached", true).toString());
      }
    }
    if (plan instanceof InMemoryTableScanExec) addCached(descriptions, ((InMemoryTableScanExec) plan).relation());
    if (plan instanceof AdaptiveSparkPlanExec) add(descriptions, ((AdaptiveSparkPlanExec) plan).inputPlan());
    if (plan instanceof QueryStageExec) add(descriptions, ((QueryStageExec) plan).plan());
    for (Object child : CollectionConverters.asJava(plan.children())) add(descriptions, (SparkPlan) child);
    for (Object subquery : CollectionConverters.asJava(plan.subqueries())) add(descriptions, (SparkPlan) subquery);
  }
}
