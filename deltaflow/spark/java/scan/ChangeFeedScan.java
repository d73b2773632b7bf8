package io.deltaflow.spark.scan;

import java.util.ArrayList;
import java.util.List;

import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The change rows of a range of a table's versions, in a plan that the optimizer has not seen yet. The rule ChangeFeeds
 * puts scans of files in its place. Like a TableScan it has a description, by which Spark compares plans, and no files.
 */
public final class ChangeFeedScan implements FileIndex {
  private final String root;
  private final String description;

  public ChangeFeedScan(String root, String description) {
    this.root = root;
    this.description = description;
  }

  public String root() { return root; }

  public String description() { return description; }

  /** Two roots, for which Spark refuses an INSERT into a view over the relation (see TableScan). */
  public Seq rootPaths() {
    List paths = new ArrayList();
    paths.add(new Path(root));
    paths.add(new Path(root, "_delta_log"));
    return CollectionConverters.asScala(paths).toList();
  }

  public StructType partitionSchema() { return new StructType(); }

  /** Spark's default for a relation of unknown size, which is never broadcast. */
  public long sizeInBytes() { return Long.MAX_VALUE; }

  public void refresh() {}

  public String[] inputFiles() { throw leftOut(); }

  public Seq listFiles(Seq partitionFilters, Seq dataFilters) { throw leftOut(); }

  private static IllegalStateException leftOut() {
    return new IllegalStateException("Spark's optimizer has left out deltaflow's rule ChangeFeeds, without which a "
        + "change data feed cannot be read. Remove it from spark.sql.optimizer.excludedRules, and keep "
        + "spark.experimental.extraOptimizations as deltaflow.register has set them.");
  }

  public boolean equals(Object other) {
    return other instanceof ChangeFeedScan && description.equals(((ChangeFeedScan) other).description);
  }

  public int hashCode() { return description.hashCode(); }

  public String toString() { return "deltaflow" + description; }
}
