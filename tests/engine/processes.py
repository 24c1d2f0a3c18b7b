"""Child processes for tests: they write a table for real, and are killed or paused from outside or by their own hand."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from hedgerow.objects import Environment, FileStore, ObjectMeta, RetryPolicy, TwoPhaseStore, open_records

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["hedgerow.table.aio", "hedgerow.engine.compactor", "hedgerow.engine.collector", "processes"]
)


class DoomedStore:
    """A real store on disk whose process kills itself at the n-th point: before and after every request."""

    def __init__(self, root: str, die_at: int) -> None:
        self._store = FileStore(root)
        self._die_at = die_at
        self.points = 0

    @property
    def url(self) -> str:
        return self._store.url

    def _point(self) -> None:
        self.points += 1
        if self.points == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    async def _do(self, verb: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self._point()
        try:
            return await verb(*arguments, **options)
        finally:
            self._point()

    async def create(self, path: str, data: bytes) -> None:
        await self._do(self._store.create, path, data)

    async def put(self, path: str, data: bytes) -> None:
        await self._do(self._store.put, path, data)

    async def get(self, path: str) -> bytes:
        return await self._do(self._store.get, path)

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        return await self._do(self._store.get_range, path, start, length)

    async def list(self, prefix: str, *, after: str = "") -> Sequence[ObjectMeta]:
        return await self._do(self._store.list, prefix, after=after)

    async def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            await self._do(self._store.delete, [path])

    async def copy(self, source: str, destination: str) -> None:
        await self._do(self._store.copy, source, destination)

    async def close(self) -> None:
        return


class DoomedRecords:
    """Records in SQLite, with the same points of death before and after every call."""

    def __init__(self, store: DoomedStore, records: Any) -> None:
        self._store = store
        self._records = records

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._records, name)
        return partial(self._store._do, verb) if callable(verb) else verb


def doomed(root: str, die_at: int, kind: str) -> tuple[DoomedStore, Any]:
    """A store that kills its process, and the same as the engine is to use it."""
    store = DoomedStore(root, die_at)
    if kind != "two-phase":
        return store, store
    records = DoomedRecords(store, open_records(records_url(root)))
    return store, TwoPhaseStore(store, records, Environment(), RetryPolicy(give_up_after_s=5.0))


def records_url(root: str) -> str:
    return f"sqlite:///{root}.records.db"


def run_child(work: Callable[..., Any], *arguments: Any) -> tuple[Any, Connection]:
    """Start a child; what it tells comes through the connection."""
    ours, theirs = CONTEXT.Pipe(duplex=True)
    process = CONTEXT.Process(target=_enter, args=(work, theirs, arguments), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _enter(work: Callable[..., Any], told: Connection, arguments: tuple[Any, ...]) -> None:
    asyncio.run(work(told, *arguments))


def drain(connection: Connection) -> list[Any]:
    """Everything a child told before it ended."""
    told = []
    try:
        while True:
            told.append(connection.recv())
    except (EOFError, ConnectionResetError):
        return told
