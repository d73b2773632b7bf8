"""Files of other writers: their actions are followed, or the read is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaflow.errors import StoreError
from tests.deletion_vectors import inline
from tests.tables import actions, edit_commit, ids, load

pytestmark = pytest.mark.spark


def change_add(table, **fields):
    """Sets these fields of the only add action of the first commit; returns the file's old name."""
    (before,) = actions(table, "add", 0)
    edit_commit(table, lambda action: action.get("add", {}).update(fields))
    return before["path"]


@pytest.fixture
def path(spark, tmp_path):
    """A table with one file that is in no cache yet."""
    path = tmp_path / "written"
    spark.range(3).coalesce(1).write.format("delta").save(str(path))
    return str(path.rename(tmp_path / "foreign"))


@pytest.mark.breaks_protocol
def test_a_deletion_vector_that_the_protocol_does_not_announce_counts(spark, path):
    change_add(path, deletionVector=inline([1]))
    assert ids(load(spark, path)) == [0, 2]
    assert load(spark, path).count() == 2


@pytest.mark.parametrize("directory", ["a:b", "file:c", "s3:"])
@pytest.mark.parametrize("is_absolute", [False, True])
@pytest.mark.sampled(3)
def test_an_encoded_colon_belongs_to_a_name(spark, path, directory, is_absolute):
    encoded = directory.replace(":", "%3A") + "/1.parquet"
    name = change_add(path, path=f"file://{path}/{encoded}" if is_absolute else encoded)
    Path(path, directory).mkdir()
    Path(path, name).rename(Path(path, directory, "1.parquet"))
    rows = load(spark, path).collect()
    assert sorted(row.id for row in rows) == [0, 1, 2]


def test_a_local_file_that_hadoop_cannot_open_is_refused(spark, path):
    name = change_add(path, path="a%3Ab.parquet")
    Path(path, name).rename(Path(path, "a:b.parquet"))
    frame = load(spark, path)
    with pytest.raises(StoreError, match="has a colon") as refused:
        frame.collect()
    assert f"{path}/a:b.parquet" in str(refused.value)
