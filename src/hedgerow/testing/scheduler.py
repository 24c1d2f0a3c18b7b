"""A seeded event loop with virtual time: asyncio code runs in it unmodified, and the same seed runs the same way.

Nothing ever waits for real. When no task can go on, time jumps to the next timer; a simulated day takes as long as the
work done in it. When no task can go on and no timer is set, every task waits for something that will never come: that
is a deadlock, and it is reported instead of hanging.
"""

from __future__ import annotations

import asyncio
import random
from asyncio import base_events
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hedgerow.objects import Environment

__all__ = ["Deadlock", "SimulatedEnvironment", "SimulationLoop", "simulate"]

T = TypeVar("T")
_ROUNDS_MAX = 100


class Deadlock(RuntimeError):
    """No task can go on, and no timer is set."""


class _NoSelector:
    """Stands in for the operating system: instead of waiting for events, it moves the clock."""

    def __init__(self, loop: SimulationLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock(f"Nothing can go on at {self._loop.time():.3f} s of virtual time.")
        self._loop.advance(max(timeout, 0.0))
        return []

    def close(self) -> None:
        return


class SimulationLoop(base_events.BaseEventLoop):
    """An event loop whose clock is a number.

    >>> loop = SimulationLoop()
    >>> loop.run_until_complete(asyncio.sleep(86_400))
    >>> loop.time()
    86400.0
    >>> loop.close()
    """

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._selector = _NoSelector(self)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self._now_s += seconds

    def _process_events(self, event_list: list[Any]) -> None:
        return

    def _write_to_self(self) -> None:
        return

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Run the work at once, in the same thread: a second thread would not be repeatable."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class SimulatedEnvironment(Environment):
    """Time, ids and jitter of one simulated process, all from a seed.

    >>> a, b = (SimulatedEnvironment(random.Random(7)) for _ in range(2))
    >>> a.new_id() == b.new_id()
    True
    """

    def __init__(self, rng: random.Random, *, clock_skew_ms: int = 0, started_ms: int = 1_700_000_000_000) -> None:
        self._random = rng  # type: ignore[assignment]
        self._clock_skew_ms = clock_skew_ms
        self._started_ms = started_ms

    def now_ms(self) -> int:
        """The process's own idea of the time."""
        try:
            now_s = asyncio.get_running_loop().time()
        except RuntimeError:
            now_s = 0.0
        return self._started_ms + self._clock_skew_ms + int(now_s * 1000)

    async def offload(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run the work here, after letting everybody else have a turn."""
        await asyncio.sleep(self._random.uniform(0.0, 0.002))
        return work(*arguments)


def simulate(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end in a fresh simulation; whatever else still runs then is dropped.

    >>> async def nap() -> str:
    ...     await asyncio.sleep(3600)
    ...     return "rested"
    >>> simulate(nap)
    'rested'
    """
    loop = SimulationLoop()
    try:
        return loop.run_until_complete(main())
    finally:
        _drop_everything(loop)
        loop.close()


def _drop_everything(loop: SimulationLoop) -> None:
    """Cancel what is left, quietly: simulated crashes leave tasks that wait for ever, some of them again while they
    clean up after being cancelled."""
    loop.set_exception_handler(lambda _loop, _context: None)
    for _ in range(_ROUNDS_MAX):
        tasks = asyncio.all_tasks(loop)
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
