"""What an installation puts into site-packages, from a wheel and editable."""

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROBE = """
import pathlib, deltaflow, deltaflow.log, deltaflow.store, deltaflow.streaming, deltaflow.batch, deltaflow.spark
print(pathlib.Path(deltaflow.__file__).resolve().parent)
print(pathlib.Path(deltaflow.streaming.__file__).resolve().parent)
print(sum(1 for _ in (pathlib.Path(deltaflow.spark.__file__).parent / "java").glob("*.java")))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of what is under version control, so that nothing else can get in."""
    source = tmp_path_factory.mktemp("source")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(
        ["tar", "--create", "--null", "--files-from=-", f"--file={source / 'source.tar'}"],
        cwd=ROOT,
        input=listed,
        check=True,
    )
    subprocess.run(["tar", "--extract", "--file=source.tar"], cwd=source, check=True)
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
    # What a .pth file adds is searched for packages; .pth files in there (an editable deltaflow) are not read.
    (site_packages / "outer.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


def install(environment: Path, *what: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--python", environment, "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*command, "--no-build-isolation", "--ignore-installed", *what], check=True)


def probe(environment: Path, folder: Path) -> tuple[Path, Path, int]:
    done = subprocess.run([environment, "-c", PROBE], cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    package, streaming, java_sources = done.stdout.splitlines()
    return Path(package), Path(streaming), int(java_sources)


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"deltaflow", f"deltaflow-{wheel.name.split('-')[1]}.dist-info"}
    assert "deltaflow/py.typed" in names
    in_repository = {f"deltaflow/spark/java/{source.name}" for source in (ROOT / "deltaflow/spark/java").glob("*.java")}
    assert in_repository
    assert in_repository == {name for name in names if name.endswith(".java")}
    assert {"deltaflow/streaming/__init__.py", "deltaflow/batch/__init__.py"} <= set(names)
    assert any(name.endswith("/LICENSE") for name in names)


def test_an_installed_wheel_is_importable(wheel: Path, environment: Path, tmp_path: Path) -> None:
    install(environment, wheel)
    package, streaming, java_sources = probe(environment, tmp_path)
    assert package.is_relative_to(tmp_path)
    assert streaming == package / "streaming"
    assert java_sources > 0
    new = {path.name for path in package.parent.iterdir()} - {"outer.pth"}
    assert new == {"deltaflow", f"deltaflow-{wheel.name.split('-')[1]}.dist-info"}


def test_an_editable_installation_is_the_checkout(environment: Path, tmp_path: Path) -> None:
    install(environment, "-e", ROOT)
    package, streaming, java_sources = probe(environment, tmp_path)
    assert package == ROOT / "deltaflow"
    assert streaming == ROOT / "streaming"
    assert java_sources > 0
    bare = subprocess.run([environment, "-c", "import streaming"], cwd=tmp_path, capture_output=True, text=True)
    assert "ModuleNotFoundError" in bare.stderr
