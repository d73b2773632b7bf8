"""Short races, whose long ones are a command of their own (`python -m tests.races`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.races.places import Place, local, objects
from tests.races.race import Race, run
from tests.races.writers import Writers

pytestmark = pytest.mark.spark

ENGINES = ("spark", "spark", "deltalake")
OF_OURS, OF_BOTH = ENGINES[:2], ENGINES


@pytest.fixture(
    scope="module", params=[local, pytest.param(objects, marks=pytest.mark.long)], ids=["local", "objects"]
)
def raced(request: pytest.FixtureRequest, object_store_jar: Path) -> Iterator[tuple[Place, Writers]]:
    """A place, and writers there."""
    with ExitStack() as stack:
        place = stack.enter_context(request.param())
        yield place, stack.enter_context(Writers(ENGINES, place, str(object_store_jar)))


@pytest.mark.parametrize(
    ("seed", "engines"),
    [
        pytest.param(9, OF_OURS, id="WriteSerializable, with all features"),
        pytest.param(100, OF_BOTH, id="Serializable, two engines"),
    ],
)
def test_the_history_is_one_of_its_isolation_level(
    spark, hadoop_settings, raced, seed: int, engines: tuple[str, ...]
) -> None:
    place, writers = raced
    race = Race.of_seed(seed, engines, 3)
    with hadoop_settings(place.settings):
        outcome = run(race, spark, place, writers)
    assert outcome.report.faults == []
    assert not outcome.report.without_order
    assert outcome.report.operations == 3 * len(engines)
    assert outcome.report.commits > 0  # others may lose their races
