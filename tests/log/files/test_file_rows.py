from __future__ import annotations

import pytest

from deltaflow.log.files.file_key import logical_key
from tests.log.checkpoints import write_checkpoint
from tests.log.hand_written import HandWrittenTable, add, meta_data, protocol

VECTOR = {"storageType": "u", "pathOrInlineDv": "v", "offset": 1, "sizeInBytes": 2, "cardinality": 1}


@pytest.mark.parametrize("is_checkpoint", [False, True])
def test_deletion_vectors_are_columns(table: HandWrittenTable, is_checkpoint: bool) -> None:
    """Also where no protocol announces them. A field of the same name elsewhere is none."""
    other = {} if is_checkpoint else {"mine": {"deletionVector": VECTOR}}
    files = [add("a", **other), add("b", baseRowId=1), add("c", deletionVector=VECTOR)]
    table.first_commit(*files)
    if is_checkpoint:
        (table.log_directory / f"{0:020}.json").unlink()
        write_checkpoint(table, 0, [protocol(), meta_data(), *files])
    snapshot = table.log().snapshot()
    paths, found = (snapshot.files[name].to_pylist() for name in ("path", "deletion_vector"))
    vectors = dict(zip(paths, found, strict=True))
    assert vectors == {"a": None, "b": None, "c": VECTOR}
    assert snapshot.num_deletion_vectors == 1


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("a%3Ab.parquet", "a:b.parquet"),
        ("file%3Aa", "file:a"),
        ("file%3A/t/a", "file:/t/a"),
        ("S3%3A//b/a", "S3:/b/a"),
        ("/t/a%3Ab", "a:b"),
        ("file:/t/a%3Ab", "a:b"),
        ("file:///t/a", "a"),
        ("%2Ft/a", "a"),
        ("S3A://b/a%3Ab", "s3://b/a:b"),
    ],
)
def test_what_is_absolute_is_told_before_decoding(path: str, key: str) -> None:
    assert logical_key(path, None, "/t") == key


@pytest.mark.parametrize("table", ["s3://b/t", "s3a://b/t", "hdfs://b/t", "abfss://b/t"])
@pytest.mark.parametrize("path", ["x%3Ay", "{}/x%3Ay", "/t/x%3Ay"])
def test_a_file_of_a_table_elsewhere_is_one_however_it_is_named(table: str, path: str) -> None:
    assert logical_key(path.format(table), None, table) == "x:y"


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_a_bucket_of_s3_is_one_by_every_scheme(scheme: str) -> None:
    assert logical_key(f"{scheme}://b/t/x", None, "s3a://b/t") == "x"
    assert logical_key(f"{scheme}://b/u/x", None, "s3a://b/t") == "s3://b/u/x"
