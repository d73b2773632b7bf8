package io.deltaflow.spark.bridge;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BiFunction;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import scala.Function0;
import scala.runtime.AbstractFunction0;

/**
 * Calls the one Python dispatcher of this JVM.
 *
 * A call consists of a method name and a JSON object. The answer is a JSON object or, for bulk data, the bytes of an
 * Arrow stream. No object reference crosses, so that neither side has anything to release after a call; but an
 * exception of Spark that Python has caught comes back as it was, to be thrown on.
 *
 * Calls are made on threads of our own, because a read on py4j's socket cannot be interrupted. The caller waits for a
 * Future, so that StreamingQuery.stop() interrupts it at once. When Python calls Spark meanwhile, the call runs on the
 * same thread of ours, which has the Spark properties of the caller's thread (SparkThread).
 */
public final class Python {
  private static final ObjectMapper MAPPER = new ObjectMapper();
  private static final AtomicLong HANDLES = new AtomicLong();
  private static volatile BiFunction dispatcher;

  /** One thread for each call that runs at the same time. Threads are kept: py4j ties a socket to each of them. */
  private static final ThreadPoolExecutor THREADS = new ThreadPoolExecutor(
      0, Integer.MAX_VALUE, Long.MAX_VALUE, TimeUnit.NANOSECONDS, new SynchronousQueue(), new ThreadFactory() {
        private final AtomicLong count = new AtomicLong();

        public Thread newThread(Runnable work) {
          Thread thread = new Thread(work, "deltaflow-python-" + count.incrementAndGet());
          thread.setDaemon(true);
          return thread;
        }
      });

  private Python() {}

  public static void connect(BiFunction newDispatcher) { dispatcher = newDispatcher; }

  /** A new handle, under which Python keeps what a call opens, such as a write or a source. */
  public static long newHandle() { return HANDLES.incrementAndGet(); }

  /** A call that answers with a JSON object. */
  public static JsonNode call(String method, Map request) { return result(answer(submit(method, request))); }

  /** A call that answers with the bytes of an Arrow stream. */
  public static byte[] callForBytes(String method, Map request) {
    Object answer = answer(submit(method, request));
    if (answer instanceof byte[]) return (byte[]) answer;
    result(answer);
    throw new IllegalStateException(method + " answered with no bytes");
  }

  /**
   * A call that has to finish even if its caller is interrupted, such as the release of a handle. Python answers it
   * without waiting for anything but a put that has begun.
   */
  public static JsonNode callToTheEnd(String method, Map request) {
    Future future = submit(method, request);
    boolean interrupted = false;
    try {
      while (true) {
        try {
          return result(outcome(future));
        } catch (InterruptedException e) {
          interrupted = true;
        }
      }
    } finally {
      if (interrupted) Thread.currentThread().interrupt();
    }
  }

  private static Future submit(final String method, Map request) {
    final BiFunction python = dispatcher;
    if (python == null) throw new IllegalStateException("deltaflow is not registered in this JVM");
    final String json = json(request);
    final SparkThread caller = SparkThread.current();
    final Function0 work = new AbstractFunction0() {
      public Object apply() { return python.apply(method, json); }
    };
    return THREADS.submit(new Callable() {
      public Object call() { return caller.run(work); }
    });
  }

  /** Waits for the answer. An interrupt becomes the exception by which Spark recognises a clean stop of a query. */
  private static Object answer(Future future) {
    try {
      return outcome(future);
    } catch (InterruptedException e) {
      InterruptedIOException stopped = new InterruptedIOException("stopped while Python was working");
      throw new UncheckedIOException(stopped);
    }
  }

  private static Object outcome(Future future) throws InterruptedException {
    try {
      return future.get();
    } catch (ExecutionException e) {
      throw new IllegalStateException("the Python process did not answer; has it ended?", e.getCause());
    }
  }

  public static String json(Object value) {
    try {
      return MAPPER.writeValueAsString(value);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  public static JsonNode parse(String json) {
    try {
      return MAPPER.readTree(json);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** A JSON object of strings and numbers as a Map of strings. */
  public static Map strings(JsonNode object) {
    Map strings = new LinkedHashMap();
    Iterator names = object.fieldNames();
    while (names.hasNext()) {
      String name = (String) names.next();
      strings.put(name, object.get(name).asText());
    }
    return strings;
  }

  private static JsonNode result(Object answer) {
    if (answer instanceof Throwable) throw Thrown.asIs((Throwable) answer);
    JsonNode node = parse((String) answer);
    JsonNode error = node.get("error");
    if (error != null) {
      throw new DeltaFlowException(error.get("message").asText(), text(error, "condition"), text(error, "sqlState"),
          text(error, "errorName"), error.get("id").asLong());
    }
    return node;
  }

  private static String text(JsonNode node, String field) {
    JsonNode value = node.get(field);
    return value == null || value.isNull() ? null : value.asText();
  }
}
