"""A cache bounded in bytes, least recently used first out. Safe to use from any thread.

The entries and the sum of their sizes change together, under a lock: were they to drift apart, the cache
would outgrow its bound, or believe itself full while it is empty. Two threads may still decode one block.
"""

from __future__ import annotations

import threading
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
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> V | None:
        """The value, or None; a hit makes it the most recent."""
        with self._lock:
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
        with self._lock:
            old = self._entries.pop(key, None)
            self.size_bytes += size_bytes - (old[1] if old else 0)
            self._entries[key] = (value, size_bytes)
            while self.size_bytes > self.capacity_bytes:
                _, gone_bytes = self._entries.pop(next(iter(self._entries)))
                self.size_bytes -= gone_bytes

    def __len__(self) -> int:
        return len(self._entries)
