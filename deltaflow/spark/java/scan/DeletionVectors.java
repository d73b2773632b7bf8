package io.deltaflow.spark.scan;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import io.deltaflow.spark.bridge.Python;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.util.ArrowUtils;
import org.roaringbitmap.RoaringBitmap;

/**
 * The deletion vectors of one scan in one execution, each with a number.
 *
 * They come from Python a few megabytes at a time, and each such part is a broadcast variable: the driver holds them
 * once, and an executor fetches the parts that the files of its tasks need.
 */
public final class DeletionVectors {
  private static final int ASKED_AT_ONCE = 10000;
  private final String scan;
  private final Broadcast[] sent;

  DeletionVectors(String scan, int vectors) {
    this.scan = scan;
    sent = new Broadcast[vectors];
  }

  /** By the number of a vector, the broadcast variable (a Map by numbers) that holds its bitmap. */
  public Broadcast[] sent() { return sent; }

  /** Broadcasts the vectors of these numbers, as far as they are not. Crosses into Python once for each part. */
  synchronized void send(List numbers) {
    List missing = new ArrayList();
    for (Object number : numbers) {
      if (sent[((Integer) number).intValue()] == null) missing.add(number);
    }
    while (!missing.isEmpty()) {
      Map part = read(missing.subList(0, Math.min(missing.size(), ASKED_AT_ONCE)));
      Broadcast broadcast = JavaSparkContext.fromSparkContext(SparkContext.getOrCreate()).broadcast(part);
      for (Object number : part.keySet()) sent[((Integer) number).intValue()] = broadcast;
      missing = new ArrayList(missing.subList(part.size(), missing.size()));
    }
  }

  /** The bitmaps of the first of these numbers. */
  private Map read(List numbers) {
    Map request = new LinkedHashMap();
    request.put("scan", scan);
    request.put("numbers", numbers);
    BufferAllocator allocator = ArrowUtils.rootAllocator().newChildAllocator("deltaflow", 0, Long.MAX_VALUE);
    ArrowStreamReader reader =
        new ArrowStreamReader(new ByteArrayInputStream(Python.callForBytes("scan.bitmaps", request)), allocator);
    try {
      Map found = new HashMap();
      VectorSchemaRoot batch = reader.getVectorSchemaRoot();
      while (reader.loadNextBatch()) {
        for (int row = 0; row < batch.getRowCount(); row++) {
          RoaringBitmap bitmap = new RoaringBitmap();
          bitmap.deserialize(ByteBuffer.wrap(((VarBinaryVector) batch.getVector("bitmap")).get(row)));
          found.put(Integer.valueOf(((IntVector) batch.getVector("vector")).get(row)), bitmap);
        }
      }
      return found;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    } finally {
      TableScan.close(reader, allocator);
    }
  }
}
