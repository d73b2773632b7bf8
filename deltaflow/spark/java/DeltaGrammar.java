package io.deltaflow.spark;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.classic.SparkSession;
import scala.jdk.javaapi.CollectionConverters;

/** Delta's own statements, which Spark's parser takes for errors or, DESCRIBE HISTORY, for another one. */
final class DeltaGrammar {
  private static final Pattern STATEMENT = Pattern.compile(
      "\\s*(VACUUM|OPTIMIZE|REORG\\s+TABLE|RESTORE\\s+TABLE|RESTORE|(?:DESCRIBE|DESC)\\s+(?:HISTORY|DETAIL))\\s+"
          + "((?:`(?:[^`]|``)*`|[^\\s`;(])+)(?:[\\s;(].*)?",
      Pattern.CASE_INSENSITIVE | Pattern.DOTALL);

  private DeltaGrammar() {}

  /** Says that a statement on a Delta table is not there yet; of other tables it is for Spark to speak. */
  static void refuse(SparkSession session, ParserInterface parser, String text) {
    Matcher statement = STATEMENT.matcher(text);
    if (!statement.matches()) return;
    Map table;
    try {
      table = TableNames.find(session,
          new ArrayList(CollectionConverters.asJava(parser.parseMultipartIdentifier(statement.group(2)))));
    } catch (ParseException e) {
      return;
    }
    if (table == null) return;
    Map request = new LinkedHashMap();
    request.put("name", statement.group(1).toUpperCase(Locale.ROOT).replaceAll("\\s+", " "));
    request.put("table", table);
    Python.call("statement.refuse", request);
  }
}
