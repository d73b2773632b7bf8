package io.deltaflow.spark;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A statement on a Delta table, which Python answers when Spark runs its commands, and not before:
 * EXPLAIN and scripts parse and analyze without running. Crossings into Python: 1.
 */
public final class DeltaCommand extends StatementCommand {
  private final LogicalPlan statement;
  private final String table;

  /** table is the JSON object that tells Python about the table; "null" for a statement that is about none yet. */
  public DeltaCommand(LogicalPlan statement, String table) {
    this.statement = statement;
    this.table = table;
  }

  public Seq output() { return Statements.statementOf(statement).output(); }

  protected Seq run(SparkSession session) {
    LogicalPlan parsed = Statements.statementOf(statement);
    Map request = new LinkedHashMap();
    request.put("kind", parsed.getClass().getSimpleName());
    request.put("table", table);
    request.put("statement", StatementFields.of(parsed));
    request.put("settings", TableWrite.deltaSettings(session));
    JsonNode answer = Python.call("statement.run", request);
    if (answer.hasNonNull("changed")) NamedWrite.recache(session, answer.get("changed").asText());
    List rows = new ArrayList();
    for (JsonNode row : answer.get("rows")) rows.add(row(row));
    return CollectionConverters.asScala(rows).toList();
  }

  private static Object row(JsonNode row) {
    Object[] values = new Object[row.size()];
    for (int i = 0; i < values.length; i++) {
      JsonNode value = (JsonNode) row.get(i);
      if (value.isNull()) values[i] = null;
      else if (value.isBoolean()) values[i] = Boolean.valueOf(value.asBoolean());
      else if (value.isNumber()) values[i] = Long.valueOf(value.asLong());
      else values[i] = value.asText();
    }
    return RowFactory.create(values);
  }

  public int productArity() { return 2; }

  public Object productElement(int i) { return i == 0 ? (Object) statement : table; }

  public String productElementName(int i) { return i == 0 ? "statement" : "table"; }
}
