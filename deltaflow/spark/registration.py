"""Makes `format("delta")` known to a running Spark: compiles the Java sources in the driver's JVM.

The Java is compiled by Janino, which every Spark ships, against the Spark that is running; the
jar of the classes, which is kept for later processes, is added to the driver's class loader. Executors
need none of them. See docs/decisions/0001.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import java_import
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions import captured

from deltaflow.errors import RegistrationError
from deltaflow.interface.arguments import is_connect_session
from deltaflow.spark.bridge.dispatcher import dispatcher
from deltaflow.spark.bridge.java_classes import java_classes
from deltaflow.spark.bridge.java_jar import fingerprint_of_sources, jar_of_classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)

_CATALOG = "io.deltaflow.spark.sql.DeltaCatalog"
_CATALOG_CONF = "spark.sql.catalog.spark_catalog"
_NAMED_CATALOG_CONF = "spark.sql.catalog.deltaflow"
_EXTENSIONS_CONF = "spark.sql.extensions"
_PACKAGES_CONF = "spark.jars.packages"
_JAR = re.compile(r"io\.delta:delta-(?:spark|core)_[\w.:-]*")
# Says to a later `register` in the same JVM which sources the loaded classes come from.
_LOADED = "io.deltaflow.spark.sources"
_FILE_NOT_EXIST = "FAILED_READ_FILE.FILE_NOT_EXIST"
_FAILED_READS = (
    _FILE_NOT_EXIST,
    "FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER",
    "FAILED_READ_FILE.NO_HINT",
)
_OLDEST_SPARK = (4, 0)

_lock = threading.Lock()


def register(spark: SparkSession) -> SparkSession:
    """Makes `spark` know the format `delta`, and returns it. Idempotent and thread-safe.

    Sessions made later with `newSession` know it as well. A client of Spark Connect is returned as it is if
    deltaflow is registered on its server.

    Raises RegistrationError for a client of another server, when another provider (the delta-spark jar)
    answers to `delta`, when settings name the jar's classes, or when this Spark lacks what is needed.
    """
    if is_connect_session(spark):
        _check_server(spark)
        return spark
    _refuse_old_spark(spark)
    settings = {name: spark.conf.get(name, "") for name in (_EXTENSIONS_CONF, _CATALOG_CONF, _PACKAGES_CONF)}
    refuse_settings_of_the_jar(settings, "the session")
    with _lock:
        _load_classes(spark)
        _connect(spark)
        _set_catalog(spark)
        java_classes(spark).DeltaExtensions.install(spark._jsparkSession)
        java_classes(spark).bridge.Metrics.install()
        # With pyarrow behind it, which deltaflow.api has imported while the JVM did all of the above.
        from deltaflow.spark.hadoop.open_store import connect

        connect(java_classes(spark).hadoop.HadoopFiles(spark.sparkContext._jsc.hadoopConfiguration()))
        _install_error_conversion()
    return spark


def _check_server(spark: SparkSession) -> None:
    """RegistrationError unless deltaflow is registered on the server of a client of Spark Connect."""
    if _CATALOG not in (spark.conf.get(name, None) for name in (_CATALOG_CONF, _NAMED_CATALOG_CONF)):
        raise RegistrationError(
            "this is a client of Spark Connect, and its server does not know deltaflow. The format is "
            "registered on the server: start one with `deltaflow connect-server`, or call "
            "deltaflow.register(spark) in the driver that starts SparkConnectService. Clients then need no "
            "registration. Without a server, use a classic session: deltaflow.session(…), or "
            "SparkSession.builder.master(…) without .remote(…) and SPARK_REMOTE"
        )
    from deltaflow.connect.exceptions import install  # imports gRPC, which a client of Spark Connect has

    install()


def _refuse_old_spark(spark: SparkSession) -> None:
    version = tuple(int(part) for part in spark.version.split(".")[:2])
    if version < _OLDEST_SPARK:
        raise RegistrationError(f"Spark {spark.version} is too old: deltaflow needs Spark 4.0 or later")


def refuse_settings_of_the_jar(config: Mapping[str, object], whose: str) -> None:
    """RegistrationError if settings name the delta-spark jar, or its catalog or extension classes."""
    found = {
        name: value
        for name, value in config.items()
        if (name == _EXTENSIONS_CONF and "io.delta.sql." in str(value))
        or (name.startswith("spark.sql.catalog.") and str(value).startswith("org.apache.spark.sql.delta."))
    }
    if jars := _JAR.findall(str(config.get(_PACKAGES_CONF, ""))):
        found[_PACKAGES_CONF] = ",".join(jars)
    if found:
        raise RegistrationError(
            f"{whose} has settings of the delta-spark jar, which deltaflow replaces. Remove "
            + " and ".join(f"{name}={value}" for name, value in found.items())
        )


def _load_classes(spark: SparkSession) -> None:
    """Compiles and loads the Java classes unless this JVM has them."""
    jvm: Any = spark.sparkContext._jvm
    fingerprint = fingerprint_of_sources()
    loaded = jvm.java.lang.System.getProperty(_LOADED)
    if loaded == fingerprint:
        return
    if loaded is not None:
        raise RegistrationError(
            "this JVM has the classes of another deltaflow version. Start a new Python process"
        )
    loader = _driver_class_loader(jvm)
    _refuse_another_provider(jvm, loader)
    jar = jar_of_classes(spark, loader)
    loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
    # PySpark names it for every list of columns: Py4J would look for it in every jar, in each of the packages
    # that PySpark imports. This takes less than half of the time, and a MERGE has dozens of them.
    java_import(jvm, "org.apache.spark.api.python.PythonUtils")
    jvm.java.lang.System.setProperty(_LOADED, fingerprint)


def _refuse_another_provider(jvm: Any, loader: Any) -> None:
    """RegistrationError if a jar answers to `delta`.

    Spark's own look-up starts a Python worker when it finds nobody, to ask for data sources in Python.
    """
    kind = jvm.java.lang.Class.forName("org.apache.spark.sql.sources.DataSourceRegister", False, loader)
    providers = jvm.java.util.ServiceLoader.load(kind, loader).iterator()
    try:
        other = next(_named_delta(providers), None)
    except Py4JJavaError:
        return  # One of them cannot be loaded: Spark says so at its next look-up.
    if other is not None:
        raise RegistrationError(
            f'{other} already answers to format("delta") in this session. Remove its jar '
            "(spark.jars, spark.jars.packages, or the jars folder of Spark) and start again"
        )


def _named_delta(providers: Any) -> Iterator[str]:
    while providers.hasNext():
        provider = providers.next()
        if provider.shortName().lower() == "delta":
            yield provider.getClass().getName()


def _driver_class_loader(jvm: Any) -> Any:
    """The class loader to which `spark.jars` go too: every thread of the driver resolves through it."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    while loader is not None:
        if "MutableURLClassLoader" in loader.getClass().getName() or (
            "MutableURLClassLoader" in loader.getClass().getSuperclass().getName()
        ):
            return loader
        loader = loader.getParent()
    raise RegistrationError(
        "the driver's class loader takes no further jars. Start the session from Python "
        "(deltaflow.session, SparkSession.builder) or with spark-submit"
    )


