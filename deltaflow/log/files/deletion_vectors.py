"""Deletion vectors: which rows of a data file are deleted (PROTOCOL.md, "Deletion Vectors").

A vector is checked when it is read: its size, the checksum of a vector in a file, its format, and the
number of its rows. All errors name the table, the version and the data file.
"""

from __future__ import annotations

import base64
import uuid
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from deltaflow.errors import CorruptLogError, StoreError
from deltaflow.log.files.data_path import encoded_path, store_paths
from deltaflow.log.files.file_statistics import FileStatistics
from deltaflow.log.limits import MAX_DELETION_VECTOR_BYTES
from deltaflow.log.protocol.actions import DeletionVectorDescriptor
from deltaflow.store import slices

if TYPE_CHECKING:
    from pyroaring import BitMap64

_MAGIC = (1681511377).to_bytes(4, "little")
_FORMAT_VERSION = 1
_LENGTH_BYTES = 4
_CHECKSUM_BYTES = 4
_KEY_BYTES = 4
_BUCKETS_BYTES = 8
# Vectors of one file that are this close are read by one request, as long as it is not too large. A new file
# takes no more vectors once it is that large.
_GAP_BYTES = 64 * 1024
_REQUEST_BYTES = 16 * 1024 * 1024
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
"""The alphabet of Python's base 85."""
_TO_B85, _TO_Z85 = bytes.maketrans(_Z85, _B85), bytes.maketrans(_B85, _Z85)
_ENCODED_ID = 20


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """The positions of the deleted rows of a data file, the first row of which has position 0."""

    rows: BitMap64
    content: bytes
    """The serialised bitmap: RoaringBitmap's portable format for 64 bits."""

    @property
    def content_32(self) -> bytes:
        """The serialised bitmap in the portable format for 32 bits; all positions have to be below 2**32."""
        if self.rows and self.rows.max() >= 1 << 32:
            raise ValueError("a position that needs more than 32 bits")
        if int.from_bytes(self.content[:_BUCKETS_BYTES], "little"):
            return self.content[_BUCKETS_BYTES + _KEY_BYTES :]
        return bytes.fromhex("3a30000000000000")  # no containers


class _Stored(NamedTuple):
    """A vector in a file, and the row of the files that has it."""

    row: int
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + _LENGTH_BYTES + self.size + _CHECKSUM_BYTES


def read_deletion_vectors(files: pa.Table, path: str, version: int | None) -> list[DeletionVector | None]:
    """The deletion vector of each of the files, None for a file without one.

    `files` are rows of the `files` of a version of the table at `path`, with at least their columns path and
    deletion_vector; with stats, too, the positions are compared with the number of rows. Many vectors in one
    file are read by few requests. CorruptLogError for a vector that is not what the log says of it,
    StoreError where its file cannot be read.
    """
    reader = _Reader(files, path, version)
    found: list[DeletionVector | None] = [None] * files.num_rows
    for row, content in reader.contents():
        found[row] = reader.vector(row, content)
    return found


