"""The trial whether a storage lets only one of several writers create a file."""

from __future__ import annotations

import logging
import posixpath
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress

from deltaflow.errors import StoreError, WriteRefusedError

_LOG = logging.getLogger(__name__)


class ExclusionTrial:
    """Puts one name twice before the first write to a bucket or server. The second put has to be refused."""

    def __init__(self) -> None:
        self._excluding: set[str] = set()
        """Places where a second put was seen to be refused."""
        self._lock = threading.Lock()

    def check(
        self,
        place: str,
        directory: str,
        put: Callable[[str], None],
        delete: Callable[[str], None],
        needed: str,
    ) -> None:
        """WriteRefusedError if the place accepts a second put of a name, tried in this directory, or if that
        cannot be tried: what is to be written has not begun.

        `put` writes an empty file, and raises FileExistsError if it is there. `needed` says what such a
        server lacks, and what to do.
        """
        with self._lock:
            if place not in self._excluding:
                try:
                    _try(directory, put, delete, needed)
                except WriteRefusedError:
                    raise
                except StoreError as error:
                    raise WriteRefusedError(
                        error.message, error_class=error.error_class, file=error.file
                    ) from error
                self._excluding.add(place)


def _try(directory: str, put: Callable[[str], None], delete: Callable[[str], None], needed: str) -> None:
    path = posixpath.join(directory, f".put-if-absent.{uuid.uuid4().hex}.tmp")
    with suppress(FileExistsError):  # by this put itself, if its answer was lost and a client tried again
        put(path)
    try:
        put(path)
    except FileExistsError:
        return
    finally:
        try:
            delete(path)
        except StoreError as error:
            _LOG.warning("%s was left behind and may be deleted: %s", path, error)
    raise WriteRefusedError(
        f"Cannot write to {directory}: its server let a second put of one key through, so two writers "
        f"could both commit one version. {needed}",
        error_class="DELTA_STORE_WITHOUT_MUTUAL_EXCLUSION",
        file=directory,
    )
