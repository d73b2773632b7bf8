package io.deltaflow.spark.scan;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.collection.immutable.Seq;

/**
 * The functions of Spark that read a file, which a stream keeps from one batch to the next.
 *
 * To make one, Spark broadcasts the Hadoop configuration: about 6 ms of a batch, and on a cluster each executor fetches
 * it. A function has no state, and depends on its arguments alone; the configuration is one of them, and has all
 * settings of the session. If any of them has changed, another function is made.
 */
final class ReadFunctions {
  /** A batch that reads its source several times, with other columns or filters, has a function for each. */
  private static final int KEPT = 8;
  private final Map functions = new LinkedHashMap();

  synchronized Function1 of(SparkSession session, StructType dataSchema, StructType partitionSchema,
      StructType requiredSchema, Seq filters, scala.collection.immutable.Map options, Configuration hadoopConf) {
    List arguments = new ArrayList();
    arguments.add(dataSchema);
    arguments.add(partitionSchema);
    arguments.add(requiredSchema);
    arguments.add(filters);
    arguments.add(options);
    arguments.add(settings(hadoopConf)); // now: Spark adds to the configuration
    Function1 function = (Function1) functions.remove(arguments);
    if (function == null) {
      function = new ParquetFileFormat().buildReaderWithPartitionValues(
          MappedParquet.inAnyCase(session), dataSchema, partitionSchema, requiredSchema, filters, options, hadoopConf);
    }
    functions.put(arguments, function);
    if (functions.size() > KEPT) functions.remove(functions.keySet().iterator().next());
    return function;
  }

  private static Map settings(Configuration hadoopConf) {
    Map settings = new HashMap();
    for (Object entry : hadoopConf) settings.put(((Map.Entry) entry).getKey(), ((Map.Entry) entry).getValue());
    return settings;
  }
}