class _Reader:
    def __init__(self, files: pa.Table, path: str, version: int | None) -> None:
        self._path, self._version = path, version
        self._names: pa.ChunkedArray = files["path"]
        self._vectors: list[dict[str, Any] | None] = files["deletion_vector"].to_pylist()
        self._records: list[int | None] = [None] * files.num_rows
        if "stats" in files.column_names and any(self._vectors):
            self._records = FileStatistics(files, StructType()).num_records.to_pylist()

    def contents(self) -> Iterator[tuple[int, bytes]]:
        """The rows that have a vector, and its bytes, whose size is right; of a file, with their checksum."""
        stored: defaultdict[str, list[_Stored]] = defaultdict(list)
        for row, vector in enumerate(self._vectors):
            if vector is None:
                continue
            if vector["storageType"] == "i":
                yield row, self._inline(row, vector)
                continue
            offset, size = vector["offset"] or 0, vector["sizeInBytes"]
            try:
                if offset < 0 or not 0 <= size <= MAX_DELETION_VECTOR_BYTES:
                    raise ValueError(f"it has the offset {offset} and the size {size}")
                uri = vector_uri(vector["storageType"], vector["pathOrInlineDv"])
            except ValueError as error:
                raise self._error("DELTA_DELETION_VECTOR_INVALID", row, reason=str(error)) from error
            stored[uri].append(_Stored(row, offset, size))
        if stored:
            places = store_paths(self._path, pa.chunked_array([list(stored)], pa.string())).to_pylist()
            yield from self._from_files(dict(zip(places, stored.values(), strict=True)))

    def _inline(self, row: int, vector: dict[str, Any]) -> bytes:
        text, size = vector["pathOrInlineDv"], vector["sizeInBytes"]
        try:
            content = decoded_z85(text)
        except ValueError as error:
            raise self._error("DELTA_DELETION_VECTOR_INVALID", row, reason=str(error)) from error
        # The encoding fills up to a multiple of four bytes.
        if not 0 <= len(content) - size < 4:
            raise self._error("DELTA_DELETION_VECTOR_SIZE_MISMATCH", row, said=size, found=len(content))
        return content[:size]

    def _from_files(self, stored: dict[str, list[_Stored]]) -> Iterator[tuple[int, bytes]]:
        requests = [(place, run) for place, vectors in stored.items() for run in _runs(vectors)]
        begins = [0 if run[0].start <= _GAP_BYTES else run[0].start for _, run in requests]
        batch: list[int] = []
        size = 0
        for number, (_, run) in enumerate(requests):
            batch.append(number)
            size += run[-1].end - begins[number]
            if size >= _REQUEST_BYTES or number == len(requests) - 1:
                pieces = [(requests[i][0], begins[i], requests[i][1][-1].end - begins[i]) for i in batch]
                try:
                    read = slices(pieces)
                except StoreError as error:
                    row = requests[batch[0]][1][0].row
                    raise self._missing(row, pieces[0][0], error) from error
                for i, piece in zip(batch, read, strict=True):
                    yield from self._cut(requests[i][0], requests[i][1], begins[i], piece)
                batch, size = [], 0

    def _cut(
        self, place: str, run: Sequence[_Stored], begin: int, piece: bytes
    ) -> Iterator[tuple[int, bytes]]:
        for row, start, size in run:
            if begin == 0 and piece[:1] != bytes([_FORMAT_VERSION]):
                begins = piece[:1].hex() or "nothing"
                reason = f"{place} begins with {begins}, and format version {_FORMAT_VERSION} was expected"
                raise self._error("DELTA_DELETION_VECTOR_INVALID", row, reason=reason)
            at = start - begin
            said = piece[at : at + _LENGTH_BYTES]
            content = piece[at + _LENGTH_BYTES : at + _LENGTH_BYTES + size]
            checksum = piece[at + _LENGTH_BYTES + size :][:_CHECKSUM_BYTES]
            found = int.from_bytes(said, "big")
            if len(said) < _LENGTH_BYTES or found != size or len(checksum) < _CHECKSUM_BYTES:
                found = found if found != size else len(content)
                raise self._error("DELTA_DELETION_VECTOR_SIZE_MISMATCH", row, said=size, found=found)
            if zlib.crc32(content) != int.from_bytes(checksum, "big"):
                raise self._error("DELTA_DELETION_VECTOR_CHECKSUM_MISMATCH", row, place=place)
            yield row, content

    def vector(self, row: int, content: bytes) -> DeletionVector:
        from pyroaring import BitMap64  # most tables have no vectors

        if content[: len(_MAGIC)] != _MAGIC:
            magic = int.from_bytes(content[: len(_MAGIC)], "little")
            reason = f"its magic number is {magic}, and {int.from_bytes(_MAGIC, 'little')} was expected"
            raise self._error("DELTA_DELETION_VECTOR_INVALID", row, reason=reason)
        content = content[len(_MAGIC) :]
        try:
            rows = BitMap64.deserialize(content)
        except (ValueError, IndexError) as error:
            raise self._error("DELTA_DELETION_VECTOR_INVALID", row, reason=str(error)) from error
        described, records = self._vectors[row], self._records[row]
        assert described is not None
        if len(rows) != described["cardinality"]:
            said = described["cardinality"]
            raise self._error("DELTA_DELETION_VECTOR_CARDINALITY_MISMATCH", row, said=said, found=len(rows))
        if rows and records is not None and rows.max() >= records:
            position = rows.max()
            raise self._error(
                "DELTA_DELETION_VECTOR_INVALID_ROW_INDEX", row, position=position, records=records
            )
        return DeletionVector(rows, content)

    def _error(self, error_class: str, row: int, **parameters: Any) -> CorruptLogError:
        file = self._names[row].as_py()
        return CorruptLogError(
            error_class=error_class,
            data_file=file,
            table=self._path,
            version=self._version,
            file=file,
            **parameters,
        )

    def _missing(self, row: int, place: str, error: StoreError) -> StoreError:
        file = self._names[row].as_py()
        return StoreError(
            f"A deletion vector cannot be read: {error.message}. Without it nobody knows which rows of the "
            f"file {file} are deleted. Restore the file of the vector from a copy.",
            error_class=error.error_class,
            table=self._path,
            version=self._version,
            file=error.file or place,
        )


