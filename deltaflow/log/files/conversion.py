"""Pieces of a table are converted by threads, while others are read or written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Piece = TypeVar("_Piece")
_Result = TypeVar("_Result")


def converted(
    pieces: Iterable[_Piece], convert: Callable[[_Piece], _Result], threads: int = 1
) -> Iterator[_Result]:
    """What `convert` makes of each piece, in their order.

    The pieces are made, and the results are used, in the caller's thread. Beside the ones that it has there,
    at most `threads` + 1 pieces or their results are in memory. More than one thread helps only if `convert`
    leaves most of its work to Arrow, whose functions release Python's lock. When Python's main thread has
    ended, there are no more threads, and the caller's converts.
    """
    with ThreadPoolExecutor(threads) as executor:
        converting: deque[Future[_Result]] = deque()
        for piece in pieces:
            converting.append(_begun(executor, convert, piece))
            if len(converting) > threads:
                yield converting.popleft().result()
        while converting:
            yield converting.popleft().result()


def _begun(
    executor: ThreadPoolExecutor, convert: Callable[[_Piece], _Result], piece: _Piece
) -> Future[_Result]:
    try:
        return executor.submit(convert, piece)
    except RuntimeError:  # no thread can begin
        done: Future[_Result] = Future()
    done.set_result(convert(piece))
    return done
