"""What clients of Spark Connect have of the classic API, without a server."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

import deltaflow.connect
import deltaflow.tables

NO_JVM = """
import sys
import deltaflow.connect
from pyspark import SparkContext
assert SparkContext._gateway is None
print(sorted(name for name in sys.modules if name.startswith(("deltaflow.spark", "deltaflow.log"))))
"""


def surface(class_: type) -> Mapping[str, Any]:
    """The parameters of each public method: names, kinds and defaults."""
    return {
        name: [
            (parameter.name, parameter.kind, parameter.default)
            for parameter in inspect.signature(getattr(class_, name)).parameters.values()
        ]
        for name in dir(class_)
        if not name.startswith("_") and callable(getattr(class_, name))
    }


@pytest.mark.parametrize("name", deltaflow.tables.__all__)
def test_the_public_methods_are_those_of_the_classic_api(name: str) -> None:
    assert surface(getattr(deltaflow.connect, name)) == surface(getattr(deltaflow.tables, name))


def test_the_module_has_the_names_of_the_classic_one() -> None:
    assert deltaflow.connect.__all__ == deltaflow.tables.__all__


def test_a_client_loads_nothing_that_is_for_a_jvm() -> None:
    assert subprocess.check_output([sys.executable, "-c", NO_JVM], text=True) == "[]\n"
