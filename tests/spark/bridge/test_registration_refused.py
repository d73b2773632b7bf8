"""What `register` and `session` say where they can't do their work."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.java_gateway import JavaPackage
from pyspark.sql import SparkSession

import deltaflow
from deltaflow.errors import RegistrationError
from deltaflow.spark.bridge import java_jar
from deltaflow.spark.bridge.java_classes import java_classes

EXTENSIONS = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def test_a_client_of_another_spark_connect_server_is_told_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = SimpleNamespace(version="4.3.0", conf={})  # a session without a JVM
    with pytest.raises(RegistrationError, match="its server does not know deltaflow") as refused:
        deltaflow.register(client)
    assert "`deltaflow connect-server`" in str(refused.value)
    assert "deltaflow.session(" in str(refused.value)
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost")
    with pytest.raises(RegistrationError, match="SPARK_REMOTE is set"):
        deltaflow.session("x")


def test_a_spark_that_is_too_old_is_refused() -> None:
    with pytest.raises(RegistrationError, match=r"Spark 3\.5\.1 is too old: deltaflow needs Spark 4\.0"):
        deltaflow.register(SimpleNamespace(version="3.5.1", _jsparkSession=None))


@pytest.mark.parametrize(
    "config",
    [
        {"spark.sql.extensions": EXTENSIONS},
        {"spark.sql.extensions": f"a.b.C,{EXTENSIONS}"},
        {"spark.sql.catalog.spark_catalog": CATALOG},
        {"spark.sql.catalog.other": CATALOG},
        {"spark.jars.packages": "io.delta:delta-spark_2.13:4.0.0"},
        {"spark.jars.packages": "io.delta:delta-core_2.12:2.4.0", "spark.ui.enabled": False},
        {
            "spark.sql.extensions": EXTENSIONS,
            "spark.sql.catalog.spark_catalog": CATALOG,
            "spark.ui.enabled": False,
        },
    ],
)
def test_settings_of_the_jar_in_the_config_are_named(config: dict[str, object]) -> None:
    with pytest.raises(RegistrationError) as refused:
        deltaflow.session("x", master="local[1]", config=config)
    for name, value in config.items():
        assert (f"{name}={value}" in str(refused.value)) == (value is not False)


class NothingLoaded(JavaPackage):
    """Py4J's answer for every name that the JVM does not have."""

    def __getattr__(self, name: str) -> NothingLoaded:
        return NothingLoaded(name, None)


def test_a_session_that_was_not_registered_is_named() -> None:
    session = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=NothingLoaded("", None)))
    with pytest.raises(RegistrationError, match=r"call deltaflow\.register\(spark\)"):
        java_classes(session).sql.TableBuilder.run("x")


def test_other_packages_may_stay() -> None:
    packages = "org.apache.hadoop:hadoop-aws:3.5.0,io.delta:delta-spark_4.1_2.13:4.1.0,a:b:1"
    with pytest.raises(RegistrationError) as refused:
        deltaflow.session("x", master="local[1]", config={"spark.jars.packages": packages})
    assert str(refused.value).endswith("Remove spark.jars.packages=io.delta:delta-spark_4.1_2.13:4.1.0")


SETTINGS_OF_THE_JAR = """
import pytest
from pyspark.sql import SparkSession
import deltaflow
from deltaflow.errors import RegistrationError
from deltaflow.spark.bridge import java_jar

def refused(act, *words):
    with pytest.raises(RegistrationError) as refused:
        act()
    for word in words:
        assert word in str(refused.value), str(refused.value)
    assert "py4j" not in str(refused.value)

found = ("spark.sql.extensions=" + sys.argv[1], "spark.sql.catalog.spark_catalog=" + sys.argv[2])
refused(lambda: deltaflow.session("x", master="local[2]", config=SETTINGS), *found)
refused(lambda: deltaflow.register(SparkSession.getActiveSession()), *found)
SparkSession.getActiveSession().stop()

# Without those settings, a Spark that lacks an API.
builder = SparkSession.builder.master("local[2]").config("spark.sql.extensions", "")
spark = builder.config("spark.sql.catalog.spark_catalog", "builtin").getOrCreate()
sources = java_jar.java_sources
java_jar.java_sources = lambda: {
    **sources(), "Missing.java": "package io.deltaflow.spark; class Missing extends org.apache.spark.No {}"
}
lacks = f"Spark {spark.version} lacks an API that deltaflow needs"
refused(lambda: deltaflow.register(spark), lacks, "Missing.java")
refused(lambda: deltaflow.DeltaTable.forPath(spark, "table"), "call deltaflow.register(spark)")
java_jar.java_sources = sources

# The failures above left nothing behind.
deltaflow.register(spark)
spark.range(3).write.format("delta").save("table")
assert ids(load(spark, "table")) == [0, 1, 2]
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.long
def test_settings_of_the_jar_and_a_spark_that_lacks_an_api(run: Callable[..., str], tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        f"spark.sql.extensions {EXTENSIONS}\nspark.sql.catalog.spark_catalog {CATALOG}\n"
    )
    run(SETTINGS_OF_THE_JAR, EXTENSIONS, CATALOG, environment={"SPARK_CONF_DIR": str(conf)})


ANOTHER_PROVIDER = """
import pytest
import deltaflow
from deltaflow.errors import RegistrationError
for _ in range(2):
    with pytest.raises(RegistrationError) as refused:
        deltaflow.session("x", master="local[2]", config={**SETTINGS, "spark.jars": sys.argv[1]})
    message = str(refused.value)
    assert "other.OtherProvider already answers to format(\\"delta\\")" in message, message
    assert "spark.jars" in message
    assert "py4j" not in message
"""


@pytest.mark.spark
@pytest.mark.long
def test_another_provider_of_the_format(
    run: Callable[..., str], janino: Callable[[str], dict[str, bytes]], tmp_path: Path
) -> None:
    jar = tmp_path / "other.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        source = """
            package other;
            public class OtherProvider implements org.apache.spark.sql.sources.DataSourceRegister {
              public String shortName() { return "Delta"; }
            }"""
        for name, code in janino(source).items():
            archive.writestr(name, code)
        archive.writestr(java_jar._SERVICE, "other.OtherProvider\n")
    run(ANOTHER_PROVIDER, jar)


@pytest.mark.spark
def test_classes_of_another_deltaflow_in_the_jvm(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_jar, "java_sources", lambda: {"Other.java": "class Other {}"})
    with pytest.raises(RegistrationError, match="classes of another deltaflow version"):
        deltaflow.register(spark)


@pytest.mark.spark
def test_settings_of_the_jar_in_a_session_are_named(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.spark_catalog", CATALOG)
    with pytest.raises(RegistrationError, match=f"spark.sql.catalog.spark_catalog={CATALOG}"):
        deltaflow.register(session)
