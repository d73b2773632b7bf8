"""From a path to the store that a Spark session has for it."""

from __future__ import annotations

from typing import Any

from deltaflow.errors import DeltaIllegalArgumentException, StoreError
from deltaflow.spark.hadoop.java_files import JavaFiles
from deltaflow.spark.hadoop.log_store import HadoopLogStore
from deltaflow.store import (
    ExclusionTrial,
    LogStore,
    storage_options_from_hadoop,
    store_for,
    use_stores_of_spark,
)

_SETTING = "spark.deltaflow.store."
_CONDITIONAL = 2


def connect(java: Any) -> None:
    """From now on Hadoop's file systems hold the logs of paths with a scheme. `java` is a HadoopFiles.

    The setting `spark.deltaflow.store.<scheme>` chooses `hadoop`, the default where Hadoop has a file system
    of the scheme, or `fsspec`.
    """
    stores = StoresOfSpark(JavaFiles(java))
    use_stores_of_spark(stores.open)


class StoresOfSpark:
    """The stores of one JVM."""

    def __init__(self, files: JavaFiles) -> None:
        self._files = files
        self._trial = ExclusionTrial()
        self._have_conditions: dict[str, bool] = {}
        """Whether S3A has conditional creates, by its root."""

    def open(self, path: str, single_writer: bool) -> tuple[LogStore, str] | None:
        """The store that keeps `path`, and the path there; None if Spark leaves it to fsspec."""
        scheme, _, rest = path.partition(":")
        scheme = scheme.lower()
        complete, *found = self._files.open(scheme, f"{scheme}:{rest}")
        choice = found[0] if len(found) == 1 else found[1]
        if choice not in ("", "hadoop", "fsspec"):
            raise _wrong_value(scheme, choice, "hadoop or fsspec")
        if not complete:
            if choice == "hadoop":
                raise StoreError(
                    f"Cannot reach {path}: {_SETTING}{scheme} is hadoop, and Spark's Hadoop has no file "
                    f"system for {scheme}:. Add its connector to Spark's jars.",
                    error_class="DELTA_UNSUPPORTED_STORE",
                    file=path,
                )
            return None
        root, _, stated = found
        if stated.lower() not in ("", "true", "false"):
            raise _wrong_value(f"{scheme}.singleWriter", stated, "true or false")
        single_writer = single_writer or stated.lower() == "true"
        if scheme == "s3a" and not choice and not single_writer:
            older = self._s3_without_conditions(path, root)
            if older is not None:
                return older
        inner = complete[len(root) :]
        place = root + "/".join(part for part in inner.split("/") if part)
        return HadoopLogStore(self._files, root, self._trial, single_writer=single_writer), place.rstrip("/")

    def _s3_without_conditions(self, path: str, root: str) -> tuple[LogStore, str] | None:
        """The store over s3fs, with Hadoop's credentials, if Hadoop's S3A has no conditional create."""
        if root not in self._have_conditions:
            self._have_conditions[root] = self._files.abilities(root)[_CONDITIONAL] == "true"
        if self._have_conditions[root]:
            return None
        options = storage_options_from_hadoop(path, self._files.settings("fs.s3a."))
        try:
            # store_for asks fsspec if there are options. This one is the default of s3fs.
            return store_for(path, {"anon": False, **options})
        except StoreError as error:
            if isinstance(error.__cause__, ImportError):
                return None  # s3fs is not installed: Hadoop's store reads, and says what writing needs
            raise


def _wrong_value(name: str, value: str, expected: str) -> DeltaIllegalArgumentException:
    return DeltaIllegalArgumentException(
        f"{_SETTING}{name} is {value!r}. Give it {expected}.", error_class="DELTA_ILLEGAL_OPTION"
    )
