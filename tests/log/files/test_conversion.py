"""Pieces that are converted by threads."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from deltaflow.log.files.conversion import converted


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_results_are_in_the_order_of_the_pieces(threads: int) -> None:
    others_begun = threading.Barrier(threads)

    def convert(piece: int) -> int:
        others_begun.wait(60)  # as many at the same time as there are threads
        return -piece

    assert list(converted(range(threads), convert, threads)) == [-piece for piece in range(threads)]


def test_an_error_is_the_callers() -> None:
    def convert(piece: int) -> float:
        return 1 / piece

    results = converted([1, 0, 1], convert, 2)
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_a_thread_that_outlives_the_main_one_converts_by_itself() -> None:
    script = """
import threading
from deltaflow.log.files.conversion import converted

def late():
    threading.main_thread().join()
    with_no_threads = converted("abc", lambda piece: (piece, threading.current_thread() is thread), 2)
    print(list(with_no_threads))

thread = threading.Thread(target=late)
thread.start()
"""
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (found.stdout, found.stderr) == ("[('a', True), ('b', True), ('c', True)]\n", "")
