"""One event loop in a thread of its own serves every synchronous table of a process.

A fork copies a process without its threads: in the child, the loop is gone and so are the connections. Using an inherited
table there would hang or, worse, speak with the parent's voice. So a fork is noticed, and every use says so.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from hedgerow.errors import Forked

__all__ = ["Background", "background"]

T = TypeVar("T")
_generation = 0


def _forked() -> None:
    global _generation, _shared, _lock
    _generation += 1
    _shared, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forked)


class Background:
    """An event loop that runs in a daemon thread."""

    def __init__(self) -> None:
        self.generation = _generation
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="hedgerow", daemon=True)
        self._thread.start()
        atexit.register(self._end)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine from a thread of the caller's."""
        if self.generation != _generation:
            work.close()
            raise forked()
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "A synchronous table was used inside one of its own callbacks. Hand the work to another thread, or use "
                "hedgerow.aio."
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except (KeyboardInterrupt, concurrent.futures.CancelledError):
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Let a coroutine run without waiting for it."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def _end(self) -> None:
        """At the end of the process: whatever still waits is dropped, without a word about tasks."""
        if not self.usable or not self._thread.is_alive():
            return

        def drop() -> None:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.call_soon(self._loop.stop)

        self._loop.call_soon_threadsafe(drop)
        self._thread.join(timeout=1.0)

    @property
    def usable(self) -> bool:
        """False in a forked child."""
        return self.generation == _generation

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


_shared: Background | None = None
_lock = threading.Lock()


def background() -> Background:
    """The process's own loop, started when it is first needed."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = Background()
        return _shared


def forked() -> Forked:
    """The error for a table that came with a fork."""
    return Forked(
        "This table was opened before the process forked, and does not work in the child. Open it again here, or start "
        "processes with 'spawn' or 'forkserver'."
    )
