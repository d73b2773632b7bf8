"""Lets a client of Spark Connect raise the errors of deltaflow that a server has raised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.errors.exceptions import connect

from deltaflow.errors import error_of_server

_JAVA_CLASS = "io.deltaflow.spark.bridge.DeltaFlowException"


def install() -> None:
    """Tells PySpark's client which exception a class of the server's JVM becomes. Idempotent.

    The client looks the class up in this module global; there is no public hook.
    """
    connect.EXCEPTION_CLASS_MAPPING[_JAVA_CLASS] = _exception  # type: ignore[assignment]


def _exception(
    message: str,
    errorClass: str | None = None,
    messageParameters: Mapping[str, str] | None = None,
    **more: Any,
) -> Exception:
    """The error of deltaflow; of any other kind, what the client would raise without us."""
    name = (messageParameters or {}).get("errorName")
    if name is not None and errorClass is not None:
        error = error_of_server(name, errorClass, message)
        if error is not None:
            return error
    return connect.UnknownException(
        message, errorClass=errorClass, messageParameters=dict(messageParameters or {}), **more
    )
