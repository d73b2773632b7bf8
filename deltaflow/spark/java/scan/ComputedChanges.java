package io.deltaflow.spark.scan;

import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.StructType;

/**
 * The change rows that are computed for a range of a table's versions, in a plan that the optimizer has not seen yet.
 * It is no relation over files: rows are compared as a whole, so Spark must leave out no column or field of it. The
 * rule ChangeFeeds puts scans, and what is computed of them, in its place.
 */
public final class ComputedChanges extends BaseRelation {
  private final SparkSession session;
  private final String root;
  private final String description;
  private final StructType schema;

  ComputedChanges(SparkSession session, String root, String description, StructType schema) {
    this.session = session;
    this.root = root;
    this.description = description;
    this.schema = schema;
  }

  SparkSession session() { return session; }

  String root() { return root; }

  String description() { return description; }

  public SQLContext sqlContext() { return session.sqlContext(); }

  public StructType schema() { return schema; }

  public boolean equals(Object other) {
    return other instanceof ComputedChanges && description.equals(((ComputedChanges) other).description);
  }

  public int hashCode() { return description.hashCode(); }

  public String toString() { return "deltaflow" + description; }
}
