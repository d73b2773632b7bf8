"""Each dependency has its reason and licence on a page, and the oldest run installs its lower bound."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("java", "s3", "metrics", "plot", "connect", "capture", "demo")
LICENCES = {"Apache-2.0": "Apache", "BSD-3-Clause": "BSD", "MIT": "MIT", "CC0": "CC0", "GPL-2.0": "GPL"}


def requirements(lines: list[str]) -> dict[str, Requirement]:
    found = map(Requirement, lines)
    return {canonicalize_name(each.name): each for each in found if not each.extras}


RUN_TIME = requirements(PROJECT["dependencies"])


def lowest(requirement: Requirement) -> Version:
    [bound] = [each for each in requirement.specifier if each.operator == ">="]
    return Version(bound.version)


def table_of_page() -> list[list[str]]:
    lines = (ROOT / "docs/dependencies.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    return [[cell.strip("`") for cell in row] for row in rows]


def of_extras(*extras: str) -> dict[str, Requirement]:
    return requirements([line for extra in extras for line in PROJECT["optional-dependencies"][extra]])


OLDEST = {"oldest": RUN_TIME, "oldest-extras": of_extras("java", "s3", "metrics", "plot", "connect")}


@pytest.mark.parametrize("run", OLDEST)
def test_the_oldest_run_installs_every_lower_bound(run: str) -> None:
    lines = (ROOT / f"tests/{run}.txt").read_text().splitlines()
    pinned = requirements([line for line in lines if "==" in line])
    for name, requirement in OLDEST[run].items():
        [pin] = pinned[name].specifier
        assert (pin.operator, Version(pin.version)) == ("==", lowest(requirement)), name


def test_each_dependency_is_on_the_page_once() -> None:
    page = table_of_page()
    assert [row[0] for row in page if len(row) == 3] == list(RUN_TIME)
    extras = {extra: set(requirements(PROJECT["optional-dependencies"][extra])) for extra in EXTRAS}
    assert extras.keys() | {"dev", "docs", "notebooks"} == PROJECT["optional-dependencies"].keys()
    of_page: dict[str, set[str]] = {extra: set() for extra in EXTRAS}
    for extra, package, *_ in (row for row in page if len(row) == 4):
        of_page[extra].add(canonicalize_name(package))
    assert of_page == extras


@pytest.mark.parametrize("row", table_of_page(), ids=lambda row: row[-3])
def test_the_licence_is_that_of_the_installed_package(row: list[str]) -> None:
    package, licence = row[-3], row[-1]
    try:
        found = metadata.metadata(package)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    texts = [found.get("License-Expression"), (found.get("License") or "").split("\n")[0]]
    texts += found.get_all("Classifier", [])
    said = " ".join(text for text in texts if text)
    family = LICENCES.get(re.split(r" |-based", licence)[0], "Python Software Foundation|PSF")
    assert re.search(family, said), f"{package}: {said}"
