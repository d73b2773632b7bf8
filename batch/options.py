"""Options of readers and writers: keys in any case, values as Spark passes them, strings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deltaflow.errors import DeltaIllegalArgumentException, DeltaUnsupportedOperationException
from deltaflow.store import table_path

FILE_SYSTEM_PREFIXES = ("fs.", "dfs.")
"""Of the options that are settings of Hadoop's file systems."""


def required_path(path: str | None) -> str:
    """The path of a load, save or start; DELTA_PATH_REQUIRED without one."""
    if not path:
        raise DeltaIllegalArgumentException(
            "'path' is not specified. Give it to load(…), save(…) or start(…), or as option(\"path\", …)",
            error_class="DELTA_PATH_REQUIRED",
        )
    # Spark's side reads and writes local files only: other places are refused before anything is read there.
    table_path(path)
    return path


def option(options: Mapping[str, str], name: str) -> str | None:
    """The value of an option, its name in any case; None when it isn't set."""
    return next((value for key, value in options.items() if key.lower() == name.lower()), None)


def boolean_option(options: Mapping[str, str], name: str) -> bool:
    """A true/false option, false when it isn't set; DELTA_ILLEGAL_OPTION for anything else."""
    value = option(options, name)
    if value is None:
        return False
    if value.lower() not in ("true", "false"):
        raise DeltaIllegalArgumentException(
            error_class="DELTA_ILLEGAL_OPTION", input=value, name=name, explain="must be 'true' or 'false'"
        )
    return value.lower() == "true"


def unsupported_options(options: Mapping[str, str], names: Iterable[str], doing: str) -> None:
    """Refuses options that are not built yet and would change the result: passing them over would be wrong.

    An option that is set to `false` asks for nothing, and `static` (partitionOverwriteMode) for what is done.
    """
    found = [name for name in names if (option(options, name) or "false").lower() not in ("false", "static")]
    if found:
        raise DeltaUnsupportedOperationException(
            f"{doing} with option {', '.join(found)} is not supported yet. Remove it",
            error_class="DELTA_UNSUPPORTED_OPTION",
        )


def table_properties(options: Mapping[str, str]) -> dict[str, str]:
    """The options that become properties of a table which the write makes: those that begin with "delta."."""
    return {name: value for name, value in options.items() if name.lower().startswith("delta.")}
