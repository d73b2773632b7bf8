package io.deltaflow.spark;

import java.util.ArrayList;
import java.util.List;

import com.google.common.collect.MapMaker;
import java.util.concurrent.ConcurrentMap;
import org.apache.spark.sql.classic.SparkSession;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/** What a session needs beside the format itself: rules of its optimizer. */
public final class DeltaExtensions {
  /** The SparkSessionExtensions that know our rules; sessions made by newSession share their parent's. */
  private static final ConcurrentMap INJECTED = new MapMaker().weakKeys().makeMap();

  private DeltaExtensions() {}

  /** Idempotent. Sessions cloned from this one (streams) have its rules, those made by newSession too. */
  public static synchronized void install(SparkSession session) {
    addRule(session);
    if (INJECTED.putIfAbsent(session.extensions(), Boolean.TRUE) != null) return;
    session.extensions().injectPreCBORule(new AbstractFunction1() {
      public Object apply(Object newSession) { return new PinScans(); }
    });
  }

  /** A session that is there has built its optimizer; this is the one list that it looks at each time. */
  private static void addRule(SparkSession session) {
    List rules = new ArrayList(CollectionConverters.asJava(session.experimental().extraOptimizations()));
    for (Object rule : rules) {
      if (rule instanceof PinScans) return;
    }
    rules.add(new PinScans());
    session.experimental().extraOptimizations_$eq(CollectionConverters.asScala(rules).toList());
  }
}
