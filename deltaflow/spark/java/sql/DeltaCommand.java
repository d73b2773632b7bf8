package io.deltaflow.spark.sql;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.bridge.Settings;
import io.deltaflow.spark.expressions.Plans;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * A statement on a Delta table. Python runs it when Spark runs the command, and not before: EXPLAIN and scripts
 * parse and analyze it without running it. Crossings into Python: 1.
 */
public final class DeltaCommand extends StatementCommand {
  private final LogicalPlan statement;
  private final String table;
  private transient Seq output;

  /** table: the JSON object that tells Python about the table; "null" if the statement has none yet. */
  public DeltaCommand(LogicalPlan statement, String table) {
    this.statement = statement;
    this.table = table;
  }

  /** The output that Python describes, or else that of Spark's plan for the statement. */
  public Seq output() {
    if (output != null) return output;
    LogicalPlan parsed = Statements.statementOf(statement);
    JsonNode schema = Statements.description(parsed).get("output");
    output =
        schema.isNull() ? parsed.output() : DataTypeUtils.toAttributes((StructType) DataType.fromJson(schema.asText()));
    return output;
  }

  protected Seq run(SparkSession session) {
    List expressions = new ArrayList();
    LogicalPlan parsed = Statements.statementOf(statement);
    Map request = new LinkedHashMap();
    request.put("statement", Statements.statementName(parsed));
    request.put("table", Python.parse(table));
    request.put("name", Statements.writtenName(parsed));
    request.put("fields", StatementFields.of(parsed, expressions));
    request.put("settings", Settings.ofDelta(session));
    JsonNode answer;
    RunningStatement running = new RunningStatement(session, statement, expressions);
    try {
      request.put("handle", running.handle());
      answer = Python.call("statement.run", request);
    } finally {
      running.close();
    }
    if (answer.hasNonNull("changed")) CachedFrames.readAnew(session, answer.get("changed").asText());
    return Plans.seq(StatementRows.of(answer.get("rows"), schema()));
  }

  public int productArity() { return 2; }

  public Object productElement(int i) { return i == 0 ? (Object) statement : table; }

  public String productElementName(int i) { return i == 0 ? "statement" : "table"; }
}
