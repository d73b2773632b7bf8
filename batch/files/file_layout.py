"""How the files of a write are cut: sizes, compression, folders; by options, session and table properties."""

from __future__ import annotations

import secrets
import string
from collections.abc import Mapping

from deltaflow.batch.options import boolean_option, option
from deltaflow.errors import DeltaIllegalArgumentException
from deltaflow.log.protocol.properties import (
    OPTIMIZE_WRITE,
    OPTIMIZE_WRITE_BIN_SIZE_BYTES,
    OPTIMIZE_WRITE_ENABLED,
    RANDOM_PREFIX_LENGTH,
    RANDOMIZE_FILE_PREFIXES,
    TARGET_FILE_SIZE_BYTES,
)

_OF_SPARK = ("compression", "maxrecordsperfile")
_LETTERS = string.ascii_letters + string.digits


def file_options(options: Mapping[str, str], table: str) -> dict[str, str]:
    """The options that Spark's Parquet writer heeds; without them it takes the session's settings."""
    records = option(options, "maxRecordsPerFile")
    if records is not None and not (records.isascii() and records.removeprefix("-").isdigit()):
        raise DeltaIllegalArgumentException(
            error_class="DELTA_ILLEGAL_OPTION",
            input=records,
            name="maxRecordsPerFile",
            explain="must be an integer; 0 or less sets no bound",
            table=table,
        )
    return {
        name: value
        for name, value in options.items()
        if name.lower() in _OF_SPARK or name.lower().startswith("parquet.")
    }


def optimized_write_bytes(
    options: Mapping[str, str],
    session: Mapping[str, str],
    configuration: Mapping[str, str],
    table: str,
    *,
    by_default: int | None = None,
) -> int | None:
    """How many bytes of rows a task is to write where rows are brought together first; None if they are not.

    The bytes are those of a shuffle: what the rows take in Parquet is less, most often. `by_default`: the
    bytes where neither the options nor the session nor the table ask for it; None: then they are not.
    """
    if option(options, "optimizeWrite") is not None:
        is_wanted: bool | None = boolean_option(options, "optimizeWrite")
    else:
        is_wanted = OPTIMIZE_WRITE_ENABLED.of(session, table)
        if is_wanted is None:
            is_wanted = OPTIMIZE_WRITE.of(configuration, table)
    bytes_of_task = OPTIMIZE_WRITE_BIN_SIZE_BYTES.of(session, table) if is_wanted else by_default
    of_table = TARGET_FILE_SIZE_BYTES.of(configuration, table)
    return bytes_of_task if bytes_of_task is None or of_table is None else of_table


def random_prefix(configuration: Mapping[str, str], table: str) -> str | None:
    """The folder that one write's files get inside the table; None where the table does not ask for one."""
    if not RANDOMIZE_FILE_PREFIXES.of(configuration, table):
        return None
    return "".join(secrets.choice(_LETTERS) for _ in range(RANDOM_PREFIX_LENGTH.of(configuration, table)))
