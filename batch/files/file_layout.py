"""Sizes, compression and folders of a write's files, by options, session settings and table properties."""

from __future__ import annotations

import secrets
import string
from collections.abc import Mapping

from deltaflow.batch.options import boolean_option, option
from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.log.protocol.properties import (
    ENABLE_VARIANT_SHREDDING,
    OPTIMIZE_WRITE,
    OPTIMIZE_WRITE_BIN_SIZE_BYTES,
    OPTIMIZE_WRITE_ENABLED,
    RANDOM_PREFIX_LENGTH,
    RANDOMIZE_FILE_PREFIXES,
    TARGET_FILE_SIZE_BYTES,
)

_OF_SPARK = ("compression", "maxrecordsperfile")
_INFER_SHREDDING = "spark.sql.variant.inferShreddingSchema"
_LETTERS = string.ascii_letters + string.digits


def file_options(options: Mapping[str, str], path: str) -> dict[str, str]:
    """The options for Spark's Parquet writer. For what they do not set, it takes the session's settings."""
    records = option(options, "maxRecordsPerFile")
    if records is not None and not (records.isascii() and records.removeprefix("-").isdigit()):
        raise DeltaIllegalArgumentException(
            error_class="DELTA_ILLEGAL_OPTION",
            input=records,
            name="maxRecordsPerFile",
            explain="must be an integer; 0 or less sets no bound",
            table=path,
        )
    return {
        name: value
        for name, value in options.items()
        if name.lower() in _OF_SPARK or name.lower().startswith("parquet.")
    }


def shredding_options(configuration: Mapping[str, str], path: str) -> dict[str, str]:
    """The option by which Spark's Parquet writer puts parts of variants into columns of their own, or not;
    Spark 4.0 never does."""
    return {_INFER_SHREDDING: str(ENABLE_VARIANT_SHREDDING.of(configuration, path)).lower()}


def optimized_write_bytes(
    options: Mapping[str, str],
    session: Mapping[str, str],
    configuration: Mapping[str, str],
    path: str,
    *,
    by_default: int | None = None,
) -> int | None:
    """How many bytes of rows a task writes after a shuffle that brings rows together; None for no shuffle.

    The bytes are those of the shuffle; in Parquet the rows mostly take less. `by_default` is returned if
    neither the options nor the session nor the table ask for the shuffle.
    """
    if option(options, "optimizeWrite") is not None:
        is_wanted: bool | None = boolean_option(options, "optimizeWrite")
    else:
        is_wanted = OPTIMIZE_WRITE_ENABLED.of(session, path)
        if is_wanted is None:
            is_wanted = OPTIMIZE_WRITE.of(configuration, path)
    bytes_of_task = OPTIMIZE_WRITE_BIN_SIZE_BYTES.of(session, path) if is_wanted else by_default
    of_table = TARGET_FILE_SIZE_BYTES.of(configuration, path)
    return bytes_of_task if bytes_of_task is None or of_table is None else of_table


def random_prefix(configuration: Mapping[str, str], path: str) -> str | None:
    """The folder inside of the table for one write's files; None if the table does not ask for one."""
    if not RANDOMIZE_FILE_PREFIXES.of(configuration, path):
        return None
    return "".join(secrets.choice(_LETTERS) for _ in range(RANDOM_PREFIX_LENGTH.of(configuration, path)))