def _connect(spark: SparkSession) -> None:
    from pyspark.java_gateway import ensure_callback_server_started

    jvm: Any = spark.sparkContext._jvm
    gateway: Any = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)
    jvm.java.lang.Class.forName("io.deltaflow.spark.bridge.Python", True, _driver_class_loader(jvm))
    _authenticate_callbacks(spark, gateway)
    java_classes(spark).bridge.Python.connect(dispatcher)


def _authenticate_callbacks(spark: SparkSession, gateway: Any) -> None:
    """Lets the callback server answer this JVM alone. PySpark starts it without a secret, and every user of
    the machine can connect to it.

    The secret is the one by which Python calls the JVM. A connection is asked for it when it begins.
    """
    from py4j.java_gateway import JavaObject

    secret = gateway.gateway_parameters.auth_token
    server = JavaObject("GATEWAY_SERVER", gateway._gateway_client)
    java_classes(spark).bridge.PrivateFields.set(server.getCallbackClient(), "authToken", secret)
    gateway.callback_server_parameters.auth_token = secret


def _set_catalog(spark: SparkSession) -> None:
    """Puts our session catalog in place, for this session and for those made from its context.

    Where another project's is there already, ours goes beside it, under a name of its own.
    """
    current = spark.conf.get(_CATALOG_CONF, "builtin")
    setting = _CATALOG_CONF
    if current not in ("builtin", _CATALOG):
        setting = _NAMED_CATALOG_CONF
        _LOG.warning(
            "%s is %s and stays so: Delta tables by name are in the catalog deltaflow "
            "(deltaflow.<database>.<table>, deltaflow.delta.`<path>`); paths work as ever",
            _CATALOG_CONF,
            current,
        )
    spark.conf.set(setting, _CATALOG)
    spark.sparkContext._jsc.sc().conf().set(setting, _CATALOG)


def _install_error_conversion() -> None:
    """Lets PySpark raise the Python exception that is behind a Java one, where there is one.

    PySpark turns every Java exception into a Python one through this module global; there is no
    public hook.
    """
    from deltaflow.spark.sql.refused_inserts import insert_into_view_error

    convert = captured.convert_exception
    if getattr(convert, "_deltaflow", False):
        return

    def convert_exception(java_exception: Any) -> Any:
        # Around what Spark's parser throws without declaring it: DeltaParser's proxy has to.
        is_wrapped = java_exception.getClass().getName() == "java.lang.reflect.UndeclaredThrowableException"
        if is_wrapped:
            java_exception = java_exception.getCause()
        ours = _python_exception(java_exception)
        if ours is not None:
            return ours
        converted = convert(java_exception)
        # PySpark knows no exception for a script that is none, and would show the wrapper.
        if is_wrapped and isinstance(converted, captured.UnknownException):
            return captured.ParseException(origin=java_exception)
        # TableScan has two root paths for just this refusal.
        if isinstance(converted, AnalysisException) and (
            converted.getCondition() == "UNSUPPORTED_INSERT.MULTI_PATH" and "/_delta_log" in str(converted)
        ):
            return insert_into_view_error()
        return converted

    convert_exception._deltaflow = True  # type: ignore[attr-defined]
    captured.convert_exception = convert_exception  # type: ignore[assignment]


def _python_exception(java_exception: Any) -> BaseException | None:
    """The exception of ours behind a Java one: a callback raised it, or a file cannot be read.

    A failed stream stays Spark's StreamingQueryException: its message has ours.
    """
    from deltaflow.spark.scan.file_index import failed_read_error

    for _ in range(16):  # a chain of causes is short; one that runs in a circle ends here
        if java_exception is None:
            return None
        name = java_exception.getClass().getName()
        if name.endswith(".StreamingQueryException"):
            return None
        if name == "io.deltaflow.spark.bridge.DeltaFlowException":
            return dispatcher.find_error(java_exception.errorId())
        if name == "org.apache.spark.SparkException" and java_exception.getCondition() in _FAILED_READS:
            path = java_exception.getMessageParameters().get("path")
            if java_exception.getCondition() == _FILE_NOT_EXIST:
                return failed_read_error(path, None)
            return failed_read_error(path, str(java_exception.getCause()))
        java_exception = java_exception.getCause()
    return None
