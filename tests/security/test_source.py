"""What the source must not have, whatever it does."""

from __future__ import annotations

import ast
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FILES = [file for room in ("deltaflow", "batch", "streaming") for file in (ROOT / room).rglob("*.py")]
MODULES = {"pickle", "cloudpickle", "marshal", "shelve", "dill", "pty", "telnetlib", "ftplib"}
CALLS = {"eval", "exec", "compile", "__import__"}


def faults(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names if name.name.split(".")[0] in MODULES)
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in MODULES:
                yield module
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                yield name
            case ast.Call(func=ast.Attribute(attr="system" | "popen", value=ast.Name(id="os"))):
                yield "os.system"
            case ast.Attribute(attr="mktemp"):
                yield "mktemp"
            case ast.Constant(value=str(text)) if text.startswith(("/tmp", "/var/tmp", "/dev/shm")):
                yield text
            case ast.Call(keywords=keywords) if any(
                keyword.arg == "shell" and getattr(keyword.value, "value", True) for keyword in keywords
            ):
                yield "shell"


def test_nothing_is_unpickled_or_evaluated() -> None:
    assert len(FILES) > 200
    found = {str(file): list(faults(ast.parse(file.read_text()))) for file in FILES}
    assert {file: names for file, names in found.items() if names} == {}
    wrong = "import pickle\nfrom marshal import loads\neval('1')\nos.system('x')\nrun('x', shell=True)"
    assert len(list(faults(ast.parse(wrong)))) == 5


def test_temporary_files_are_private() -> None:
    wrong = "tempfile.mktemp()\nopen('/tmp/x')"
    assert len(list(faults(ast.parse(wrong)))) == 2
    folder = Path(tempfile.mkdtemp())
    descriptor, name = tempfile.mkstemp(dir=folder)
    os.close(descriptor)
    assert (folder.stat().st_mode & 0o777, Path(name).stat().st_mode & 0o777) == (0o700, 0o600)


def test_json_of_others_is_decoded_in_one_place() -> None:
    log = ROOT / "deltaflow/log"
    own = {"untrusted_json.py", "version_checksum.py", "checkpoint_rows.py", "footers.py"}
    found = {file.name for file in log.rglob("*.py") if "msgspec.json.decode(" in file.read_text()}
    assert found == own  # the others decode what this process has encoded, or the Parquet library


def test_ports_of_the_containers_are_on_the_loopback_interface() -> None:
    services = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert len(ports) >= 5
    assert all(port.startswith("127.0.0.1:") for port in ports), ports
