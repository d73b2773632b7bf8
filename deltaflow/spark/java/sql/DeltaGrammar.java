package io.deltaflow.spark.sql;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import io.deltaflow.spark.bridge.Python;
import io.deltaflow.spark.expressions.Plans;
import org.antlr.v4.runtime.CharStreams;
import org.antlr.v4.runtime.CommonToken;
import org.antlr.v4.runtime.ParserRuleContext;
import org.antlr.v4.runtime.Token;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.analysis.PlanWithUnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer;
import org.apache.spark.sql.catalyst.parser.UpperCaseCharStream;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.command.ExplainCommand;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Parses the statements that Delta adds to Spark's. Spark's lexer divides the text into tokens, Python finds the
 * statement that they make, and Spark's parser parses the expressions in it. Crossings into Python: 1 if the first
 * word may begin a statement of Delta's.
 */
public final class DeltaGrammar {
  private static final String UNKNOWN = "TABLE_OR_VIEW_NOT_FOUND";
  private static volatile JsonNode words;

  private DeltaGrammar() {}

  /**
   * The plan of a statement that Delta adds to Spark's; null for anything else. stage: "before" or "after" Spark's own
   * parser has tried, which takes some of Delta's statements for others. arguments: those of Spark's method parsePlan….
   */
  public static LogicalPlan plan(SparkSession session, ParserInterface parser, String stage, Object[] arguments)
      throws ParseException {
    String text = (String) arguments[0];
    if (!beginsAsOurs(text, stage)) return null;
    if (arguments.length > 1) text = substituted(parser, text, arguments[1]);
    List tokens = tokens(text);
    JsonNode read = Python.call("statement.parse", request(session, text, tokens));
    if (read.get("table").isNull()) return null;
    LogicalPlan table = table(session, parser, read.get("table"));
    if (table == null) return null;
    if (!read.get("mismatch").isNull()) {
      if (isDelta(session, table)) throw syntaxError(tokens, read.get("mismatch").asInt());
      return null;
    }
    JsonNode found = read.get("statement");
    List values = new ArrayList();
    try {
      for (JsonNode value : found.get("values")) values.add(parser.parseExpression(inPlace(value)));
    } catch (ParseException e) {
      if (isDelta(session, table)) throw e;
      return null;
    }
    LogicalPlan statement =
        new DeltaStatement(found.get("name").asText(), found.get("fields").toString(), Plans.seq(values), table);
    LogicalPlan answered = Statements.withDeltaCommands(session, statement);
    if (answered == statement) {
      LogicalPlan taken = stage.equals("before") ? wordBefore(tokens, read.get("table")) : null;
      if (taken != null && !problem(session, taken).equals(UNKNOWN)) return null;
      String problem = problem(session, table);
      // Nobody can run the statement: Python refuses it. If there is no such table, Spark's analysis has the error.
      if (problem.isEmpty() && !found.get("isSparksToo").asBoolean()) answered = new DeltaCommand(statement, "null");
      else if (!problem.equals(UNKNOWN)) return null;
    }
    if (found.get("explain").isNull()) return answered;
    ExplainCommand explain = (ExplainCommand) parser.parsePlan(found.get("explain").asText() + "SELECT 1");
    return explain.copy(answered, explain.mode());
  }

  private static boolean isDelta(SparkSession session, LogicalPlan table) {
    return table instanceof UnresolvedRelation && TableNames.find(session, Statements.nameOf(table)) != null;
  }

  /** The relation for which Spark's parser takes the word before the table's name (DESCRIBE HISTORY, DETAIL). */
  private static LogicalPlan wordBefore(List tokens, JsonNode name) {
    String before = null;
    for (Object token : tokens) {
      if (((Token) token).getStartIndex() >= ((JsonNode) name.get(1)).asInt()) break;
      before = ((Token) token).getText();
    }
    return relation(Arrays.asList(new Object[] {before}));
  }

  /** The error with which Spark cannot read the table or view of a name, by its condition; empty if it can. */
  private static String problem(SparkSession session, LogicalPlan table) {
    if (!(table instanceof UnresolvedRelation)) return "no name";
    try {
      session.table(Statements.quotedName(table));
      return "";
    } catch (Exception e) {
      // A checked exception that is not declared cannot be caught by its name.
      return e instanceof AnalysisException ? String.valueOf(((AnalysisException) e).getCondition()) : e.toString();
    }
  }

  private static boolean beginsAsOurs(String text, String stage) {
    if (words == null) words = Python.call("statement.words", new LinkedHashMap());
    Token first = next(lexer(text));
    if (first == null) return false;
    String word = first.getText().toUpperCase(Locale.ROOT);
    for (JsonNode ours : words.get(stage)) {
      if (ours.asText().equals(word)) return true;
    }
    return false;
  }

  /**
   * The text with the values of spark.sql(text, args). Later releases of Spark put them into a text before they parse
   * it, but only into a statement that they know. So Spark puts them into a query of the same parameters. A parameter
   * without a value stays in the text, and Spark raises its error in the analysis.
   */
  private static String substituted(ParserInterface parser, String text, Object parameters) throws ParseException {
    List markers = markers(text);
    if (markers.isEmpty()) return text;
    StringBuilder query = new StringBuilder("SELECT ");
    for (Object marker : markers) {
      query.append(query.length() > "SELECT ".length() ? ", " : "").append(slice(text, (int[]) marker));
    }
    LogicalPlan values;
    try {
      values = parser.parsePlan(withValues(query.toString(), parameters));
    } catch (ReflectiveOperationException e) {
      return text;
    }
    StringBuilder filled = new StringBuilder();
    int at = 0;
    for (Object value : CollectionConverters.asJava(((Project) values).projectList())) {
      int[] marker = (int[]) markers.remove(0);
      filled.append(slice(text, new int[] {at, marker[0]}));
      filled.append(((Expression) ((Expression) value).children().head()).sql());
      at = marker[1];
    }
    return filled + slice(text, new int[] {at, text.codePointCount(0, text.length())});
  }

