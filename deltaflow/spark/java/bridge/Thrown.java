package io.deltaflow.spark.bridge;

/** Throws what reflection or a Scala method threw, checked or not, as it is. */
public final class Thrown {
  private Thrown() {}

  public static RuntimeException asIs(Throwable error) {
    if (error instanceof RuntimeException) throw (RuntimeException) error;
    if (error instanceof Error) throw (Error) error;
    org.apache.spark.unsafe.Platform.throwException(error);
    throw new IllegalStateException(error);
  }
}
