"""A cache bounded in bytes, least recently used first out. Safe to read from any thread.

Single dictionary operations are atomic, and nothing here relies on two of them being so: at worst an entry is evicted a
little early, or two threads decode the same block.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Cache"]

V = TypeVar("V")


class Cache(Generic[V]):
    """Values with a size each, up to a total.

    >>> cache = Cache[str](capacity_bytes=2)
    >>> cache.put("a", "A", 1); cache.put("b", "B", 1)
    >>> _ = cache.get("a"); cache.put("c", "C", 1)
    >>> cache.get("b") is None, cache.get("a")
    (True, 'A')
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0
        self._entries: dict[Hashable, tuple[V, int]] = {}

    def get(self, key: Hashable) -> V | None:
        """The value, or None; a hit makes it the most recent."""
        entry = self._entries.pop(key, None)
        if entry is None:
            self.misses += 1
            return None
        self._entries[key] = entry
        self.hits += 1
        return entry[0]

    def put(self, key: Hashable, value: V, size_bytes: int) -> None:
        """Keep a value; older ones go where there is no room."""
        if size_bytes > self.capacity_bytes:
            return
        old = self._entries.pop(key, None)
        self.size_bytes += size_bytes - (old[1] if old else 0)
        self._entries[key] = (value, size_bytes)
        while self.size_bytes > self.capacity_bytes and self._entries:
            try:
                oldest = next(iter(self._entries))
            except (StopIteration, RuntimeError):
                return
            gone = self._entries.pop(oldest, None)
            if gone is not None:
                self.size_bytes -= gone[1]

    def __len__(self) -> int:
        return len(self._entries)