  private static String withValues(String query, Object parameters) throws ReflectiveOperationException {
    Class handler = Class.forName("org.apache.spark.sql.catalyst.parser.ParameterHandler");
    for (Method method : handler.getMethods()) {
      if (!method.getName().equals("substituteParameters")) continue;
      return (String) ((Tuple2) method.invoke(null, new Object[] {query, parameters}))._1();
    }
    throw new NoSuchMethodException("substituteParameters");
  }

  /** Where the text has ? or :name, in code points, as Spark's lexer counts. */
  private static List markers(String text) {
    List tokens = tokens(text);
    List markers = new ArrayList();
    for (int i = 0; i < tokens.size(); i++) {
      Token token = (Token) tokens.get(i);
      boolean isNamed = token.getType() == SqlBaseLexer.COLON && i + 1 < tokens.size();
      if (!isNamed && token.getType() != SqlBaseLexer.QUESTION) continue;
      Token last = isNamed ? (Token) tokens.get(i + 1) : token;
      markers.add(new int[] {token.getStartIndex(), last.getStopIndex() + 1});
    }
    return markers;
  }

  private static String slice(String text, int[] range) {
    int begin = text.offsetByCodePoints(0, range[0]);
    return text.substring(begin, text.offsetByCodePoints(begin, range[1] - range[0]));
  }

  private static SqlBaseLexer lexer(String text) {
    SqlBaseLexer lexer = new SqlBaseLexer(new UpperCaseCharStream(CharStreams.fromString(text)));
    lexer.removeErrorListeners();
    return lexer;
  }

  private static Token next(SqlBaseLexer lexer) {
    while (true) {
      Token token = lexer.nextToken();
      if (token.getType() == Token.EOF) return null;
      if (token.getChannel() == Token.DEFAULT_CHANNEL) return token;
    }
  }

  private static List tokens(String text) {
    SqlBaseLexer lexer = lexer(text);
    List tokens = new ArrayList();
    for (Token token = next(lexer); token != null; token = next(lexer)) tokens.add(token);
    return tokens;
  }

  /** Whether text in double quotes is a name to this session, and no string. */
  private static boolean namesAreQuotedTwice(SparkSession session) {
    return session.sessionState().conf().doubleQuotedIdentifiers();
  }

  private static Map request(SparkSession session, String text, List tokens) {
    List words = new ArrayList();
    for (Object item : tokens) {
      Token token = (Token) item;
      boolean isName = token.getType() == SqlBaseLexer.DOUBLEQUOTED_STRING && namesAreQuotedTwice(session);
      String type = isName ? "DOUBLEQUOTED_IDENTIFIER" : SqlBaseLexer.VOCABULARY.getSymbolicName(token.getType());
      words.add(Arrays.asList(
          new Object[] {type, Integer.valueOf(token.getStartIndex()), Integer.valueOf(token.getStopIndex() + 1)}));
    }
    Map request = new LinkedHashMap();
    request.put("text", text);
    request.put("tokens", words);
    return request;
  }

  /** A part of the text behind as many spaces as come before it: parameters and errors have a position. */
  private static String inPlace(JsonNode part) {
    char[] before = new char[((JsonNode) part.get(1)).asInt()];
    Arrays.fill(before, ' ');
    return new String(before) + ((JsonNode) part.get(0)).asText();
  }

  /** The relation that Spark makes of the name; null if Spark does not read it as a name. */
  private static LogicalPlan table(SparkSession session, ParserInterface parser, JsonNode name) {
    String text = ((JsonNode) name.get(0)).asText();
    LogicalPlan table;
    try {
      if (text.startsWith("'") || text.startsWith("\"") && !namesAreQuotedTwice(session)) {
        String path = String.valueOf(((Literal) parser.parseExpression(text)).value());
        return relation(Arrays.asList(new Object[] {"delta", path}));
      }
      table = parser.parsePlan("TABLE" + inPlace(name).substring("TABLE".length()));
    } catch (ParseException e) {
      return null;
    }
    if (!(table instanceof PlanWithUnresolvedIdentifier) || LateStatement.hasParameters(table)) return table;
    return LateStatement.named(session, (PlanWithUnresolvedIdentifier) table);
  }

  private static LogicalPlan relation(List parts) {
    return new UnresolvedRelation(Plans.seq(parts), CaseInsensitiveStringMap.empty(), false);
  }

  private static ParseException syntaxError(List tokens, int at) {
    boolean isEnd = at == tokens.size();
    Token token = (Token) tokens.get(isEnd ? at - 1 : at);
    if (isEnd) {
      CommonToken end = new CommonToken(token);
      end.setCharPositionInLine(token.getCharPositionInLine() + token.getText().length());
      token = end;
    }
    ParserRuleContext context = new ParserRuleContext();
    context.start = token;
    context.stop = token;
    Map parameters = new LinkedHashMap();
    parameters.put("error", isEnd ? "end of input" : "'" + token.getText() + "'");
    parameters.put("hint", "");
    return new ParseException("PARSE_SYNTAX_ERROR",
        scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(parameters)), context);
  }
}
