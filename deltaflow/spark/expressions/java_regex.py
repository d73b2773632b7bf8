"""Java's regular expressions, which are not quite Python's, evaluated where they are at home."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from deltaflow.spark.bridge.java_classes import java_classes_of_context

# Stands in no path. So many paths a call keep py4j's text of it small.
_SEPARATOR = "\0"
_PATHS_PER_CALL = 16_384


def regex_fault(pattern: str) -> str | None:
    """Why a text is no java.util.regex.Pattern; None where it is one. One crossing."""
    fault: str | None = _java().fault(pattern)
    return fault


def regex_found(pattern: str, paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether a java.util.regex.Pattern is found anywhere in each path. One crossing for 16,384 of them."""
    found: list[pa.Array] = []
    for start in range(0, len(paths), _PATHS_PER_CALL):
        texts = _SEPARATOR.join(paths.slice(start, _PATHS_PER_CALL).to_pylist())
        answer = bytes(_java().find(pattern, texts.encode()))
        found.append(pa.array(answer, pa.uint8()).cast(pa.bool_()))
    return pa.chunked_array(found, pa.bool_())


def _java() -> Any:
    return java_classes_of_context().expressions.JavaRegex
