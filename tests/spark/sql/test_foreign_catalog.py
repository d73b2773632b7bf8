"""Where spark_catalog is another project's class, it stays; Delta tables by name are in a catalog of ours."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import deltaflow
from deltaflow.errors import DeltaTableNotFoundError, DeltaUnsupportedOperationException

pytestmark = pytest.mark.spark

CLASS = "other.project.OtherCatalog"
SOURCE = """
package other.project;
public class OtherCatalog extends org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension {}
"""


@pytest.fixture
def session(
    spark: SparkSession, janino: Callable[[str], dict[str, bytes]], tmp_path: Path
) -> Iterator[SparkSession]:
    """A session with a catalog of somebody else."""
    for name, code in janino(SOURCE).items():
        file = tmp_path / "classes" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(code)
    jvm: Any = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    loader.addURL(jvm.java.io.File(f"{tmp_path}/classes/").toURI().toURL())
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.spark_catalog", CLASS)
    session.sql(f"CREATE DATABASE foreign LOCATION '{tmp_path}/foreign'")
    yield session
    spark.sql("DROP DATABASE foreign CASCADE")
    spark.sparkContext._jsc.sc().conf().remove("spark.sql.catalog.deltaflow")


def test_it_stays_and_ours_goes_beside_it(
    session: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="deltaflow"):
        deltaflow.register(session)
    assert f"spark.sql.catalog.spark_catalog is {CLASS} and stays so" in caplog.text
    assert "deltaflow.<database>.<table>" in caplog.text
    assert session.conf.get("spark.sql.catalog.spark_catalog") == CLASS
    catalogs = session._jsparkSession.sessionState().catalogManager()
    assert catalogs.catalog("spark_catalog").getClass().getName() == CLASS

    session.range(3).write.format("delta").save(str(tmp_path / "path"))
    assert session.read.format("delta").load(str(tmp_path / "path")).count() == 3
    assert session.sql(f"SELECT * FROM deltaflow.delta.`{tmp_path}/path`").count() == 3

    built = deltaflow.DeltaTable.create(session).location(str(tmp_path / "built"))
    assert built.addColumn("id", "long").execute().toDF().columns == ["id"]

    session.sql("CREATE TABLE deltaflow.foreign.t (id BIGINT, p STRING) USING delta PARTITIONED BY (p)")
    session.sql("INSERT INTO deltaflow.foreign.t VALUES (1, 'a'), (2, 'b')")
    session.sql("INSERT OVERWRITE deltaflow.foreign.t PARTITION (p = 'a') VALUES (3)")
    session.range(1).selectExpr("id", "'c' AS p").writeTo("deltaflow.foreign.t").append()
    found = session.sql("SELECT t.id, p FROM deltaflow.foreign.t WHERE p < 'c'").collect()
    assert sorted(map(tuple, found)) == [(2, "b"), (3, "a")]
    assert session.table("deltaflow.foreign.t").count() == 3
    assert session.sql("SELECT * FROM deltaflow.foreign.t VERSION AS OF 1").count() == 2
    session.sql("CREATE OR REPLACE TABLE deltaflow.foreign.t USING delta AS SELECT 1 AS x")
    assert session.table("deltaflow.foreign.t").columns == ["x"]
    session.sql("DROP TABLE deltaflow.foreign.t")
    assert not (tmp_path / "foreign" / "t").exists()

    session.sql("CREATE TABLE foreign.p USING parquet AS SELECT 1 AS x")
    assert session.table("deltaflow.foreign.p").count() == session.table("foreign.p").count() == 1


def test_statements_on_our_tables_by_their_names_do_not_go_past_the_log(
    session: SparkSession, tmp_path: Path
) -> None:
    deltaflow.register(session)
    session.sql("CREATE TABLE deltaflow.foreign.u (id BIGINT, p STRING) USING delta PARTITIONED BY (p)")
    session.sql("INSERT INTO deltaflow.foreign.u VALUES (1, 'a'), (2, 'b')")
    session.sql("TRUNCATE TABLE foreign.u")
    with pytest.raises(DeltaTableNotFoundError):
        session.sql(f"ALTER TABLE foreign.u SET LOCATION '{tmp_path}/elsewhere'")
    session.sql("ALTER TABLE foreign.u RENAME TO foreign.v")
    with pytest.raises(DeltaUnsupportedOperationException):
        session.sql("INSERT OVERWRITE foreign.v VALUES (3, 'c')")
    assert session.table("deltaflow.foreign.v").count() == 0
    assert session.sql("SELECT * FROM deltaflow.foreign.v VERSION AS OF 1").count() == 2
