"""`deltaflow.exceptions`: the names of `delta.exceptions`."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from deltaflow import errors, exceptions

NAMES_OF_DELTA = [
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "DeltaConcurrentModificationException",
    "MetadataChangedException",
    "ProtocolChangedException",
]


def test_the_names_are_those_of_delta() -> None:
    assert sorted(exceptions.__all__) == NAMES_OF_DELTA


@pytest.mark.parametrize("name", NAMES_OF_DELTA)
def test_each_is_caught_by_the_names_that_people_use(name: str) -> None:
    error_type = getattr(exceptions, name)
    assert error_type is getattr(errors, name)
    for caught in (error_type, exceptions.DeltaConcurrentModificationException, PySparkException):
        with pytest.raises(caught, match="It broke"):
            raise error_type("It broke.")