def _runs(vectors: list[_Stored]) -> Iterator[list[_Stored]]:
    """The vectors of one file in the order of their places, those together that one request reads."""
    run: list[_Stored] = []
    for vector in sorted(vectors, key=lambda vector: vector.start):
        if run and (vector.start - run[-1].end > _GAP_BYTES or vector.end - run[0].start > _REQUEST_BYTES):
            yield run
            run = []
        run.append(vector)
    yield run


def vector_uri(storage_type: str, text: str) -> str:
    """The file of a deletion vector, as the log names files: relative to the table or absolute.

    ValueError if the vector is in no file, or if the text is no id of a file (PROTOCOL.md, "Derived Fields").
    """
    if storage_type == "p":
        return text
    if storage_type != "u":
        raise ValueError(f"its storage type is {storage_type!r}, and none of 'i', 'p' and 'u'")
    prefix, encoded = text[:-_ENCODED_ID], text[-_ENCODED_ID:]
    unique = uuid.UUID(bytes=decoded_z85(encoded))
    name = f"deletion_vector_{unique}.bin"
    return encoded_path(f"{prefix}/{name}" if prefix else name)


def vector_text(unique: uuid.UUID, prefix: str | None) -> str:
    """How the log names the file of this id in the folder `prefix` of the table, or in its own directory."""
    return (prefix or "") + base64.b85encode(unique.bytes).translate(_TO_Z85).decode()


def vector_uris(vectors: pa.ChunkedArray | pa.StructArray) -> list[str]:
    """The files of deletion vectors, each once, as the log names files; CorruptLogError for a wrong name."""
    chunks = vectors.chunks if isinstance(vectors, pa.ChunkedArray) else [vectors]
    return list(dict.fromkeys(uri for chunk in chunks for uri in file_uris(chunk).drop_null().to_pylist()))


def file_uris(vectors: pa.StructArray) -> pa.StringArray:
    """As `vector_uris`, for each row; null where no vector is, or none in a file."""
    if vectors.null_count == len(vectors):
        return pa.nulls(len(vectors), pa.string())
    return pa.array([_file_uri(vector) for vector in vectors.to_pylist()], pa.string())


def _file_uri(vector: dict[str, Any] | None) -> str | None:
    if vector is None or vector["storageType"] == "i":
        return None
    text = vector["pathOrInlineDv"]
    try:
        return vector_uri(vector["storageType"], text)
    except ValueError as error:
        raise CorruptLogError(f"The log names a deletion vector by {text!r}, which is no id.") from error


class VectorFile(NamedTuple):
    """A file of deletion vectors that is to be written."""

    name: str
    """Its path in the table."""
    content: bytes


def packed_vectors(
    vectors: Sequence[BitMap64], prefix: str | None
) -> tuple[list[VectorFile], list[DeletionVectorDescriptor]]:
    """The files for new deletion vectors, many in each, and how the log names each vector.

    The files have new names in the folder `prefix` of the table, or in the table's own directory.
    """
    files: list[VectorFile] = []
    descriptors: list[DeletionVectorDescriptor] = []
    content = bytearray()
    for position, vector in enumerate(vectors):
        if not content:
            unique = uuid.uuid4()
            text = vector_text(unique, prefix)
            content.append(_FORMAT_VERSION)
        vector.run_optimize()
        data = _MAGIC + vector.serialize()
        descriptors.append(
            DeletionVectorDescriptor(
                storage_type="u",
                path_or_inline_dv=text,
                offset=len(content),
                size_in_bytes=len(data),
                cardinality=len(vector),
            )
        )
        content += len(data).to_bytes(_LENGTH_BYTES, "big") + data
        content += zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "big")
        if len(content) >= _REQUEST_BYTES or position == len(vectors) - 1:
            name = f"deletion_vector_{unique}.bin"
            files.append(VectorFile(f"{prefix}/{name}" if prefix else name, bytes(content)))
            content.clear()
    return files, descriptors


def inline_vector(rows: BitMap64) -> DeletionVectorDescriptor:
    """How the log has a deletion vector of these rows in itself, and not in a file."""
    rows.run_optimize()
    content = _MAGIC + rows.serialize()
    filled = content + bytes(-len(content) % 4)
    return DeletionVectorDescriptor(
        storage_type="i",
        path_or_inline_dv=base64.b85encode(filled).translate(_TO_Z85).decode(),
        size_in_bytes=len(content),
        cardinality=len(rows),
    )


def decoded_z85(text: str) -> bytes:
    """The bytes of a text in Z85; ValueError if it is none."""
    if len(text) % 5:
        raise ValueError(f"{text!r} is no text in Z85: its length is no multiple of 5")
    try:
        return base64.b85decode(text.encode("ascii").translate(_TO_B85))
    except ValueError as error:
        raise ValueError(f"{text!r} is no text in Z85: {error}") from error
