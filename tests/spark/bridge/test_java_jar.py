"""The jar of our classes is compiled once, and taken from a folder that nobody else can write to."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltaflow.spark.bridge import java_jar

pytestmark = pytest.mark.spark


def sources(monkeypatch: pytest.MonkeyPatch, state: int) -> None:
    """Instead of deltaflow's sources, which this JVM has loaded."""
    source = {"A.java": f"class A {{ int state = {state}; }}"}
    monkeypatch.setattr(java_jar, "java_sources", lambda: source)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "deltaflow" / "java"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many classes each compilation had."""
    counts: list[int] = []
    compile_java = java_jar.compile_java

    def counted(*arguments: Any) -> dict[str, bytes]:
        classes = compile_java(*arguments)
        counts.append(len(classes))
        return classes

    monkeypatch.setattr(java_jar, "compile_java", counted)
    return counts


@pytest.fixture
def jar(spark: SparkSession) -> Callable[[], Path]:
    loader = spark.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    return lambda: java_jar.jar_of_classes(spark, loader)


def test_a_jar_is_compiled_once_for_each_state_of_the_sources(
    cache: Path, compiled: list[int], jar: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sources(monkeypatch, 0)
    first = jar()
    assert first.parent == cache
    assert cache.stat().st_mode & 0o777 == 0o700
    with zipfile.ZipFile(first) as archive:
        assert archive.namelist() == ["A.class", java_jar._SERVICE]
        assert archive.read(java_jar._SERVICE) == b"io.deltaflow.spark.DeltaProvider\n"
    assert jar() == first
    assert len(compiled) == 1

    code = first.read_bytes()
    for damaged in (b"", code[: len(code) // 2], code.replace(b"DeltaProvider\n", b"DeltaProviden\n")):
        first.write_bytes(damaged)
        assert jar() == first
        assert jar().read_bytes() != damaged
    assert len(compiled) == 4

    # Other sources get another jar.
    sources(monkeypatch, 1)
    assert jar() != first
    assert len(compiled) == 5


def test_the_last_jars_stay_and_those_that_a_process_uses(
    cache: Path, jar: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java opens a jar anew for each look for providers: a driver that runs for long needs its own."""
    sources(monkeypatch, 0)
    used = jar()
    others = [used.with_name(f"{number}.jar") for number in range(java_jar._KEPT_JARS)]
    for age, other in enumerate(others, start=1):
        shutil.copy(used, other)
        os.utime(other, (age, age))
    os.utime(used, (0, 0))
    sources(monkeypatch, 1)
    newest = jar()
    assert sorted(cache.iterdir()) == sorted([used, newest, *others[1:]])
    os.close(java_jar._used.pop(used))
    sources(monkeypatch, 2)
    os.utime(newest, (java_jar._KEPT_JARS, java_jar._KEPT_JARS))
    last = jar()
    assert sorted(cache.iterdir()) == sorted([last, newest, *others[2:]])


@pytest.mark.parametrize("why", ["others can write there", "no such home"])
def test_without_a_private_folder_the_jar_is_temporary(
    why: str, cache: Path, compiled: list[int], jar: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sources(monkeypatch, 0)
    if why == "no such home":
        cache.parent.write_text("a file")
    else:
        jar()  # makes the folder
        cache.chmod(0o770)
    kept = set(cache.parent.rglob("*"))
    for _ in range(2):
        temporary = jar()
        assert not temporary.is_relative_to(cache)
        assert temporary.parent.stat().st_mode & 0o777 == 0o700
    assert len(compiled) == (2 if why == "no such home" else 3)
    assert set(cache.parent.rglob("*")) == kept
