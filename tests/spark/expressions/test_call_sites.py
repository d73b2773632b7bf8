"""Expressions without the lines in which they were made: those of deltaflow's own threads alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import functions as F

from deltaflow.spark.expressions.call_sites import without_call_sites

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

pytestmark = pytest.mark.spark


def divided() -> Column:
    return F.lit(1) / F.col("id")


def test_lines_are_noted_but_inside(spark: SparkSession) -> None:
    def noted(quotient: Column) -> bool:
        with pytest.raises(ArithmeticException) as error:
            spark.range(1).select(quotient).collect()
        return "test_call_sites.py" in str(error.value)

    before = divided()
    with without_call_sites():
        with without_call_sites():
            pass
        assert not noted(divided())
        assert noted(before)
    with ThreadPoolExecutor(max_workers=1) as other:
        inside = without_call_sites()
        other.submit(inside.__enter__).result()
        assert noted(divided())
        other.submit(inside.__exit__, None, None, None).result()
