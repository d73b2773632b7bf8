package io.deltaflow.spark.sql;

import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.IdentityColumnSpec;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Identity columns in the definition of a table. */
final class IdentityColumns {
  private IdentityColumns() {}

  /** The columns as a schema; Spark's own conversion leaves identities out. */
  static StructType schema(Column[] columns) {
    StructType schema = CatalogV2Util.v2ColumnsToStructType(columns);
    StructField[] fields = new StructField[columns.length];
    for (int i = 0; i < columns.length; i++) {
      fields[i] = schema.fields()[i];
      IdentityColumnSpec identity = columns[i].identityColumnSpec();
      if (identity == null) continue;
      MetadataBuilder metadata = new MetadataBuilder().withMetadata(fields[i].metadata());
      metadata.putLong("delta.identity.start", identity.getStart());
      metadata.putLong("delta.identity.step", identity.getStep());
      metadata.putBoolean("delta.identity.allowExplicitInsert", identity.isAllowExplicitInsert());
      fields[i] = new StructField(fields[i].name(), fields[i].dataType(), fields[i].nullable(), metadata.build());
    }
    return new StructType(fields);
  }
}
