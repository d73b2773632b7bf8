package io.deltaflow.spark.scan;

import java.util.ArrayList;
import java.util.List;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.catalyst.expressions.FileSourceConstantMetadataStructField;
import org.apache.spark.sql.catalyst.expressions.FileSourceGeneratedMetadataStructField;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The fields of _metadata that a table with row tracking has besides Spark's, and the columns of its data files that
 * have ids and versions of rows (PROTOCOL.md, "Row Tracking").
 */
public final class RowIdColumns {
  static final String ROW_ID = "row_id";
  static final String BASE_ROW_ID = "base_row_id";
  static final String DEFAULT_VERSION = "default_row_commit_version";
  static final String VERSION = "row_commit_version";
  private static final String[] FIELDS = {ROW_ID, BASE_ROW_ID, DEFAULT_VERSION, VERSION};
  /** Spark would look for the fields in columns of these names, which no file has. */
  private static final String UNREAD = "__deltaflow_";
  private final String rowId;
  private final String version;

  private RowIdColumns(String rowId, String version) {
    this.rowId = rowId;
    this.version = version;
  }

  /** columns: Python's answer; null or JSON's null for a table without row tracking, which gives null. */
  public static RowIdColumns of(JsonNode columns) {
    if (columns == null || columns.isNull()) return null;
    return new RowIdColumns(columns.get("rowId").asText(), columns.get("rowCommitVersion").asText());
  }

  boolean isSame(RowIdColumns other) {
    return other != null && rowId.equals(other.rowId) && version.equals(other.version);
  }

  /** The fields by which queries are analysed. Only the rule RowIds can give them values. */
  static List fields() {
    List fields = new ArrayList();
    for (String name : FIELDS) {
      fields.add(FileSourceGeneratedMetadataStructField.apply(name, UNREAD + name, DataTypes.LongType, false));
    }
    return fields;
  }

  static boolean isOneOf(String field) {
    for (String name : FIELDS) {
      if (name.equals(field)) return true;
    }
    return false;
  }

  /** Throws if a query asks for one of the fields, and the rule RowIds was left out. */
  static void check(StructType columns) {
    for (String name : columns.fieldNames()) {
      if (name.startsWith(UNREAD) && isOneOf(name.substring(UNREAD.length()))) {
        throw new IllegalStateException("Spark's optimizer has left out deltaflow's rule RowIds, without which "
            + "_metadata." + name.substring(UNREAD.length()) + " has no values. Remove the rule from "
            + "spark.sql.optimizer.excludedRules, and keep spark.experimental.extraOptimizations as "
            + "deltaflow.register has set them.");
      }
    }
  }

  /** The fields under the rule RowIds. */
  List fieldsOfFiles() {
    List fields = new ArrayList();
    for (String name : FIELDS) fields.add(ofFile(name));
    return fields;
  }

  /** What the files say of a field: a value of the file, or a column, which may be null or missing. */
  StructField ofFile(String field) {
    if (field.equals(BASE_ROW_ID) || field.equals(DEFAULT_VERSION)) {
      return FileSourceConstantMetadataStructField.apply(field, DataTypes.LongType, false);
    }
    return FileSourceGeneratedMetadataStructField.apply(
        field, field.equals(ROW_ID) ? rowId : version, DataTypes.LongType, true);
  }
}
