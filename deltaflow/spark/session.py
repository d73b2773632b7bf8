"""`deltaflow.session`: a SparkSession that knows the format `delta`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from deltaflow.errors import RegistrationError
from deltaflow.spark.java_home import ensure_java
from deltaflow.spark.registration import refuse_settings_of_the_jar, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(
    name: str | None = None, *, master: str | None = None, config: Mapping[str, object] | None = None
) -> SparkSession:
    """A SparkSession that knows the format `delta`: the active one, or a new one.

    name: the application's name. master: as in `SparkSession.builder.master`; without it spark-submit's,
    SPARK_MASTER's or `local[*]`. config: further Spark settings. Finds Java first (see java_home).
    """
    from pyspark.sql import SparkSession

    if "SPARK_REMOTE" in os.environ:
        raise RegistrationError(
            "SPARK_REMOTE is set, so this would be a client of Spark Connect, which reaches no JVM. Unset "
            "it; or start a server by `deltaflow connect-server`, and use SparkSession.builder.getOrCreate()"
        )
    refuse_settings_of_the_jar(config or {}, "config")
    ensure_java()
    builder = SparkSession.builder
    if name is not None:
        builder = builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in (config or {}).items():
        builder = builder.config(key, value)
    return register(builder.getOrCreate())
