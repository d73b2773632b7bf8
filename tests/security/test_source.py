"""What the source must not have, whatever it does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
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
            case ast.Call(keywords=keywords) if any(
                keyword.arg == "shell" and getattr(keyword.value, "value", True) for keyword in keywords
            ):
                yield "shell"


def test_nothing_is_unpickled_or_evaluated() -> None:
    files = [file for room in ("deltaflow", "batch", "streaming") for file in (ROOT / room).rglob("*.py")]
    assert len(files) > 200
    found = {str(file): list(faults(ast.parse(file.read_text()))) for file in files}
    assert {file: names for file, names in found.items() if names} == {}
    wrong = "import pickle\nfrom marshal import loads\neval('1')\nos.system('x')\nrun('x', shell=True)"
    assert len(list(faults(ast.parse(wrong)))) == 5


def test_ports_of_the_containers_are_on_the_loopback_interface() -> None:
    services = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert len(ports) >= 5
    assert all(port.startswith("127.0.0.1:") for port in ports), ports
