package io.deltaflow.spark.hadoop;

import java.io.EOFException;
import java.io.FileNotFoundException;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.nio.file.AccessDeniedException;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.util.regex.Pattern;

import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.PathIsNotDirectoryException;
import org.apache.hadoop.ipc.RetriableException;
import org.apache.hadoop.ipc.StandbyException;
import org.apache.hadoop.security.AccessControlException;

/** An exception of a file system as a text: "!", what it means to who asked, a line end, and what it says. */
final class Failure {
  private static final int LONGEST_CHAIN = 16;

  /** WebHDFS and the clients of object stores say in words that the server is busy. */
  private static final Pattern BUSY =
      Pattern.compile("(code=|[Ss]tatus [Cc]ode:? |[Ss]tatus ?= ?|HTTP )(429|500|502|503|504)\\b"
          + "|SlowDown|Slow Down|ConditionalRequestConflict");

  private Failure() {}

  static String of(Throwable failure) { return "!" + meaning(failure) + "\n" + words(failure); }

  private static String meaning(Throwable e) {
    if (e instanceof FileNotFoundException || e instanceof NoSuchFileException) return "absent";
    if (e instanceof ParentNotDirectoryException || e instanceof PathIsNotDirectoryException
        || e instanceof NotDirectoryException) {
      return "not a directory";
    }
    if (e instanceof FileAlreadyExistsException || e instanceof java.nio.file.FileAlreadyExistsException)
      return "exists";
    if (e instanceof AccessControlException || e instanceof AccessDeniedException) return "denied";
    return isTransient(e) ? "transient" : "other";
  }

  private static boolean isTransient(Throwable failure) {
    Throwable e = failure;
    for (int i = 0; e != null && i < LONGEST_CHAIN; i++, e = e.getCause()) {
      if (e instanceof SocketException || e instanceof SocketTimeoutException || e instanceof EOFException
          || e instanceof RetriableException || e instanceof StandbyException) {
        return true;
      }
      if (e.getMessage() != null && BUSY.matcher(e.getMessage()).find()) return true;
    }
    return false;
  }

  /** The messages of an exception and of its causes, each once. */
  private static String words(Throwable failure) {
    StringBuilder words = new StringBuilder();
    Throwable e = failure;
    for (int i = 0; e != null && i < LONGEST_CHAIN; i++, e = e.getCause()) {
      String said = e.getMessage();
      String message = said == null || said.isEmpty() ? e.getClass().getName() : said.split("\n")[0];
      if (words.indexOf(message) >= 0) continue;
      words.append(words.length() == 0 ? "" : "; caused by ").append(message);
    }
    return words.toString();
  }
}
