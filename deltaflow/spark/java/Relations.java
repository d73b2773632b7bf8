package io.deltaflow.spark;

import java.util.HashMap;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** What Python answers about a scan, as the relation that Spark's own Parquet reader scans. */
final class Relations {
  private Relations() {}

  static HadoopFsRelation of(SparkSession session, JsonNode scan) {
    StructType partitionSchema = (StructType) DataType.fromJson(scan.get("partitionSchema").asText());
    StructType dataSchema = (StructType) DataType.fromJson(scan.get("dataSchema").asText());
    TableScan files = new TableScan(scan.get("root").asText(), scan.get("scan").asText(), partitionSchema,
        scan.get("sizeInBytes").asLong(), session.sessionState().conf().sessionLocalTimeZone());
    return new HadoopFsRelation(files, partitionSchema, dataSchema, Option.empty(), new ParquetFileFormat(),
        scala.collection.immutable.Map$.MODULE$.from(
            scala.jdk.javaapi.CollectionConverters.asScala(new HashMap())), session);
  }
}
