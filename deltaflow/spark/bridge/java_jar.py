"""The jar of deltaflow's Java classes, compiled once for each Spark of a user and kept in a cache."""

from __future__ import annotations

import atexit
import fcntl
import functools
import hashlib
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platformdirs import user_cache_path
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions import captured

from deltaflow.errors import RegistrationError
from deltaflow.spark.bridge.java_compiler import compile_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROVIDER = "io.deltaflow.spark.DeltaProvider"
_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
# A jar has about 0.5 MB. A user who changes between more Sparks than these compiles again.
_KEPT_JARS = 8
# The descriptors by which other processes see that this one uses a jar.
_used: dict[Path, int] = {}


@functools.cache  # they belong to the Python that is loaded, whatever an upgrade puts on the disk meanwhile
def java_sources() -> dict[str, str]:
    """The Java sources of deltaflow by file name, with the folder that they are in."""
    root = resources.files("deltaflow.spark").joinpath("java")
    folders = [(root, ""), *((entry, f"{entry.name}/") for entry in root.iterdir() if entry.is_dir())]
    return {
        prefix + file.name: file.read_text(encoding="utf-8")
        for folder, prefix in sorted(folders, key=lambda found: found[1])
        for file in sorted(folder.iterdir(), key=lambda found: found.name)
        if file.name.endswith(".java")
    }


def fingerprint_of_sources() -> str:
    """What tells one state of the Java sources from another."""
    return hashlib.sha256("\0".join(java_sources().values()).encode()).hexdigest()


def jar_of_classes(spark: SparkSession, loader: Any) -> Path:
    """The jar of the classes and of the file by which Spark finds the provider.

    A jar that was compiled before from the same sources, by the same Java, against the same class path, is
    taken from the user's cache. Where there is no private folder for a cache, the jar is in a temporary
    folder, which is removed with the process.

    Raises RegistrationError when this Spark lacks an API that the sources need.
    """
    cache = _private_cache()
    if cache is None:
        jar = Path(tempfile.mkdtemp(prefix="deltaflow-")) / "deltaflow.jar"
        atexit.register(shutil.rmtree, jar.parent, ignore_errors=True)
        _write(jar, _compile(spark, loader))
        return jar
    jar = cache / f"{_fingerprint(spark)}.jar"
    if _use(jar) and _is_whole(jar):
        os.utime(jar)
    else:
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            written = Path(folder) / jar.name
            _write(written, _compile(spark, loader))
            written.replace(jar)  # whole, even where two processes compile at once
        _use(jar)
        _remove_old(cache)
    return jar


def _private_cache() -> Path | None:
    """The folder that jars are kept in, if nobody else can write there: code is loaded from it."""
    folder = user_cache_path("deltaflow", appauthor=False) / "java"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError:
        return None  # a home that is not there, or cannot be written to
    others_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return None if others_write or found.st_uid != os.getuid() or not os.access(folder, os.W_OK) else folder


def _fingerprint(spark: SparkSession) -> str:
    """What tells one compilation from another: the sources, Java, and the jars of the class path."""
    system: Any = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]
    class_path = str(system.getProperty("java.class.path")).split(os.pathsep)
    parts = [fingerprint_of_sources(), spark.version, str(system.getProperty("java.version"))]
    for path in class_path:
        try:
            found = os.stat(path)
        except OSError:
            continue  # entries of a class path need not be there
        parts.append(f"{path} {found.st_size} {found.st_mtime_ns}")
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _compile(spark: SparkSession, loader: Any) -> dict[str, bytes]:
    """Class files by their path in a jar."""
    try:
        return compile_java(spark.sparkContext._gateway, loader, java_sources())
    except (Py4JJavaError, captured.CapturedException) as error:
        reason = str(getattr(error, "java_exception", error))
        raise RegistrationError(
            f"Spark {spark.version} lacks an API that deltaflow needs: {reason.splitlines()[0]}. "
            "Use a release of PySpark that this deltaflow names as supported, or a newer deltaflow"
        ) from error


def _write(jar: Path, classes: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(jar, "w") as archive:
        for name, code in classes.items():
            archive.writestr(name, code)
        archive.writestr(_SERVICE, _PROVIDER + "\n")


def _is_whole(jar: Path) -> bool:
    """Whether the jar is there, and each entry has its checksum."""
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


def _use(jar: Path) -> bool:
    """Keeps the jar, if it is there, from being removed while this process lives. Java opens it anew whenever
    it looks for providers, so a JVM does not go on without it."""
    try:
        opened = os.open(jar, os.O_RDONLY)
    except FileNotFoundError:
        return False
    with suppress(OSError):  # where files cannot be locked, no process removes them
        fcntl.flock(opened, fcntl.LOCK_SH)
    before = _used.get(jar)
    _used[jar] = opened
    if before is not None:
        os.close(before)
    return True


def _remove_old(cache: Path) -> None:
    """Removes the jars that no process uses, but for those that were used last."""
    jars = sorted(cache.glob("*.jar"), key=lambda jar: jar.stat().st_mtime, reverse=True)
    for jar in jars[_KEPT_JARS:]:
        try:
            with jar.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                jar.unlink()
        except OSError:  # it is used, or another process has removed it
            continue
