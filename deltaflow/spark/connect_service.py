"""Spark's own Connect server, which runs in the driver's JVM and serves the sessions of its clients.

Each client gets a session made by `newSession`, so it knows what is registered in the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOST = "spark.connect.grpc.binding.address"
PORT = "spark.connect.grpc.binding.port"
TOKEN = "spark.connect.authenticate.token"
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""Both Spark's server and PySpark's client read it."""


def start(spark: SparkSession) -> int:
    """Starts the server at the address and port of the context's settings; returns the port."""
    service = _service(spark)
    service.start(spark.sparkContext._jsc.sc())
    return int(service.localPort())


def stop(spark: SparkSession) -> None:
    """Stops the streams of all clients and waits for them; then ends what else runs, and closes the port."""
    jvm: Any = spark.sparkContext._jvm
    # Closing a client's session would stop its streams as well, without waiting for them.
    for query in list(spark._jsparkSession.sharedState().activeStreamingQueries().values()):
        query.stop()
    none = jvm.scala.Option.empty()
    _service(spark).stop(none, none)


def _service(spark: SparkSession) -> Any:
    jvm: Any = spark.sparkContext._jvm
    return getattr(jvm.org.apache.spark.sql.connect.service, "SparkConnectService$").__getattr__("MODULE$")
