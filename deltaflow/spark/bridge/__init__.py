"""The seam to the JVM: the one dispatcher that Spark's JVM calls."""
