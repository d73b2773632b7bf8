package io.deltaflow.spark.scan;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.expressions.TableExpressions;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.optimizer.ColumnPruning;
import org.apache.spark.sql.catalyst.optimizer.PushDownPredicates;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Puts scans in the place of a change data feed: the union of those that Python names at each execution of a query.
 * They come into the plan when Spark's rules have run, so that filters and columns are pushed into them here, by rules
 * of Spark.
 */
public final class ChangeFeeds extends Rule {
  /** Filters and columns reach a scan through a few nodes of the plan, one in each round. */
  private static final int MOST_ROUNDS = 100;

  /** Whether the options of a load ask for change rows. Python refuses values that are no boolean. */
  public static boolean areAsked(Map options) {
    CaseInsensitiveStringMap all = new CaseInsensitiveStringMap(options);
    return isAsked(all.get("readChangeFeed")) || isAsked(all.get("readChangeData"));
  }

  private static boolean isAsked(String option) { return option != null && !option.equalsIgnoreCase("false"); }

  /** The relation with the change rows for a request, which has the path, the options and the settings. */
  public static BaseRelation of(SparkSession session, Map request) {
    JsonNode feed = Python.call("changes.load", request);
    String root = feed.get("root").asText();
    String description = feed.get("scan").asText();
    StructType schema = (StructType) DataType.fromJson(feed.get("schema").asText());
    if (feed.get("isComputed").asBoolean()) return new ComputedChanges(session, root, description, schema);
    return new HadoopFsRelation(new ChangeFeedScan(root, description), new StructType(), schema, Option.empty(),
        new ParquetFileFormat(),
        scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(new java.util.HashMap())), session);
  }

  /** Where the table is whose change rows a relation has up to the newest version; null for all others. */
  public static Path rootOfOpenRange(LogicalPlan node) {
    if (isComputed(node)) {
      ComputedChanges feed = (ComputedChanges) ((LogicalRelation) node).relation();
      return isOpen(feed.description()) ? new Path(feed.root()) : null;
    }
    ChangeFeedScan feed = scan(node);
    return feed != null && isOpen(feed.description()) ? new Path(feed.root()) : null;
  }

  private static boolean isOpen(String range) { return Python.parse(range).get("end").isNull(); }

  public TreeNode apply(TreeNode plan) {
    final Pins pins = Pins.ofThisExecution();
    LogicalPlan before = (LogicalPlan) plan;
    LogicalPlan after = (LogicalPlan) before.transformWithSubqueries(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) { return scan(node) != null || isComputed(node); }

      public Object applyOrElse(Object node, Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        LogicalRelation feed = (LogicalRelation) node;
        return isComputed(node) ? computed(feed, pins) : changeRows(feed, pins);
      }
    });
    return after == before ? before : pushedDown(after);
  }

  private static ChangeFeedScan scan(Object node) {
    if (!(node instanceof LogicalRelation)) return null;
    Object relation = ((LogicalRelation) node).relation();
    if (!(relation instanceof HadoopFsRelation)) return null;
    Object files = ((HadoopFsRelation) relation).location();
    return files instanceof ChangeFeedScan ? (ChangeFeedScan) files : null;
  }

  private static boolean isComputed(Object node) {
    return node instanceof LogicalRelation && ((LogicalRelation) node).relation() instanceof ComputedChanges;
  }

  private static LogicalPlan changeRows(LogicalRelation node, Pins pins) {
    HadoopFsRelation feed = (HadoopFsRelation) node.relation();
    JsonNode answer = pins.changes(scan(node).description(), scan(node).root());
    return union(node, (SparkSession) feed.sparkSession(), feed.dataSchema(), answer);
  }

  /** What Python has computed of the rows of the files that commits have added and removed. */
  private static LogicalPlan computed(LogicalRelation node, Pins pins) {
    ComputedChanges feed = (ComputedChanges) node.relation();
    JsonNode answer = pins.changes(feed.description(), feed.root());
    LogicalPlan rows = union((LogicalRelation) node.newInstance(), feed.session(), feed.schema(), answer);
    if (answer.get("relations").size() == 0) return LocalRelation$.MODULE$.apply(node.output());
    Dataset changes = org.apache.spark.sql.classic.Dataset.ofRows(feed.session(), rows);
    for (JsonNode step : answer.get("steps")) changes = after(changes, step);
    // Most rules of the optimizer have run before this one, so this plan gets all of them by itself.
    LogicalPlan plan = ((org.apache.spark.sql.classic.Dataset) changes).queryExecution().optimizedPlan();
    List columns = new ArrayList();
    for (int i = 0; i < node.output().size(); i++) {
      Attribute column = (Attribute) node.output().apply(i);
      columns.add(new Alias((Attribute) plan.output().apply(i), column.name(), column.exprId(), column.qualifier(),
          Option.apply(column.metadata()), seq(new ArrayList())));
    }
    return new Project(seq(columns), plan);
  }

  private static Dataset after(Dataset rows, JsonNode step) {
    List columns = new ArrayList();
    for (JsonNode column : step.get("columns")) columns.add(TableExpressions.made(column.asText()));
    if (step.get("groupBy").size() > 0) {
      List keys = new ArrayList();
      for (JsonNode key : step.get("groupBy")) keys.add(TableExpressions.made(key.asText()));
      Column[] others = (Column[]) columns.subList(1, columns.size()).toArray(new Column[0]);
      rows = rows.groupBy((Column[]) keys.toArray(new Column[0])).agg((Column) columns.get(0), others);
    } else {
      rows = rows.select((Column[]) columns.toArray(new Column[0]));
    }
    return step.get("condition").isNull() ? rows : rows.where(TableExpressions.made(step.get("condition").asText()));
  }

  private static LogicalPlan union(LogicalRelation node, SparkSession session, StructType schema, JsonNode answer) {
    List scans = new ArrayList();
    for (JsonNode relation : answer.get("relations")) {
      HadoopFsRelation found = Relations.of(session, relation);
      // The feed's own columns: Spark may have left out some of them, and fields of structs.
      scans.add(rows(node,
          new HadoopFsRelation(found.location(), found.partitionSchema(), schema, found.bucketSpec(),
              found.fileFormat(), found.options(), found.sparkSession()),
          scans.isEmpty()));
    }
    if (scans.isEmpty()) return LocalRelation$.MODULE$.apply(node.output());
    return scans.size() == 1 ? (LogicalPlan) scans.get(0) : new Union(seq(scans), false, false);
  }

  /** The rows of one scan in the feed's columns: for the first one the same attributes, which a union then has. */
  private static LogicalPlan rows(LogicalRelation node, HadoopFsRelation scan, boolean first) {
    List columns = new ArrayList();
    List names = new ArrayList();
    for (Object column : CollectionConverters.asJava(node.output())) {
      columns.add(first ? column : ((Attribute) column).newInstance());
      names.add(((Attribute) column).name().toLowerCase());
    }
    List output = new ArrayList(columns);
    for (StructField field : scan.partitionSchema().fields()) {
      if (names.contains(field.name().toLowerCase())) continue;
      output.add(new AttributeReference(
          field.name(), field.dataType(), true, Metadata.empty(), NamedExpression.newExprId(), seq(new ArrayList())));
    }
    LogicalPlan rows = new LogicalRelation(scan, seq(output), Option.empty(), node.isStreaming(), Option.empty());
    return output.size() == columns.size() ? rows : new Project(seq(columns), rows);
  }

  private static LogicalPlan pushedDown(LogicalPlan plan) {
    for (int round = 0; round < MOST_ROUNDS; round++) {
      LogicalPlan pushed = ColumnPruning.apply(PushDownPredicates.apply(plan));
      if (pushed.fastEquals(plan)) return plan;
      plan = pushed;
    }
    return plan;
  }

  private static Seq seq(List list) { return CollectionConverters.asScala(list).toList(); }
}
