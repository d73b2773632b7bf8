package io.deltaflow.spark.scan;

import java.util.Collections;
import java.util.concurrent.ConcurrentMap;

import com.fasterxml.jackson.databind.JsonNode;
import com.google.common.collect.MapMaker;
import io.deltaflow.spark.bridge.PrivateFields;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.streaming.*;
import org.apache.spark.sql.execution.streaming.runtime.*;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Gives the streams out of tables with row tracking the column _metadata, as their batch queries have it. Spark has it
 * for streams of formats alone that are file formats by themselves. When a batch is planned, Spark finds the column in
 * the relation over its files.
 *
 * What a streaming relation offers is computed once, and kept in a field of it: the rule fills that field. A copy of
 * the relation gets it anew, which is why the rule runs with those that resolve names.
 */
public final class StreamMetadata extends Rule {
  /** The row ids of our streams by the schemas that Spark got for them, which are compared by identity. */
  private static final ConcurrentMap ROW_IDS = new MapMaker().weakKeys().makeMap();

  /** A stream was defined. rowIds: Python's answer, JSON's null for a table without row tracking. */
  public static void define(StructType schema, JsonNode rowIds) {
    RowIdColumns columns = RowIdColumns.of(rowIds);
    if (columns != null) ROW_IDS.put(schema, columns);
  }

  public TreeNode apply(TreeNode plan) {
    for (Object leaf : CollectionConverters.asJava(((LogicalPlan) plan).collectLeaves())) {
      if (leaf instanceof StreamingRelation) offer((StreamingRelation) leaf);
    }
    return plan;
  }

  private static void offer(StreamingRelation stream) {
    RowIdColumns columns = (RowIdColumns) ROW_IDS.get(stream.dataSource().sourceInfo().schema());
    if (columns == null || !stream.metadataOutput().isEmpty()) return;
    Attribute column = LiveRows.metadata(CollectionConverters.asJava(stream.output()));
    boolean isAsked = column != null;
    if (!isAsked) column = new MappedParquet(null, columns, false, null).createFileMetadataCol();
    Seq offered = CollectionConverters.asScala(Collections.singletonList(column)).toList();
    PrivateFields.set(
        stream, "metadataOutput", isAsked ? offered : stream.metadataOutputWithOutConflicts(offered, true));
  }
}
