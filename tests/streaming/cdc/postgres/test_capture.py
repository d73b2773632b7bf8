"""The files that a capture lands."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

PROGRAM = Path(__file__).parents[4] / "docker" / "capture" / "capture.py"


def capture():
    spec = importlib.util.spec_from_file_location("capture", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record(destination, value):
    return SimpleNamespace(destination=lambda: destination, value=lambda: value)


def test_files_are_whole_and_follow_those_that_are_there(tmp_path):
    """A killed capture leaves a file that nobody reads: its messages come again."""
    people = tmp_path / "public.people"
    people.mkdir()
    (people / "000000000007.json").write_text("{}\n")
    (people / ".000000000008.json").write_text("{")
    landing = capture().Landing(tmp_path, lambda: 5)
    batch = [("shop.public.people", '{"a": "ä"}'), ("shop.public.goods", "{}"), ("shop.public.people", None)]
    landing.handleJsonBatch([record(*each) for each in batch])
    landing.handleJsonBatch([record("shop.public.goods", "[]")])
    assert {str(file.relative_to(tmp_path)): file.read_text() for file in tmp_path.glob("*/*")} == {
        "public.people/000000000007.json": "{}\n",
        "public.people/000000000008.json": '{"a": "ä"}\nnull\n',
        "public.goods/000000000008.json": "{}\n",
        "public.goods/000000000009.json": "[]\n",
    }


def test_no_name_comes_twice(tmp_path):
    """A stream passes by a file whose name it has seen, also if somebody took that file away."""
    names = []
    for _ in range(2):
        landing = capture().Landing(tmp_path)
        landing.handleJsonBatch([record("shop.public.people", "{}")])
        [file] = tmp_path.glob("*/*.json")
        names.append(file.name)
        file.unlink()
    assert names == sorted(set(names))
    assert len(names) == 2
