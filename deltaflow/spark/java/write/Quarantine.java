package io.deltaflow.spark.write;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;

import com.fasterxml.jackson.databind.JsonNode;
import io.deltaflow.spark.expressions.Checkpoints;
import io.deltaflow.spark.expressions.Plans;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Concat;
import org.apache.spark.sql.catalyst.expressions.ConcatWs;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.TryEval;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.columnar.DefaultCachedBatchSerializer;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.columnar.InMemoryRelation$;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.storage.StorageLevel;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Divides the rows of a micro-batch into those that fit the table, and those that do not, each with the reason.
 *
 * The batch's plan runs once: a local checkpoint keeps its rows, in memory or on disk, until both parts are written.
 * Spark's TryEval makes an expression null for a row for which it throws. An expression that may be null anyway is
 * put into a struct of one field, which is null for no other reason.
 */
public final class Quarantine {
  private final SparkSession session;
  private final JsonNode plan;
  private final JsonNode target;
  private final List frame;
  private final List table;
  private final Attribute reason;
  private final InMemoryRelation rows;

  /**
   * batch: the physical plan of the frame. plan: Python's Target of the write into the table. target: that of the
   * write into the quarantine.
   */
  public Quarantine(SparkSession session, SparkPlan batch, JsonNode plan, JsonNode target) {
    this.session = session;
    this.plan = plan;
    this.target = target;
    frame = Plans.renamed(batch.output(), Plans.schema(plan.get("frameSchema").asText()));
    List reasons = new ArrayList();
    Project cast = Plans.projection(RowChanges.cast(session, frame, plan));
    LogicalPlan tried = tried(Plans.standIn(frame), cast, frame, target.get("castErrors"), reasons);
    Project selected = Plans.projection(RowChanges.selected(session, cast, plan));
    tried = tried(tried, selected, outputOf(cast), target.get("valueErrors"), reasons);
    // Columns that are computed have no value to be shown.
    LogicalPlan numbered = RowChanges.numbered(session, selected, plan);
    if (numbered != selected) {
      selected = Plans.projection(numbered);
      tried = tried(tried, selected, new ArrayList(), target.get("valueErrors"), reasons);
    }
    LogicalPlan generated = RowChanges.generated(session, selected, plan);
    if (generated != selected) {
      selected = Plans.projection(generated);
      tried = tried(tried, selected, new ArrayList(), target.get("valueErrors"), reasons);
    }
    table = outputOf(selected);
    List violations = new ArrayList();
    for (JsonNode check : plan.get("checks")) {
      Expression[] analyzed = RowChanges.check(session, selected, check, plan.get("path").asText());
      violations.add(new If(new IsNull(nullIfItThrows(onlyTrue(analyzed[0]))), analyzed[1], nothing()));
    }
    // A row whose values do not fit would fail the checks only because of that.
    Expression misfits = lines(reasons);
    Expression all = new If(new EqualTo(misfits, RowChanges.text("")), lines(violations), misfits);
    Alias reasonOrNull = Plans.alias(new If(new EqualTo(all, RowChanges.text("")), nothing(), all), "reason");
    List columns = new ArrayList(frame);
    columns.addAll(table);
    columns.add(reasonOrNull);
    SparkPlan judged = Plans.on(session, new Project(Plans.seq(columns), tried), batch);
    reason = reasonOrNull.toAttribute();
    rows = InMemoryRelation$.MODULE$.apply(new DefaultCachedBatchSerializer(), StorageLevel.MEMORY_AND_DISK(), judged,
        Option.empty(), Plans.standIn(columnsOf(judged)));
  }

  /**
   * Judges all rows, in a job of its own, and cuts what they came from. Of a plan that is not deterministic, a part
   * that Spark computed again between the two writes would be judged otherwise: rows would be in both tables, or in
   * none. If an executor is lost with its rows, the batch fails now, and runs again as a whole.
   *
   * By one job, as Dataset.localCheckpoint: an action before it would be a first job, and Spark would compute in
   * another one what an executor has lost meanwhile. Rows that come from a shuffle may be other ones then.
   */
  public void judge() {
    RDD judged = rows.cacheBuilder().cachedColumnBuffers();
    judged.localCheckpoint();
    judged.doCheckpoint();
  }

  /** The rows that fit, as rows of the table. */
  public SparkPlan accepted() { return new ProjectExec(Plans.seq(table), new FilterExec(new IsNull(reason), scan())); }

