"""What a protocol may ask of the world besides the store: time, randomness, and a place for heavy work.

Everything in Hedgerow that could differ between two runs comes through here, so that a simulator can run the very
same coroutines from a seed. Waiting needs no entry of its own: coroutines use ``asyncio.sleep``, and a simulated event
loop decides what that means.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["Environment"]

T = TypeVar("T")


class Environment:
    """The real world: the wall clock, the operating system's randomness, worker threads for heavy work.

    >>> len(Environment().new_id())
    16
    """

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def now_ms(self) -> int:
        """Milliseconds since 1970. Only ever shown, compared with expiries or used as advice; no promise rests on it."""
        return time.time_ns() // 1_000_000

    def new_id(self) -> bytes:
        """Sixteen bytes that nobody else has: an object's write id."""
        return self._random.randbytes(16)

    def uniform(self, low: float, high: float) -> float:
        """A random number, for jitter."""
        return self._random.uniform(low, high)

    async def offload(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run heavy work (compression, sorting) where it does not hold up the event loop."""
        return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)
