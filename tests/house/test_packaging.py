"""What an installation puts into site-packages, from a wheel and editable."""

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROBE = """
import pathlib, deltaflow
import deltaflow.log, deltaflow.store, deltaflow.streaming, deltaflow.batch, deltaflow.spark
print(pathlib.Path(deltaflow.__file__).resolve().parent)
print(pathlib.Path(deltaflow.streaming.__file__).resolve().parent)
print(sum(1 for _ in (pathlib.Path(deltaflow.spark.__file__).parent / "java").rglob("*.java")))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the sources, so that no earlier build gets in and none is left behind."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("deltaflow", "streaming", "batch"):
        shutil.copytree(
            ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", source / "out", source],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    [built] = (source / "out").iterdir()
    return built


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The Python of a new virtual environment that sees this one's packages, but not its own deltaflow."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site_packages = next((folder / "lib").glob("python3*/site-packages"))
    # Packages are found in a folder that a .pth file adds; the .pth files in there are not read, among
    # them that of an editable deltaflow.
    (site_packages / "outer.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


def install(environment: Path, *what: str | Path) -> None:
    options = ["-q", "--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed"]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", environment, "install", *options, *what], check=True
    )


def dist_info(wheel: Path) -> str:
    name, version, *_ = wheel.name.split("-")
    return f"{name}-{version}.dist-info"


def probe(environment: Path, folder: Path) -> tuple[Path, Path, int]:
    shown = subprocess.check_output([environment, "-c", PROBE], cwd=folder, text=True)
    package, streaming, java_sources = shown.splitlines()
    return Path(package), Path(streaming), int(java_sources)


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"deltaflow", dist_info(wheel)}
    assert "deltaflow/py.typed" in names
    java_sources = {
        str(source.relative_to(ROOT)) for source in (ROOT / "deltaflow/spark/java").rglob("*.java")
    }
    assert java_sources
    assert java_sources == {name for name in names if name.endswith(".java")}
    assert {"deltaflow/streaming/__init__.py", "deltaflow/batch/__init__.py"} <= set(names)
    assert any(name.endswith("/LICENSE") for name in names)


@pytest.mark.long
def test_an_installed_wheel_is_importable(wheel: Path, environment: Path, tmp_path: Path) -> None:
    install(environment, wheel)
    package, streaming, java_sources = probe(environment, tmp_path)
    assert package.is_relative_to(tmp_path)
    assert streaming == package / "streaming"
    assert java_sources > 0
    new = {path.name for path in package.parent.iterdir()} - {"outer.pth"}
    assert new == {"deltaflow", dist_info(wheel)}


@pytest.mark.long
def test_an_editable_installation_is_the_checkout(environment: Path, tmp_path: Path) -> None:
    install(environment, "-e", ROOT)
    package, streaming, java_sources = probe(environment, tmp_path)
    assert package == ROOT / "deltaflow"
    assert streaming == ROOT / "streaming"
    assert java_sources > 0
    found = "import importlib.util as u; print(u.find_spec('streaming'), u.find_spec('batch'))"
    assert subprocess.check_output([environment, "-c", found], cwd=tmp_path, text=True) == "None None\n"