  /** The attributes of the accepted rows under the table's names. */
  public List columns() { return Plans.renamed(Plans.seq(table), Plans.schema(plan.get("tableSchema").asText())); }

  /** The rows that do not fit, as rows of the quarantine: reason, batch, query, and the row of the frame. */
  public RowChanges refused() {
    StructField row = Plans.schema(target.get("frameSchema").asText()).fields()[3];
    List values = new ArrayList();
    for (int i = 0; i < frame.size(); i++) {
      values.add(RowChanges.text(((StructType) row.dataType()).fields()[i].name()));
      values.add(frame.get(i));
    }
    List columns = new ArrayList();
    columns.add(reason);
    columns.add(Plans.alias(Literal.create(Long.valueOf(target.get("batchId").asLong()), DataTypes.LongType), "batch"));
    columns.add(Plans.alias(RowChanges.text(target.get("queryId").asText()), "query"));
    columns.add(Plans.alias(new CreateNamedStruct(Plans.seq(values)), "row"));
    return new RowChanges(
        session, new ProjectExec(Plans.seq(columns), new FilterExec(new IsNotNull(reason), scan())), target);
  }

  /** Of how many parts of the judged rows there are several copies. */
  public int partsJudgedTwice() { return Checkpoints.computedTwice(rows.cacheBuilder().cachedColumnBuffers()); }

  /** Frees the rows. */
  public void close() { rows.cacheBuilder().clearCache(false); }

  private SparkPlan scan() { return new InMemoryTableScanExec(rows.output(), Plans.seq(new ArrayList()), rows); }

  /**
   * The rows with the values of a projection; a value is null if its expression throws. Adds to reasons, for each
   * column, its error followed by the value of the source column of the same name.
   */
  private LogicalPlan tried(LogicalPlan rows, Project projection, List sources, JsonNode errors, List reasons) {
    List attempts = new ArrayList(CollectionConverters.asJava(rows.output()));
    List values = new ArrayList(attempts);
    Iterator messages = errors.elements();
    for (Object each : CollectionConverters.asJava(projection.projectList())) {
      NamedExpression column = (NamedExpression) each;
      Expression value = each instanceof Alias ? ((Alias) each).child() : (Expression) each;
      Expression struct = new CreateNamedStruct(Plans.seq(Arrays.asList(new Object[] {RowChanges.text("v"), value})));
      Alias attempt = Plans.alias(nullIfItThrows(struct), "attempt");
      attempts.add(attempt);
      Expression of = new GetStructField(attempt.toAttribute(), 0, Option.empty());
      values.add(attempt.toAttribute());
      // A column that only passes through has its attribute already.
      if (each instanceof Alias) values.add(Plans.alias(of, column.name(), column.exprId()));
      Expression text = RowChanges.text(((JsonNode) messages.next()).asText());
      for (Object source : sources) {
        if (!((Attribute) source).name().equals(column.name())) continue;
        text =
            new Concat(Plans.seq(Arrays.asList(new Object[] {text, RowChanges.shown(session, (Expression) source)})));
      }
      reasons.add(new If(new IsNull(attempt.toAttribute()), text, nothing()));
    }
    return new Project(Plans.seq(values), new Project(Plans.seq(attempts), rows));
  }

  /**
   * The If is always true. Spark computes what is twice in a projection once, before all else, and so outside of
   * TryEval; but it does not look for such expressions in one branch of an If.
   */
  private static Expression nullIfItThrows(Expression value) {
    Literal yes = Literal.create(Boolean.TRUE, DataTypes.BooleanType);
    return new TryEval(new If(yes, value, Literal.create(null, value.dataType())));
  }

  private static Expression onlyTrue(Expression condition) {
    return new If(
        condition, Literal.create(Boolean.TRUE, DataTypes.BooleanType), Literal.create(null, DataTypes.BooleanType));
  }

  private static Expression lines(List texts) {
    List all = new ArrayList();
    all.add(RowChanges.text("\n"));
    all.addAll(texts);
    return new ConcatWs(Plans.seq(all));
  }

  private static Expression nothing() { return Literal.create(null, DataTypes.StringType); }

  private static List outputOf(LogicalPlan plan) { return new ArrayList(CollectionConverters.asJava(plan.output())); }

  private static List columnsOf(SparkPlan plan) { return new ArrayList(CollectionConverters.asJava(plan.output())); }
}
