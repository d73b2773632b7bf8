"""How often, and after which pauses, something is tried again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds on attempts, and the range of the pauses between them."""

    max_attempts: int = 1_000
    first_pause_ms: float = 2
    longest_pause_ms: float = 500

    def pauses_ms(self) -> Iterator[float]:
        """The pause before each attempt: none before the first two, then random ones whose bound doubles, so
        that many who try do not collide again and again.
        """
        bound_ms = self.first_pause_ms
        for attempt in range(self.max_attempts):
            if attempt < 2:
                yield 0
            else:
                yield random.uniform(0, bound_ms)
                bound_ms = min(2 * bound_ms, self.longest_pause_ms)
