"""Small helpers for tests of the engine: open things on a store, count requests, hold them up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from hedgerow.engine.collector import Collected, Collector
from hedgerow.engine.compactor import Compactor
from hedgerow.objects import Environment, RetryPolicy
from hedgerow.table.aio import AsyncTable
from hedgerow.table.core import TableCore, create_table, open_table

POLICY = RetryPolicy(first_pause_s=0.001, longest_pause_s=0.01, give_up_after_s=0.2)


class Watched:
    """A store that counts what it is asked, and can be told to do something first."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.asked: Counter[str] = Counter()
        self.ranges: list[tuple[str, int, int]] = []
        self.before: Callable[[str, str], Coroutine[Any, Any, None]] | None = None
        self.after: Callable[[str, str], Coroutine[Any, Any, None]] | None = None

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def two_phase(self) -> bool:
        return getattr(self._store, "two_phase", False)

    async def _ask(self, verb: str, path: str, work: Coroutine[Any, Any, Any]) -> Any:
        self.asked[verb] += 1
        if self.before is not None:
            try:
                await self.before(verb, path)
            except BaseException:
                work.close()
                raise
        result = await work
        if self.after is not None:
            await self.after(verb, path)
        return result

    async def create(self, path: str, data: bytes) -> None:
        await self._ask("create", path, self._store.create(path, data))

    async def put(self, path: str, data: bytes) -> None:
        await self._ask("put", path, self._store.put(path, data))

    async def get(self, path: str) -> bytes:
        return await self._ask("get", path, self._store.get(path))

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        self.ranges.append((path, start, length))
        return await self._ask("get_range", path, self._store.get_range(path, start, length))

    async def list(self, prefix: str, *, after: str = "") -> Any:
        return await self._ask("list", prefix, self._store.list(prefix, after=after))

    async def delete(self, paths: Any) -> None:
        await self._ask("delete", ",".join(paths), self._store.delete(paths))

    async def copy(self, source: str, destination: str) -> None:
        await self._ask("copy", destination, self._store.copy(source, destination))

    async def close(self) -> None:
        return


async def make_core(store: Any, **arguments: Any) -> TableCore:
    settings: dict[str, Any] = {
        "schema": None,
        "key": None,
        "partitions": 1,
        "options": None,
        "cache_bytes": 1 << 24,
    }
    return await create_table(store, **{**settings, **arguments}, policy=POLICY)


async def open_core(store: Any, environment: Environment | None = None, cache_bytes: int = 1 << 24) -> TableCore:
    return await open_table(store, options=None, cache_bytes=cache_bytes, environment=environment, policy=POLICY)


async def open_table_on(store: Any, **arguments: Any) -> AsyncTable:
    return AsyncTable(await open_core(store, **arguments))


class Ahead(Environment):
    """A clock years ahead: pins are long expired."""

    def now_ms(self) -> int:
        return super().now_ms() + 10**12


async def compact(store: Any) -> int:
    core = await open_core(store)
    compactor = Compactor(core.manifests, core.wal)
    await compactor.start()
    return await compactor.flush_wal()


async def collect(store: Any, keep_entries: int = 0) -> Collected:
    core = await open_core(store, Ahead())
    return await Collector(core.manifests, keep_entries=keep_entries, staging_entries=keep_entries).collect()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)
