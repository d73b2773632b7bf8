package io.deltaflow.spark.sql;

import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.IdentityColumnSpec;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** The columns of a table that a statement defines. */
final class DefinedColumns {
  private DefinedColumns() {}

  /**
   * The columns as a schema with all that the statement says of them. Spark's own conversion leaves out identities, and
   * in Spark 4.0 also the expressions of generated columns.
   */
  static StructType schema(Column[] columns) {
    StructType schema = CatalogV2Util.v2ColumnsToStructType(columns);
    StructField[] fields = new StructField[columns.length];
    for (int i = 0; i < columns.length; i++) {
      fields[i] = schema.fields()[i];
      String expression = columns[i].generationExpression();
      IdentityColumnSpec identity = columns[i].identityColumnSpec();
      if (expression == null && identity == null) continue;
      MetadataBuilder metadata = new MetadataBuilder().withMetadata(fields[i].metadata());
      if (expression != null) metadata.putString("GENERATION_EXPRESSION", expression);
      if (identity != null) {
        metadata.putLong("delta.identity.start", identity.getStart());
        metadata.putLong("delta.identity.step", identity.getStep());
        metadata.putBoolean("delta.identity.allowExplicitInsert", identity.isAllowExplicitInsert());
      }
      fields[i] = new StructField(fields[i].name(), fields[i].dataType(), fields[i].nullable(), metadata.build());
    }
    return new StructType(fields);
  }
}
