"""Bad input gives a clear error of the right class, and nothing is lost or written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

from deltaflow.errors import (
    CorruptLogError,
    DeltaError,
    DeltaIllegalArgumentException,
    DeltaTableAlreadyExistsError,
    DeltaTableNotFoundError,
    DeltaUnsupportedOperationException,
    StoreError,
    VersionNotFoundError,
)
from tests.tables import commit_file, files_below, load, versions

pytestmark = pytest.mark.spark


def failing(error_type, use, *texts):
    """The error of a call that fails, checked to have no internals of deltaflow in its message."""
    with pytest.raises(error_type) as caught:
        use()
    text = str(caught.value)
    assert "py4j" not in text
    assert "\tat org.apache" not in text
    for expected in texts:
        assert expected in text
    return caught.value


def writer(spark):
    return spark.range(2).write.format("delta")


def test_no_path(spark):
    for use in (
        lambda: writer(spark).save(),
        lambda: spark.read.format("delta").load(),
    ):
        error = failing(DeltaIllegalArgumentException, use, "'path' is not specified")
        assert error.getErrorClass() == "DELTA_PATH_REQUIRED"
        assert isinstance(error, AnalysisException)


def test_two_paths(spark, tmp_path):
    for name in ("a", "b"):
        writer(spark).save(str(tmp_path / name))
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    failing(AnalysisException, lambda: spark.read.format("delta").load(paths))


def test_a_path_that_is_no_table(spark, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    spark.range(1).write.parquet(str(tmp_path / "parquet"))
    for name in ("nothing", "empty", "other", "parquet"):
        path = str(tmp_path / name)
        reader = spark.read.format("delta").option("path", path)
        error = failing(DeltaTableNotFoundError, reader.load, path)
        assert isinstance(error, AnalysisException)
        assert error.getErrorClass() == ("PATH_NOT_FOUND" if name == "nothing" else "DELTA_TABLE_NOT_FOUND")


def test_a_file_where_a_directory_should_be(spark, tmp_path):
    file = tmp_path / "file"
    file.write_text("precious")
    for use in (
        lambda: load(spark, str(file)),
        lambda: writer(spark).save(str(file)),
        lambda: writer(spark).mode("overwrite").save(str(file)),
        lambda: writer(spark).save(str(file / "below")),
    ):
        failing(DeltaError, use, str(file), "directory")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "_delta_log").write_text("precious")
    failing(DeltaError, lambda: writer(spark).mode("append").save(str(tmp_path / "t")), str(tmp_path / "t"))
    assert os.listdir(tmp_path / "t") == ["_delta_log"]
    assert file.read_text() == "precious"


def test_other_stores(spark):
    for use in (lambda: load(spark, "s3://b/t"), lambda: writer(spark).save("gs://b/t")):
        failing(StoreError, use, "has no file system for")


def test_a_broken_line(spark, table, tmp_path):
    writer(spark).save(table)
    writer(spark).mode("append").save(table)
    broken = tmp_path / "broken"
    Path(table).rename(broken)
    commit = commit_file(broken, 1)
    lines = commit.read_text().splitlines()
    commit.write_text("\n".join([lines[0], lines[1][:40], *lines[2:]]))
    for use in (
        lambda: load(spark, str(broken)),
        lambda: writer(spark).mode("append").save(str(broken)),
        lambda: writer(spark).mode("overwrite").save(str(broken)),
    ):
        failing(CorruptLogError, use, "Line 2", commit.name)
    assert versions(broken) == [0, 1]


def test_a_missing_commit(spark, table, tmp_path):
    for _ in range(3):
        writer(spark).mode("append").save(table)
    broken = tmp_path / "broken"
    Path(table).rename(broken)
    commit_file(broken, 1).unlink()
    failing(CorruptLogError, lambda: load(spark, str(broken)), "1", str(broken))
    failing(CorruptLogError, lambda: writer(spark).mode("append").save(str(broken)), "1", str(broken))


def test_a_log_that_only_a_checkpoint_holds_is_a_table(spark, tmp_path):
    import deltalake
    import pyarrow as pa

    path = tmp_path / "t"
    deltalake.write_deltalake(str(path), pa.table({"id": [1]}))
    deltalake.DeltaTable(str(path)).create_checkpoint()
    commit_file(path, 0).unlink()
    assert load(spark, str(path)).count() == 1
    failing(DeltaTableAlreadyExistsError, lambda: writer(spark).save(str(path)))
    writer(spark).mode("append").save(str(path))
    assert deltalake.DeltaTable(str(path)).version() == 1
    assert deltalake.DeltaTable(str(path)).to_pyarrow_table().num_rows == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("replaceOn", "t.id = s.id"),
        ("replaceUsing", "id"),
        ("TARGETALIAS", "t"),
    ],
)
def test_write_options_that_are_not_there_yet(spark, table, name, value):
    error = failing(
        DeltaUnsupportedOperationException,
        lambda: writer(spark).option(name, value).save(table),
        "not supported yet",
    )
    assert name.lower() in str(error).lower()
    assert error.getErrorClass() == "DELTA_UNSUPPORTED_OPTION"
    assert not os.path.exists(table)


def test_options_that_ask_for_nothing(spark, table):
    writer(spark).option("mergeSchema", "false").option("dataChange", "true").save(table)
    assert spark.read.format("delta").option("readChangeFeed", "false").load(table).count() == 2
    failing(
        DeltaIllegalArgumentException,
        lambda: writer(spark).mode("append").option("dataChange", "no").save(table),
        "no",
    )


def test_buckets_are_refused(spark, table):
    failing(Exception, lambda: writer(spark).bucketBy(2, "id").sortBy("id").save(table))
    assert not os.path.exists(table)


def test_a_frame_without_columns(spark, table):
    failing(AnalysisException, lambda: spark.range(1).select().write.format("delta").save(table))
    assert not os.path.exists(table)


def test_a_table_that_was_replaced_under_a_frame(spark, table, tmp_path):
    writer(spark).save(table)
    frame = load(spark, table)
    Path(table).rename(tmp_path / "old")
    spark.range(7).write.format("delta").save(table)
    failing(DeltaError, frame.collect, "replaced")
    assert load(spark, table).count() == 7


def test_a_version_that_is_none_or_not_there(spark, table):
    writer(spark).save(table)
    writer(spark).mode("overwrite").save(table)
    for version, error_type, message in (
        ("2", VersionNotFoundError, "[0, 1]"),
        ("-1", DeltaIllegalArgumentException, "versionAsOf"),
        ("new", DeltaIllegalArgumentException, "versionAsOf"),
    ):
        reader = spark.read.format("delta").option("versionAsOf", version)
        failing(error_type, lambda reader=reader: reader.load(table), message)
    assert spark.read.format("delta").option("versionAsOf", 0).load(table).count() == 2


def test_a_table_with_a_wrong_isolation_level(spark, table):
    writer(spark).save(table)
    commit = commit_file(table, 0)
    wrong = commit.read_text().replace(
        '"configuration":{}', '"configuration":{"delta.isolationLevel":"most"}'
    )
    assert "most" in wrong
    commit.write_text(wrong)
    before = files_below(table)
    failing(DeltaIllegalArgumentException, lambda: writer(spark).mode("append").save(table), "isolationLevel")
    assert files_below(table) == before
