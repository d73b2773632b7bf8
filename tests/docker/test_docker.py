"""docker/: nobody builds an image here, so what the images and containers run is run without them."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import click
import compose_spec
import pyspark
import pytest
import yaml
from packaging.requirements import Requirement

from deltaflow.connect_server import connect_server
from tests.class_archive import SPARK_JARS
from tests.docker.compose import COMPOSE, DOCKER, SERVICES, spark_defaults
from tests.object_store.server import ObjectStoreServer
from tests.processes import Daemon

ROOT = Path(__file__).parents[2]
START = DOCKER / "spark" / "start"
DOCKERFILES = sorted(DOCKER.rglob("Dockerfile"))
REQUIREMENTS = sorted(DOCKER.rglob("requirements.txt"))
CONTEXTS = {DOCKER / "capture" / "Dockerfile": DOCKER / "capture"}
"""The folders that images are built from, if not the repository."""


def instructions(dockerfile: Path, name: str) -> list[str]:
    """What the lines of this instruction say, continued lines in one."""
    text = dockerfile.read_text().replace("\\\n", " ")
    return [line.split(None, 1)[1] for line in text.splitlines() if line.startswith(f"{name} ")]


def commands(dockerfile: Path, program: str) -> Iterator[list[str]]:
    """The commands of this program that the image is built with."""
    for run in instructions(dockerfile, "RUN"):
        for command in re.split(r"&&", run):
            if (words := shlex.split(command))[0] == program:
                yield words


def test_the_compose_file_is_one_by_the_specification() -> None:
    # With YAML's merge keys filled in, which this parser of the specification leaves alone.
    compose = yaml.safe_load(COMPOSE.read_text())
    parsed = compose_spec.PyCompose.from_json(json.dumps(compose))
    assert set(parsed.service_names()) == SERVICES.keys()
    compose["services"]["lab"]["commands"] = ["start-lab"]
    with pytest.raises(ValueError, match="commands"):
        compose_spec.PyCompose.from_json(json.dumps(compose))


def test_services_depend_on_services_and_mount_volumes_that_there_are() -> None:
    volumes = yaml.safe_load(COMPOSE.read_text())["volumes"]
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", ())) <= SERVICES.keys(), name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in volumes or (DOCKER / source).exists(), f"{name}: {volume}"
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{name} publishes {port} to everybody"


def test_images_and_packages_are_pinned() -> None:
    bases = [base for dockerfile in DOCKERFILES for base in instructions(dockerfile, "FROM")]
    images = [service["image"] for service in SERVICES.values() if "build" not in service]
    for image in [*bases, *images]:
        assert re.fullmatch(r"[\w/]+:[\w.-]*\d[\w.-]*", image), image
    for requirements in REQUIREMENTS:
        lines = [line.split("#")[0].strip() for line in requirements.read_text().splitlines()]
        for line in filter(None, lines):
            assert [one.operator for one in Requirement(line).specifier] == ["=="], line


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: str(path.relative_to(DOCKER)))
def test_what_an_image_copies_is_there(dockerfile: Path) -> None:
    context = CONTEXTS.get(dockerfile, ROOT)
    for copied in instructions(dockerfile, "COPY"):
        *sources, _ = [word for word in copied.split() if not word.startswith("--")]
        for source in sources:
            assert (context / source).exists(), source


def test_the_builds_of_the_services_are_those_of_the_dockerfiles() -> None:
    built = {
        (DOCKER / service["build"]["context"]).resolve() / service["build"].get("dockerfile", "Dockerfile")
        for service in SERVICES.values()
        if "build" in service
    }
    assert built == {DOCKER / "spark" / "Dockerfile", DOCKER / "capture" / "Dockerfile"}


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: str(path.relative_to(DOCKER)))
@pytest.mark.sampled(6)
def test_pip_resolves_what_an_image_installs(dockerfile: Path, tmp_path: Path) -> None:
    """Only resolves: what this environment has is not fetched again."""
    for words in commands(dockerfile, "pip"):
        folder = CONTEXTS.get(dockerfile, ROOT)
        # In the image they lie beside each other.
        beside = {"requirements.txt": str(next(iter(dockerfile.parent.glob("requirements.txt")), ""))}
        arguments = [beside.get(word, word) for word in words[2:]]
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--dry-run", "-q", "--no-build-isolation", *arguments],
            cwd=folder,
            check=True,
            stderr=subprocess.DEVNULL,
        )


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: str(path.relative_to(DOCKER)))
@pytest.mark.sampled(2)
def test_debian_has_what_an_image_installs(dockerfile: Path) -> None:
    for words in commands(dockerfile, "apt-get"):
        packages = [word for word in words[2:] if not word.startswith("-")]
        for package in packages if words[1] == "install" else ():
            if not shutil.which("apt-cache"):
                pytest.skip("this is no Debian")
            policy = subprocess.check_output(["apt-cache", "policy", package], text=True)
            if not policy:
                pytest.skip("apt-get update was not run on this machine")
            assert "Candidate: (none)" not in policy, package


def test_the_spark_of_the_image_is_the_tested_one_and_its_connector_fits() -> None:
    pins = dict(line.split("==") for line in (REQUIREMENTS[-1]).read_text().splitlines() if "==" in line)
    version = importlib.metadata.version("pyspark")
    if version < "4.3":
        pytest.skip("the image has the newest Spark")
    assert pins["pyspark"] == version
    [client] = SPARK_JARS.glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    assert spark_defaults()["spark.jars.packages"] == f"org.apache.hadoop:hadoop-aws:{version}"


def test_the_containers_run_programs_that_there_are() -> None:
    of_images = {program.name for program in START.iterdir()} | {"deltaflow", "python"}
    for name, service in SERVICES.items():
        assert "build" not in service or service["command"][0] in of_images, name
    for program in START.iterdir():
        assert program.stat().st_mode & 0o111, program.name
        if program.read_text().startswith("#!/bin/sh"):
            subprocess.run(["sh", "-n", program], check=True)


def test_the_connect_server_takes_its_arguments() -> None:
    arguments = SERVICES["connect"]["command"]
    assert arguments[:2] == ["deltaflow", "connect-server"]
    context = connect_server.make_context("connect-server", arguments[2:])
    assert isinstance(context, click.Context)
    assert context.params["host"] == "0.0.0.0"


def test_the_demo_takes_its_arguments() -> None:
    helped = subprocess.check_output([sys.executable, "-m", "deltaflow.demo", "--help"], text=True)
    arguments = SERVICES["demo"]["command"]
    assert arguments[:3] == ["python", "-m", "deltaflow.demo"]
    assert all(word in helped for word in arguments if word.startswith("--"))


def test_the_capture_takes_its_arguments() -> None:
    program = [sys.executable, str(DOCKER / "capture" / "capture.py")]
    helped = subprocess.check_output([*program, "--help"], text=True)
    python, script, *arguments = SERVICES["capture"]["command"]
    assert (python, script) == ("python", "/opt/capture/capture.py")
    assert all(argument.split("=")[0] in helped for argument in arguments)


def test_the_home_of_spark_is_found() -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    found = subprocess.check_output([START / "spark-home"], env=environment, text=True).strip()
    assert Path(found) == Path(pyspark.__file__).parent


def test_a_bucket_is_made_once() -> None:
    credentials = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    program, _, endpoint = SERVICES["bucket"]["command"]
    assert endpoint == spark_defaults()["spark.hadoop.fs.s3a.endpoint"]
    name = f"lake-{uuid.uuid4().hex}"
    with ObjectStoreServer() as server:
        for _ in range(2):
            printed = subprocess.check_output(
                [sys.executable, START / program, name, server.endpoint],
                env={**os.environ, **credentials},
                text=True,
            )
            assert printed == f"{server.endpoint} has the bucket {name}.\n"
        assert server.keys(name) == []


def test_jupyterlab_starts(tmp_path: Path) -> None:
    pytest.importorskip("jupyterlab", reason="JupyterLab is in the image alone")
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "JUPYTER_TOKEN": "token",
        "LAB_FOLDER": str(tmp_path),
        "LAB_HOST": "127.0.0.1",
        "LAB_PORT": "0",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    lab = Daemon("JupyterLab", [str(START / "start-lab"), "--allow-root"], tmp_path / "lab", environment)
    try:
        assert lab.wait_for(r"http://127\.0\.0\.1:\d+/lab\?token=")
    finally:
        lab.kill()
