"""Deletion vectors as the log has them: inline and in files, and everything that may be wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from deltaflow.errors import CorruptLogError, DeltaError, StoreError
from deltaflow.log.files import deletion_vectors
from deltaflow.log.files.deletion_vectors import (
    DeletionVector,
    decoded_z85,
    packed_vectors,
    read_deletion_vectors,
    vector_uri,
)
from deltaflow.log.files.file_rows import DELETION_VECTOR, vector_row
from tests.deletion_vectors import MAGIC, Bin, bitmap, described, inline, z85


def files_with(*vectors: dict[str, Any] | None, records: int | None = None) -> pa.Table:
    stats = None if records is None else f'{{"numRecords":{records}}}'
    return pa.table(
        {
            "path": [f"part-{number}.parquet" for number in range(len(vectors))],
            "stats": pa.array([stats] * len(vectors), pa.string()),
            "deletion_vector": pa.array(list(vectors), DELETION_VECTOR),
        }
    )


def rows_of(vectors: Sequence[DeletionVector | None]) -> list[list[int] | None]:
    return [None if vector is None else list(vector.rows) for vector in vectors]


def test_the_examples_of_the_protocol() -> None:
    # The one for inline vectors has another magic number than the protocol asks for.
    text = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    assert decoded_z85(text)[16:] == BitMap64([3, 4, 7, 11, 18, 29]).serialize()[16:]
    with_prefix = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert vector_uri("u", "ab^-aqEH.-t@S}K{vb[*k^") == with_prefix
    assert vector_uri("u", "^-aqEH.-t@S}K{vb[*k^") == with_prefix[3:]
    assert vector_uri("p", "s3://mytable/x.bin") == "s3://mytable/x.bin"
    with pytest.raises(ValueError, match="storage type"):
        vector_uri("x", "y")
    for wrong in ("abcd", "ab cd", "äbcde"):
        with pytest.raises(ValueError, match="no text in Z85"):
            decoded_z85(wrong)


@pytest.mark.parametrize("prefix", [None, "aB"])
def test_new_vectors_share_files(tmp_path: Path, prefix: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion_vectors, "_REQUEST_BYTES", 300)
    rows = [[0], list(range(100_000)), [5, 2**31, 2**32 - 1], *[[i, i + 70_000] for i in range(10)]]
    files, descriptors = packed_vectors([BitMap64(of_file) for of_file in rows], prefix)
    assert 1 < len(files) < 10
    assert len({file.name for file in files}) == len(files)
    for file in files:
        path = tmp_path / file.name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(file.content)
        assert file.content[0] == 1
        assert path.parent.name == (prefix or tmp_path.name)
    assert [descriptor.cardinality for descriptor in descriptors] == [len(of_file) for of_file in rows]
    assert descriptors[0].offset == 1
    table = files_with(*[vector_row(descriptor) for descriptor in descriptors])
    assert rows_of(read_deletion_vectors(table, str(tmp_path), 0)) == rows
    assert packed_vectors([], prefix) == ([], [])


def test_vectors_of_every_storage(tmp_path: Path) -> None:
    one, prefixed = Bin(tmp_path), Bin(tmp_path, "a%b")
    runs = list(range(70_000, 140_000))
    vectors = [
        one.add([0, 5, 65_536]),
        None,
        inline([1, 2, 3]),
        one.add(runs),
        prefixed.add([7]),
        one.add([]),
    ]
    absolute = Bin(tmp_path / "other table").add([9])
    file = next((tmp_path / "other table").iterdir())
    absolute |= {"storageType": "p", "pathOrInlineDv": file.as_uri()}
    files = files_with(*vectors, absolute)
    found = read_deletion_vectors(files, str(tmp_path), 3)
    assert rows_of(found) == [[0, 5, 65_536], None, [1, 2, 3], runs, [7], [], [9]]


def test_many_vectors_of_a_file_are_read_by_few_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = Bin(tmp_path), Bin(tmp_path)
    vectors = [near.add([number]) for number in range(500)]
    vectors += [far.add([1]), far.add([2], gap=100_000)]
    requests: list[tuple[str, int, int]] = []
    monkeypatch.setattr(
        deletion_vectors,
        "slices",
        lambda pieces, read=deletion_vectors.slices: requests.extend(pieces) or read(pieces),
    )
    found = rows_of(read_deletion_vectors(files_with(*vectors), str(tmp_path), 3))
    assert found == [[number] for number in [*range(500), 1, 2]]
    assert [path for path, _, _ in requests] == [str(near.path), str(far.path), str(far.path)]


def test_the_32_bits_that_spark_reads() -> None:
    for rows in ([], [0], list(range(100_000)), [2**32 - 1]):
        [vector] = read_deletion_vectors(files_with(inline(rows)), "/t", 1)
        assert vector is not None
        as_64 = (1).to_bytes(8, "little") + bytes(4) + vector.content_32
        assert list(BitMap64.deserialize(as_64)) == rows
    [vector] = read_deletion_vectors(files_with(inline([2**32])), "/t", 1)
    assert vector is not None
    with pytest.raises(ValueError, match="32 bits"):
        assert vector.content_32


def wrong_vectors(table: Path) -> dict[str, tuple[dict[str, Any], str]]:
    """Vectors with one thing wrong, and what the error has."""
    good, cut, flipped, sized, versioned, gone = (Bin(table) for _ in range(6))
    first = good.add([1, 2])
    cases = {
        "cardinality": (first | {"cardinality": 3}, "CARDINALITY_MISMATCH.* has 2 rows, .* has 3"),
        "size": (first | {"sizeInBytes": first["sizeInBytes"] + 1}, "SIZE_MISMATCH"),
        "offset": (first | {"offset": 2}, "SIZE_MISMATCH"),
        "no offset": (first | {"offset": None}, "SIZE_MISMATCH"),
        "behind the end": (first | {"offset": 1_000}, "SIZE_MISMATCH"),
        "negative": (first | {"offset": -1}, "VECTOR_INVALID.*offset -1"),
        "inline size": (inline([1]) | {"sizeInBytes": 10}, "SIZE_MISMATCH"),
        "inline text": (inline([1]) | {"pathOrInlineDv": "~~~~~"}, "VECTOR_INVALID.*no text in Z85"),
        "storage": (first | {"storageType": "q"}, "VECTOR_INVALID.*storage type is 'q'"),
        "row": (good.add([10]), "INVALID_ROW_INDEX.*position 10, and the file has 10 rows"),
    }
    content = b"\0\0\0\0" + bitmap([1])[4:]
    cases["magic"] = (described("i", z85(content), len(content), 1), "VECTOR_INVALID.*magic number is 0")
    content = MAGIC + b"\1\0\0\0\0\0\0\0nonsense"
    cases["bitmap"] = (described("i", z85(content), len(content), 1), "VECTOR_INVALID")
    cases["cut"] = (cut.add([1]), "SIZE_MISMATCH")
    cut.path.write_bytes(cut.content[:-3])
    cases["checksum"] = (flipped.add([1]), f"CHECKSUM_MISMATCH.*{flipped.path.name}")
    flipped.path.write_bytes(flipped.content[:-8] + b"\7" + flipped.content[-7:])
    cases["said size"] = (sized.add([1]), "SIZE_MISMATCH.*has 1 bytes")
    sized.path.write_bytes(b"\1\0\0\0\1" + sized.content[5:])
    cases["format"] = (versioned.add([1]), "VECTOR_INVALID.*begins with 02")
    versioned.path.write_bytes(b"\2" + versioned.content[1:])
    cases["missing"] = (gone.add([1]), gone.path.name)
    gone.path.unlink()
    return cases


def test_what_is_wrong_is_an_error_that_names_it(tmp_path: Path) -> None:
    for name, (vector, message) in wrong_vectors(tmp_path).items():
        files = files_with(None, inline([4]), vector, records=10)
        with pytest.raises(DeltaError, match=message) as raised:
            read_deletion_vectors(files, str(tmp_path), 7)
        error = raised.value
        assert isinstance(error, StoreError if name == "missing" else CorruptLogError), name
        assert (error.table, error.version) == (str(tmp_path), 7), name
        assert "part-2.parquet" in str(error), name
        assert str(tmp_path) in str(error), name
        assert "version 7" in str(error), name
