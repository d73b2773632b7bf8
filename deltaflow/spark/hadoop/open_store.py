"""From a path to the store that a Spark session has for it."""

from __future__ import annotations

from typing import Any

from deltaflow.errors import DeltaIllegalArgumentException, StoreError
from deltaflow.spark.hadoop.java_files import JavaFiles
from deltaflow.spark.hadoop.log_store import HadoopLogStore
from deltaflow.store import (
    ExclusionTrial,
    LogStore,
    fsspec_store,
    scheme_part,
    storage_options_from_hadoop,
    use_stores_of_spark,
)

_SETTING = "spark.deltaflow.store."
_CONDITIONAL = 2
_DEFAULT_PORTS = {"hdfs": 8020, "webhdfs": 9870, "swebhdfs": 9871}
"""Of a NameNode that is named without a port (HdfsClientConfigKeys)."""
_OLDER_NAMES = ("s3", "s3n")
"""Schemes that mean the buckets of s3a."""


def connect(java: Any) -> None:
    """From now on Hadoop's file systems hold the tables of paths with a scheme. `java` is a HadoopFiles.

    Paths without a scheme are in the file system of fs.defaultFS, and relative ones of local files below the
    directory in which the JVM began, as Spark takes them. `spark.deltaflow.store.<scheme>` chooses
    `hadoop`, the default, or `fsspec` for the logs of tables there.
    """
    stores = StoresOfSpark(JavaFiles(java))
    use_stores_of_spark(stores.open, stores.default_scheme, stores.working_directory)


class StoresOfSpark:
    """The stores of one JVM."""

    def __init__(self, files: JavaFiles) -> None:
        self._files = files
        self._trial = ExclusionTrial()
        self.default_scheme, self.working_directory = files.defaults()
        """The scheme of paths without one, and the directory of relative paths of local files."""
        self._schemes: dict[str, str] = {}
        """By a path's scheme that of Hadoop's file system."""
        self._have_conditions: dict[str, bool] = {}
        """Whether S3A has conditional creates, by its root."""

    def open(self, path: str, single_writer: bool) -> tuple[LogStore, str] | None:
        """The store that keeps `path`, and the path there; None if Hadoop has no file system for it."""
        given = (scheme_part(path) or self.default_scheme).lower()
        scheme = self._scheme(given)
        if scheme is not None and scheme_part(path) is not None:
            path = scheme + path[len(given) :]
        choice, stated, *found = self._files.open(scheme or given, "" if scheme is None else path)
        if choice not in ("", "hadoop", "fsspec"):
            raise _wrong_value(scheme or given, choice, "hadoop or fsspec")
        if scheme is None:
            if choice == "hadoop":
                raise StoreError(
                    f"Cannot reach {path}: {_SETTING}{given} is hadoop, and Spark's Hadoop has no file "
                    f"system for {given}:. Add its connector to Spark's jars.",
                    error_class="DELTA_UNSUPPORTED_STORE",
                    file=path,
                )
            return None
        complete, root = found
        if stated.lower() not in ("", "true", "false"):
            raise _wrong_value(f"{scheme}.singleWriter", stated, "true or false")
        single_writer = single_writer or stated.lower() == "true"
        inner = complete[len(root) :]
        default_port = f":{_DEFAULT_PORTS.get(scheme)}/"
        root = root.removesuffix(default_port) + "/" if root.endswith(default_port) else root
        place = (root + "/".join(part for part in inner.split("/") if part)).rstrip("/")
        if choice == "fsspec":
            return fsspec_store(place, {}, single_writer=single_writer), place
        if scheme == "s3a" and not choice and not single_writer:
            older = self._s3_without_conditions(place, root)
            if older is not None:
                return older, place
        return HadoopLogStore(self._files, root, self._trial, single_writer=single_writer), place

    def _scheme(self, given: str) -> str | None:
        """The scheme by which a path's file system is known here, whichever of its names the path has."""
        if given in self._schemes:
            return self._schemes[given]
        found = self._files.file_system_class(given)
        s3a = self._files.file_system_class("s3a") if given in _OLDER_NAMES else ""
        scheme = "s3a" if s3a and found in ("", s3a) else given
        if not found and scheme == given:
            return None  # Spark may be given one later
        self._schemes[given] = scheme
        return scheme

    def _s3_without_conditions(self, path: str, root: str) -> LogStore | None:
        """The store over s3fs, with Hadoop's credentials, if Hadoop's S3A has no conditional create."""
        if root not in self._have_conditions:
            self._have_conditions[root] = self._files.abilities(root)[_CONDITIONAL] == "true"
        if self._have_conditions[root]:
            return None
        options = storage_options_from_hadoop(path, self._files.settings("fs.s3a."))
        try:
            return fsspec_store(path, options, single_writer=False)
        except StoreError as error:
            if isinstance(error.__cause__, ImportError):
                return None  # s3fs is not installed: Hadoop's store reads, and says what writing needs
            raise


def _wrong_value(name: str, value: str, expected: str) -> DeltaIllegalArgumentException:
    return DeltaIllegalArgumentException(
        f"{_SETTING}{name} is {value!r}. Give it {expected}.", error_class="DELTA_ILLEGAL_OPTION"
    )
