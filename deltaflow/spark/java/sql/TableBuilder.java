package io.deltaflow.spark.sql;

import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import com.fasterxml.jackson.databind.JsonNode;
import io.deltaflow.spark.bridge.Python;
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.ColumnDefinition;
import org.apache.spark.sql.catalyst.plans.logical.CreateTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceTable;
import org.apache.spark.sql.catalyst.plans.logical.TableSpec;
import org.apache.spark.sql.catalyst.plans.logical.TableSpecBase;
import org.apache.spark.sql.catalyst.util.QuotingUtils;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.expressions.ClusterByTransform;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Runs CREATE or REPLACE TABLE for a builder in Python: it makes the plan that SQL's parser would make. */
public final class TableBuilder {
  private TableBuilder() {}

  /** Runs the statement. 1 crossing from Python, beside those of DeltaCatalog. */
  public static void run(SparkSession session, String request) throws ParseException {
    Dataset.ofRows(session, plan(session, Python.parse(request)));
  }

  private static LogicalPlan plan(SparkSession session, JsonNode told) throws ParseException {
    ParserInterface parser = session.sessionState().sqlParser();
    LogicalPlan name =
        new UnresolvedIdentifier(told.hasNonNull("name") ? parser.parseMultipartIdentifier(told.get("name").asText())
                                                         : seq(ofPath(session, told.get("location").asText())),
            false);
    List columns = new ArrayList();
    StructType schema = (StructType) DataType.fromJson(told.get("schema").asText());
    for (StructField field : schema.fields()) columns.add(ColumnDefinition.fromV1Column(field, parser));
    List partitioning = new ArrayList();
    for (JsonNode column : told.get("partitionedBy")) {
      partitioning.add(Expressions.identity(QuotingUtils.quoteIdentifier(column.asText())));
    }
    if (!told.get("clusterBy").isEmpty()) {
      List names = new ArrayList();
      for (JsonNode column : told.get("clusterBy")) names.add(Expressions.column(column.asText()));
      partitioning.add(new ClusterByTransform(seq(names)));
    }
    boolean isLenient = told.get("isLenient").asBoolean();
    if (told.get("replaces").asBoolean()) {
      return new ReplaceTable(name, seq(columns), seq(partitioning), spec(told), isLenient);
    }
    return new CreateTable(name, seq(columns), seq(partitioning), spec(told), isLenient);
  }

  /** The name of a path. If the session catalog is another project's, it is a name in our own catalog. */
  private static List ofPath(SparkSession session, String path) {
    boolean isOurs = session.sessionState().catalogManager().v2SessionCatalog() instanceof DeltaCatalog;
    return isOurs ? Arrays.asList("delta", path) : Arrays.asList("deltaflow", "delta", path);
  }

  /** Made by reflection: newer releases have further fields, which are lists that the builder leaves empty. */
  private static TableSpecBase spec(JsonNode told) {
    Object[] known = {CatalogEntries.scalaMap(Python.strings(told.get("properties"))), Option.apply("delta"),
        CatalogEntries.scalaMap(new java.util.HashMap()), text(told, "location"), text(told, "comment"), Option.empty(),
        Option.empty(), Boolean.FALSE};
    Constructor constructor = TableSpec.class.getConstructors()[0];
    Object[] fields = Arrays.copyOf(known, constructor.getParameterTypes().length);
    Arrays.fill(fields, known.length, fields.length, seq(new ArrayList()));
    return (TableSpecBase) CatalogEntries.made(constructor, fields);
  }

  private static Option text(JsonNode told, String field) {
    return Option.apply(told.hasNonNull(field) ? told.get(field).asText() : null);
  }

  private static Seq seq(List list) { return CollectionConverters.asScala(list).toSeq(); }
}
