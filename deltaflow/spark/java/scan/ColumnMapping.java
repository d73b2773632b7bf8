package io.deltaflow.spark.scan;

import java.util.ArrayList;
import java.util.List;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.connector.catalog.CatalogV2Implicits$;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/** The names and ids that the columns of a mapped table have in its files (PROTOCOL.md, "Column Mapping"). */
public final class ColumnMapping {
  private static final String PHYSICAL_NAME = "delta.columnMapping.physicalName";
  private static final String ID = "delta.columnMapping.id";
  /** Spark's name in a field's metadata for the id of a Parquet field. */
  private static final String FIELD_ID = "parquet.field.id";

  /** Whether readers find columns by ids, and not by physical names. */
  public final boolean byId;
  private final StructType table;

  private ColumnMapping(StructType table, boolean byId) {
    this.table = table;
    this.byId = byId;
  }

  /** mapping: Python's answer; null or JSON's null for a table that is not mapped, which gives null. */
  public static ColumnMapping of(JsonNode mapping) {
    if (mapping == null || mapping.isNull()) return null;
    return new ColumnMapping(
        (StructType) DataType.fromJson(mapping.get("schema").asText()), mapping.get("byId").asBoolean());
  }

  /**
   * Columns and nested fields of the table as they are in a file. Fields that the table lacks, Spark's own, stay as
   * they are. withIds: whether the fields get ids, by which they are then found in files.
   */
  public StructType physical(StructType columns, boolean withIds) {
    return (StructType) physical(columns, table, withIds);
  }

  /**
   * Attributes of the table's columns under the names, types and ids that a new file has. Columns that the table lacks,
   * which keep row ids, stay as they are.
   */
  public List physical(List columns) {
    List physical = new ArrayList();
    for (Object found : columns) {
      Attribute column = (Attribute) found;
      StructField own = field(table, column.name());
      if (own == null) {
        physical.add(column);
        continue;
      }
      StructField field =
          physical(new StructField(column.name(), column.dataType(), column.nullable(), Metadata.empty()), own, true);
      physical.add(new AttributeReference(field.name(), field.dataType(), field.nullable(), field.metadata(),
          column.exprId(), CollectionConverters.asScala(new ArrayList()).toList()));
    }
    return physical;
  }

  private static DataType physical(DataType type, DataType own, boolean withIds) {
    if (type instanceof StructType && own instanceof StructType) {
      List fields = new ArrayList();
      for (StructField field : ((StructType) type).fields()) {
        StructField found = field((StructType) own, field.name());
        fields.add(found == null ? field : physical(field, found, withIds));
      }
      return new StructType((StructField[]) fields.toArray(new StructField[0]));
    }
    if (type instanceof ArrayType && own instanceof ArrayType) {
      ArrayType array = (ArrayType) type;
      return new ArrayType(
          physical(array.elementType(), ((ArrayType) own).elementType(), withIds), array.containsNull());
    }
    if (type instanceof MapType && own instanceof MapType) {
      MapType map = (MapType) type;
      return new MapType(physical(map.keyType(), ((MapType) own).keyType(), withIds),
          physical(map.valueType(), ((MapType) own).valueType(), withIds), map.valueContainsNull());
    }
    return type;
  }

  private static StructField physical(StructField field, StructField own, boolean withIds) {
    MetadataBuilder metadata = new MetadataBuilder().withMetadata(field.metadata());
    if (withIds) metadata.putLong(FIELD_ID, own.metadata().getLong(ID));
    return new StructField(own.metadata().getString(PHYSICAL_NAME), physical(field.dataType(), own.dataType(), withIds),
        field.nullable(), metadata.build());
  }

  /** A column's name in a filter, which may be that of a nested field, as it is in files; null if it is unknown. */
  public String physicalName(String name) {
    List names = new ArrayList();
    DataType inside = table;
    // Spark's parser would refuse keywords where spark.sql.ansi.enforceReservedKeywords is true.
    for (Object part : CollectionConverters.asJava(UnresolvedAttribute.parseAttributeName(name))) {
      StructField field = inside instanceof StructType ? field((StructType) inside, (String) part) : null;
      if (field == null) return null;
      names.add(field.metadata().getString(PHYSICAL_NAME));
      inside = field.dataType();
    }
    return CatalogV2Implicits$.MODULE$.MultipartIdentifierHelper(CollectionConverters.asScala(names).toList()).quoted();
  }

  private static StructField field(StructType struct, String name) {
    StructField similar = null;
    for (StructField field : struct.fields()) {
      if (field.name().equals(name)) return field;
      if (field.name().equalsIgnoreCase(name)) similar = field;
    }
    return similar;
  }
}
