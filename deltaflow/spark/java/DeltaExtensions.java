package io.deltaflow.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentMap;

import com.google.common.collect.MapMaker;
import io.deltaflow.spark.bridge.PrivateFields;
import io.deltaflow.spark.scan.ChangeFeeds;
import io.deltaflow.spark.scan.LiveRows;
import io.deltaflow.spark.scan.MetadataOnlyQuery;
import io.deltaflow.spark.scan.PinScans;
import io.deltaflow.spark.scan.RowIds;
import io.deltaflow.spark.scan.StreamMetadata;
import io.deltaflow.spark.sql.BuiltMerges;
import io.deltaflow.spark.sql.DeltaParser;
import io.deltaflow.spark.sql.DynamicOverwrite;
import io.deltaflow.spark.sql.NamedChanges;
import io.deltaflow.spark.sql.ReadTargets;
import io.deltaflow.spark.sql.TableChanges;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/** Adds to a session what it needs beside the format: rules of the optimizer and the planner, and our parser. */
public final class DeltaExtensions {
  /** The SparkSessionExtensions that have our rules. Sessions made by newSession share those of their parent. */
  private static final ConcurrentMap INJECTED = new MapMaker().weakKeys().makeMap();

  private DeltaExtensions() {}

  /** Idempotent. Sessions that are cloned from this one, as for streams, or made by newSession have the rules, too. */
  public static synchronized void install(SparkSession session) {
    addRule(session);
    addStrategy(session);
    DeltaParser.replace(session);
    addAnalysis(session);
    inject(session);
    TableChanges.register(session);
  }

  /** Once for all sessions that share their extensions. */
  private static void inject(SparkSession session) {
    if (INJECTED.putIfAbsent(session.extensions(), Boolean.TRUE) != null) return;
    session.extensions().injectPreCBORule(new AbstractFunction1() {
      public Object apply(Object newSession) { return new PinScans(); }
    });
    session.extensions().injectPlannerStrategy(new AbstractFunction1() {
      public Object apply(Object newSession) { return new DynamicOverwrite(); }
    });
    session.extensions().injectPreCBORule(new AbstractFunction1() {
      public Object apply(Object newSession) { return new ChangeFeeds(); }
    });
    session.extensions().injectPreCBORule(new AbstractFunction1() {
      public Object apply(Object newSession) { return new MetadataOnlyQuery(); }
    });
    // Before Spark prunes the fields of _metadata, so that files are read for those that a query asks alone.
    session.extensions().injectOptimizerRule(new AbstractFunction1() {
      public Object apply(Object newSession) { return new RowIds(); }
    });
    session.extensions().injectPreCBORule(new AbstractFunction1() {
      public Object apply(Object newSession) { return new LiveRows(); }
    });
    session.extensions().injectParser(new DeltaParser.Injected());
    TableChanges.inject(session);
    session.extensions().injectHintResolutionRule(new AbstractFunction1() {
      public Object apply(Object newSession) { return new NamedChanges((SparkSession) newSession); }
    });
    session.extensions().injectHintResolutionRule(new AbstractFunction1() {
      public Object apply(Object newSession) { return new BuiltMerges((SparkSession) newSession); }
    });
    session.extensions().injectResolutionRule(new AbstractFunction1() {
      public Object apply(Object newSession) { return new StreamMetadata(); }
    });
    session.extensions().injectResolutionRule(new AbstractFunction1() {
      public Object apply(Object newSession) { return new ReadTargets((SparkSession) newSession); }
    });
  }

  /** An existing session has built its optimizer. Only this list of rules is read each time. */
  private static void addRule(SparkSession session) {
    List rules = new ArrayList(CollectionConverters.asJava(session.experimental().extraOptimizations()));
    for (Object rule : rules) {
      if (rule instanceof PinScans) return;
    }
    rules.add(new PinScans());
    rules.add(new ChangeFeeds());
    rules.add(new MetadataOnlyQuery());
    rules.add(new RowIds());
    rules.add(new LiveRows());
    session.experimental().extraOptimizations_$eq(CollectionConverters.asScala(rules).toList());
  }

  /** An existing session has its analyzer, which reads these lists each time that it analyses a plan. */
  private static void addAnalysis(SparkSession session) {
    Analyzer analyzer = session.sessionState().analyzer();
    Seq early = with(with(analyzer.hintResolutionRules(), new NamedChanges(session)), new BuiltMerges(session));
    PrivateFields.set(analyzer, "hintResolutionRules", early);
    Seq late = with(with(analyzer.extendedResolutionRules(), new StreamMetadata()), new ReadTargets(session));
    PrivateFields.set(analyzer, "extendedResolutionRules", late);
  }

  /** The rules and this one, unless they have one of its class. */
  private static Seq with(Seq rules, Rule rule) {
    List all = new ArrayList(CollectionConverters.asJava(rules));
    for (Object other : all) {
      if (other.getClass() == rule.getClass()) return rules;
    }
    all.add(rule);
    return CollectionConverters.asScala(all).toList();
  }

  private static void addStrategy(SparkSession session) {
    List strategies = new ArrayList(CollectionConverters.asJava(session.experimental().extraStrategies()));
    for (Object strategy : strategies) {
      if (strategy instanceof DynamicOverwrite) return;
    }
    strategies.add(new DynamicOverwrite());
    session.experimental().extraStrategies_$eq(CollectionConverters.asScala(strategies).toList());
  }
}
