package io.deltaflow.spark.sql;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.expressions.Plans;
import io.deltaflow.spark.write.FileWrite;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * A statement on a Delta table, which Python answers when Spark runs its commands, and not before:
 * EXPLAIN and scripts parse and analyze without running. Crossings into Python: 1.
 */
public final class DeltaCommand extends StatementCommand {
  private final LogicalPlan statement;
  private final String table;
  private transient Seq output;

  /** table is the JSON object that tells Python about the table; "null" for a statement that is about none yet. */
  public DeltaCommand(LogicalPlan statement, String table) {
    this.statement = statement;
    this.table = table;
  }

  /** That of Spark's plan for the statement, unless its kind has one of its own. */
  public Seq output() {
    if (output != null) return output;
    LogicalPlan parsed = Statements.statementOf(statement);
    JsonNode kind = Statements.kind(parsed);
    JsonNode schema = kind.get("asksForOutput").asBoolean()
        ? Python.call("statement.output", request(new ArrayList())).get("output")
        : kind.get("output");
    output =
        schema.isNull() ? parsed.output() : DataTypeUtils.toAttributes((StructType) DataType.fromJson(schema.asText()));
    return output;
  }

  protected Seq run(SparkSession session) {
    List expressions = new ArrayList();
    Map request = request(expressions);
    request.put("settings", FileWrite.deltaSettings(session));
    JsonNode answer;
    RunningStatement running = new RunningStatement(session, statement, expressions);
    try {
      request.put("handle", running.handle());
      answer = Python.call("statement.run", request);
    } finally {
      running.close();
    }
    if (answer.hasNonNull("changed")) DeltaV1Write.recache(session, answer.get("changed").asText());
    return Plans.seq(StatementRows.of(answer.get("rows"), schema()));
  }

  private Map request(List expressions) {
    LogicalPlan parsed = Statements.statementOf(statement);
    Map request = new LinkedHashMap();
    request.put("kind", Statements.kindOf(parsed));
    request.put("table", Python.parse(table));
    request.put("statement", StatementFields.of(parsed, expressions));
    return request;
  }

  public int productArity() { return 2; }

  public Object productElement(int i) { return i == 0 ? (Object) statement : table; }

  public String productElementName(int i) { return i == 0 ? "statement" : "table"; }
}
