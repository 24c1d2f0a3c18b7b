"""A store in this process's memory: for trying things out, and the ground the simulator stands on."""

from __future__ import annotations

import bisect
import time
from collections.abc import Sequence

from hedgerow.errors import ObjectExists, ObjectNotFound
from hedgerow.objects.store import ObjectMeta

__all__ = ["MemoryStore"]


class MemoryStore:
    """Objects in a dictionary. Two stores of the same name in one process are the same store.

    >>> import asyncio
    >>> store = MemoryStore("example")
    >>> asyncio.run(store.create("a", b"1"))
    >>> asyncio.run(store.get("a"))
    b'1'
    """

    _shared: dict[str, tuple[dict[str, tuple[bytes, int]], list[str]]] = {}  # noqa: RUF012  shared on purpose

    def __init__(self, name: str | None = None) -> None:
        fresh: tuple[dict[str, tuple[bytes, int]], list[str]] = ({}, [])
        self._objects, self._paths = fresh if name is None else self._shared.setdefault(name, fresh)
        self._name = name

    @property
    def url(self) -> str:
        """Where this is."""
        return f"memory://{self._name or ''}"

    def now_ms(self) -> int:
        """The time given to new objects."""
        return time.time_ns() // 1_000_000

    async def create(self, path: str, data: bytes) -> None:
        """Store an object if there is none."""
        if path in self._objects:
            raise ObjectExists(f"{self.url}/{path} exists.")
        bisect.insort(self._paths, path)
        self._objects[path] = (bytes(data), self.now_ms())

    async def put(self, path: str, data: bytes) -> None:
        """Store an object, whatever was there."""
        if path not in self._objects:
            bisect.insort(self._paths, path)
        self._objects[path] = (bytes(data), self.now_ms())

    async def get(self, path: str) -> bytes:
        """The whole object."""
        try:
            return self._objects[path][0]
        except KeyError:
            raise ObjectNotFound(f"{self.url}/{path} does not exist.") from None

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        """Part of an object."""
        return (await self.get(path))[start : start + length]

    def paths(self) -> Sequence[str]:
        """Every object's path, in order."""
        return tuple(self._paths)

    def page(self, prefix: str, after: str, size: int | None) -> list[ObjectMeta]:
        """At most ``size`` lines of a listing, as one moment."""
        at = bisect.bisect_right(self._paths, after) if after > prefix else bisect.bisect_left(self._paths, prefix)
        lines: list[ObjectMeta] = []
        for path in self._paths[at : None if size is None else at + size]:
            if not path.startswith(prefix):
                break
            data, modified_ms = self._objects[path]
            lines.append(ObjectMeta(path, len(data), modified_ms))
        return lines

    async def list(self, prefix: str, *, after: str = "") -> Sequence[ObjectMeta]:
        """Every object under the prefix, after ``after``, in order."""
        return self.page(prefix, after, None)

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete objects."""
        for path in paths:
            if self._objects.pop(path, None) is not None:
                del self._paths[bisect.bisect_left(self._paths, path)]

    async def copy(self, source: str, destination: str) -> None:
        """Copy an object."""
        await self.put(destination, await self.get(source))

    async def close(self) -> None:
        """Nothing to release."""
