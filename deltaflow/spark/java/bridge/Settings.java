package io.deltaflow.spark.bridge;

import java.util.LinkedHashMap;
import java.util.Map;

import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.classic.SparkSession;
import scala.jdk.javaapi.CollectionConverters;

/** What a session sets, as Python gets it with its requests. */
public final class Settings {
  private Settings() {}

  /** The settings spark.databricks.delta.*, and the session's time zone as an id that Python knows as well. */
  public static Map ofDelta(SparkSession session) {
    Map settings = new LinkedHashMap();
    Map all = CollectionConverters.asJava(session.sessionState().conf().getAllConfs());
    for (Object name : all.keySet()) {
      if (((String) name).startsWith("spark.databricks.delta.")) settings.put(name, all.get(name));
    }
    settings.put("spark.sql.session.timeZone",
        DateTimeUtils.getZoneId(session.sessionState().conf().sessionLocalTimeZone()).getId());
    return settings;
  }
}
