"""The Java classes of deltaflow in the driver's JVM."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from deltaflow.errors import RegistrationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def java_classes(spark: SparkSession) -> Any:
    """The Java package io.deltaflow.spark, with its sub-packages. RegistrationError for a class of it, before
    `register` has loaded them."""
    return _names(spark.sparkContext._jvm).io.deltaflow.spark


def check_registered(spark: SparkSession) -> None:
    """RegistrationError before `register` has loaded the classes."""
    _ = java_classes(spark).DeltaProvider


def java_classes_of_context() -> Any:
    """As `java_classes`, where no session is at hand: of the context that runs."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        raise RuntimeError("no SparkContext is active in this process, and this needs a running Spark")
    return _names(context._jvm).io.deltaflow.spark


def java_list(spark: SparkSession, values: Iterable[Any]) -> Any:
    """A list of Java with these values: strings and objects of Java."""
    filled = _names(spark.sparkContext._jvm).java.util.ArrayList()
    for value in values:
        filled.add(value)
    return filled


@functools.lru_cache(maxsize=1)
def _names(jvm: Any) -> _Names:
    return _Names(jvm)


class _Names:
    """Packages, classes and methods of Java by their names. Each is looked up once: Py4J asks the JVM what
    each part of a name is, every time, which takes up to a millisecond."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def __getattr__(self, name: str) -> Any:
        from py4j.java_gateway import JavaClass, JavaMember, JavaPackage

        member = getattr(self._found, name)
        if isinstance(member, JavaPackage) and name[0].isupper():
            raise RegistrationError(
                f"this session does not know deltaflow ({name} is not loaded): call "
                "deltaflow.register(spark) first, or make the session by deltaflow.session(…)"
            )
        if isinstance(member, JavaPackage | JavaClass):
            member = _Names(member)
        if isinstance(member, JavaMember | _Names):
            setattr(self, name, member)
        return member

    def __call__(self, *arguments: Any) -> Any:
        return self._found(*arguments)
