"""The log store on S3, and on servers that speak its protocol, by conditional puts."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from deltaflow.errors import StoreError, WriteRefusedError
from deltaflow.store.base import FileStatus
from deltaflow.store.data_directory import DataDirectory
from deltaflow.store.exclusion import ExclusionTrial
from deltaflow.store.fsspec_directory import FsspecDataDirectory
from deltaflow.store.fsspec_files import as_store_errors
from deltaflow.store.fsspec_store import FsspecLogStore

_PUT_ATTEMPTS = 5
VERSION_MARK = "?versionId="
"""s3fs leaves out what follows it in a key, also where it is a part of the name."""


class S3LogStore(FsspecLogStore):
    """Puts with `If-None-Match: *`: the server refuses all but the first of one key.

    Not every server that speaks S3 heeds the header, and an old botocore leaves it out: before its first
    put the store tries in the same directory whether a second put of a key is refused.
    """

    def __init__(self, file_system: Any, *, single_writer: bool = False) -> None:
        super().__init__(file_system, single_writer=single_writer)
        self._trial = ExclusionTrial()

    def list_from(self, directory: str, name: str) -> list[FileStatus]:
        bucket, key, _ = self._fs.split_path(directory)
        prefix = f"{key}/" if key else ""
        with as_store_errors("list", directory):
            # `StartAfter` excludes the name that it gives: begin a little before.
            found = self._objects(bucket, prefix, prefix + name[:-1])
            if not found:
                first = self._fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1)
                if not first.get("KeyCount"):
                    raise FileNotFoundError(f"nothing is in {directory}")
        # An object with the directory's own name has no name here.
        return [
            status
            for status in found
            if status.name >= name and status.name and not status.name.startswith(".")
        ]

    def put_if_absent(self, path: str, data: bytes) -> None:
        if self._single_writer:
            super().put_if_absent(path, data)
            return
        with as_store_errors("write", path):
            self.check_writable(posixpath.dirname(path))
            self._create(path, data)

    def check_writable(self, directory: str) -> None:
        if self._single_writer:
            return
        bucket, _, _ = self._fs.split_path(directory)
        with as_store_errors("write to", directory):
            self._trial.check(
                bucket,
                directory,
                put=lambda path: self._create(path, b""),
                delete=self._delete,
                needed="It does not heed the header If-None-Match: *, or the installed botocore is too old "
                "to send it. Update them, or, if this is the only writer of the table, say so: "
                "single_writer=True.",
            )

    def data_directory(self, path: str) -> DataDirectory:
        return _S3DataDirectory(self._fs, path)

    def _delete(self, path: str) -> None:
        with as_store_errors("delete", path), suppress(FileNotFoundError):
            self._fs.rm_file(path)

    def _create(self, path: str, data: bytes) -> None:
        for attempt in range(1, _PUT_ATTEMPTS + 1):
            try:
                self._fs.pipe_file(path, data, mode="create")
            except OSError as error:
                code = _error_code(error)
                if code in ("PreconditionFailed", "412"):
                    raise FileExistsError(f"{path} exists") from error
                # The server could not decide between puts at one time, and wrote none: S3 asks to retry.
                if code in ("ConditionalRequestConflict", "409") and attempt < _PUT_ATTEMPTS:
                    continue
                if isinstance(error, FileNotFoundError):
                    raise WriteRefusedError(
                        f"Cannot write {path}: {error}. Create the bucket first.", file=path
                    ) from error
                raise
            return

    def _upload(self, local: str, path: str) -> None:
        # An object appears whole.
        self._fs.put_file(local, path)

    def _check_no_file_in_the_way(self, directory: str) -> None:
        # A key may be a prefix of other keys.
        return

    def _objects(self, bucket: str, prefix: str, after: str) -> list[FileStatus]:
        """Objects directly under a prefix whose keys come after another, in the order of their keys."""
        request: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, "Delimiter": "/"}
        if after > prefix:
            request["StartAfter"] = after
        found: list[FileStatus] = []
        while True:
            page = self._fs.call_s3("list_objects_v2", **request)
            found += [
                FileStatus(
                    entry["Key"].removeprefix(prefix),
                    entry["Size"],
                    int(entry["LastModified"].timestamp() * 1000),
                    entry["ETag"],
                )
                for entry in page.get("Contents", ())
            ]
            if not page.get("IsTruncated"):
                return found
            request["ContinuationToken"] = page["NextContinuationToken"]


class _S3DataDirectory(FsspecDataDirectory):
    def delete(self, directory: str, names: Iterable[str]) -> tuple[int, list[StoreError]]:
        sound: list[str] = []
        odd: list[StoreError] = []
        for name in names:
            path = self._inside(directory, name)
            key, is_odd, _ = path.partition(VERSION_MARK)
            if is_odd:
                reason = f"s3fs takes it for a version of {key}. Use another tool"
                odd.append(StoreError(f"Cannot delete {path}: {reason}.", file=path))
            else:
                sound.append(name)
        deleted, failures = super().delete(directory, sound)
        return deleted, [*failures, *odd]


def _error_code(error: OSError) -> str | None:
    """The code that the server gave, where s3fs translated its answer."""
    response = getattr(error.__cause__, "response", None) or {}
    code = response.get("Error", {}).get("Code")
    return None if code is None else str(code)
