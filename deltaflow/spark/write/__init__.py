"""Writes of data files by Spark, driven from Python or from the JVM."""
