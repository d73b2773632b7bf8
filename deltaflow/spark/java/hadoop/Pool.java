package io.deltaflow.spark.hadoop;

import java.io.FileOutputStream;
import java.io.OutputStream;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** The threads that ask a storage for many files at once. They end when they have nothing to do. */
final class Pool {
  private static final int THREADS = 64;
  private static final ThreadPoolExecutor EXECUTOR =
      new ThreadPoolExecutor(THREADS, THREADS, 10, TimeUnit.SECONDS, new LinkedBlockingQueue(), new ThreadFactory() {
        public Thread newThread(Runnable work) {
          Thread thread = new Thread(work, "deltaflow-hadoop");
          thread.setDaemon(true);
          return thread;
        }
      });

  static { EXECUTOR.allowCoreThreadTimeOut(true); }

  private Pool() {}

  static Future submit(Callable work) { return EXECUTOR.submit(work); }

  /** Writes contents one after the other; the answer is their sizes, -1 of what is absent. */
  static String write(List contents, String answer) throws Exception {
    StringBuilder sizes = new StringBuilder("=");
    OutputStream out = new FileOutputStream(answer);
    try {
      for (Object content : contents) {
        byte[] data = (byte[]) of(content);
        sizes.append(data == null ? -1 : data.length).append(' ');
        if (data != null) out.write(data);
      }
    } finally {
      out.close();
    }
    return sizes.toString();
  }

  /** What a thread of the pool found; its failure is thrown here. */
  static Object of(Object future) throws Exception {
    try {
      return ((Future) future).get();
    } catch (ExecutionException e) {
      throw e.getCause() instanceof Exception ? (Exception) e.getCause() : e;
    }
  }
}
