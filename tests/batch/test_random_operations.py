"""Short runs of random_operations, whose long one is a command of its own."""

from __future__ import annotations

import pytest

from tests.batch.random_operations import play
from tests.trials import trials

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("seed", trials(6, short=1))
@pytest.mark.sampled(2)
def test_the_rows_are_the_models_at_every_version(spark, tmp_path, seed, settings):
    with settings({"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
        game = play(spark, str(tmp_path / "table"), seed, 8)
    assert len(game.done) == 9
