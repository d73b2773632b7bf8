"""Hadoop's file systems, as the driver's JVM has them, as storages of transaction logs."""
