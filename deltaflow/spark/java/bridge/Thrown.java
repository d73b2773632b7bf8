package io.deltaflow.spark.bridge;

/** Rethrows an exception of reflection or of a Scala method, even if it is checked and not declared. */
public final class Thrown {
  private Thrown() {}

  public static RuntimeException asIs(Throwable error) {
    if (error instanceof RuntimeException) throw (RuntimeException) error;
    if (error instanceof Error) throw (Error) error;
    org.apache.spark.unsafe.Platform.throwException(error);
    throw new IllegalStateException(error);
  }
}
