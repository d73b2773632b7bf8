package io.deltaflow.spark.expressions;

import java.nio.charset.StandardCharsets;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

/** Regular expressions for Python, which has others. */
public final class JavaRegex {
  private JavaRegex() {}

  /** Why a text is no regular expression; null where it is one. */
  public static String fault(String pattern) {
    try {
      Pattern.compile(pattern);
      return null;
    } catch (PatternSyntaxException e) {
      return e.getDescription();
    }
  }

  /** For each of the texts between NULs, in UTF-8: 1 where the pattern is found in it, else 0. */
  public static byte[] find(String pattern, byte[] texts) {
    Pattern compiled = Pattern.compile(pattern);
    String[] all = new String(texts, StandardCharsets.UTF_8).split("\0", -1);
    byte[] found = new byte[all.length];
    for (int i = 0; i < all.length; i++) found[i] = compiled.matcher(all[i]).find() ? (byte) 1 : (byte) 0;
    return found;
  }
}
