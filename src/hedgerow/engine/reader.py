"""Reading a table: the newest manifest, plus the WAL tails of partitions that somebody may be writing.

Theory of operation
-------------------
``refresh`` makes the view current: it loads the newest manifest, then lists and reads what is new in the WALs of the
partitions in view. What was acknowledged before ``refresh`` was called is in the view when it returns.

A WAL that is read beside a compactor and a collector can change under the reader: slots vanish, and a client that slept
may even put its fence into a hole where rows used to be. So after the slots were read, the manifest is looked up once
more. Where a partition's replay point did not move, nothing that was read can have been collected, and it stands;
otherwise it is read again under the newer manifest. A slot names the last commit attached to its partition, and is not
used with an older manifest.

Files that vanish mean the same: the view is too old. A lookup then moves on to a newer one. A scan does so only before
its first row: it never goes on with another manifest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from hedgerow.engine.layout import level_path
from hedgerow.engine.manifest import Manifest, Partition, SstInfo
from hedgerow.engine.manifests import Manifests
from hedgerow.engine.view import PartitionView, View
from hedgerow.engine.wal import SlotVanished, Wal
from hedgerow.errors import Conflict, Corrupt, HedgerowError, ObjectNotFound, ReadExpired
from hedgerow.objects import with_retries
from hedgerow.sst import Block, Cache, Cursor, Run, SstTail, key_hash, merge, without_deletes

__all__ = ["MISS", "Caches", "Reader"]

_TRIES_MAX = 50
_PARTITIONS_AT_ONCE = 64
_GETS_AT_ONCE = 64
_WHOLE_FILE_BYTES = 256 * 1024
"""Files up to this size are fetched in one request instead of two."""
_AHEAD_BLOCKS = 2
_RUN_BLOCK_ROWS = 65_536
_RUN_BLOCK_BYTES = 8 << 20


class _Miss:
    """Stands for "not in memory: the store must be asked"."""


MISS: Final = _Miss()


class FileVanished(HedgerowError):
    """A file of the view is gone. Never leaves the engine."""

    def __init__(self, sst: SstInfo, name: str) -> None:
        self.sst = sst
        self.name = name
        super().__init__(f"{name} is missing.")


class Caches:
    """Decoded blocks and file tails, shared by everything in a process that reads one table."""

    def __init__(self, capacity_bytes: int = 512 << 20) -> None:
        self.blocks: Cache[Block] = Cache(capacity_bytes * 7 // 8)
        self.tails: Cache[SstTail] = Cache(capacity_bytes // 8)


class Reader:
    """A moving view of one table."""

    def __init__(self, manifests: Manifests, wal: Wal, caches: Caches) -> None:
        self._manifests = manifests
        self._wal = wal
        self._caches = caches
        self._store = manifests.store
        self._environment = manifests.environment
        self._moving = asyncio.Lock()
        self.view = View(manifests.current, {})
        self._ours: Callable[[int, Manifest], PartitionView | None] = lambda index, manifest: None

    def own(self, view_of: Callable[[int, Manifest], PartitionView | None]) -> None:
        """Let a writer supply the partitions it owns: it knows their WAL better than any listing."""
        self._ours = view_of

    # --- moving the view ------------------------------------------------------------------------------------

    async def refresh(self) -> View:
        """Make the view current: whatever was acknowledged before this call is in it afterwards."""
        async with self._moving:
            manifest = await self._manifests.refresh()
            return await self._move(manifest, list(self.view))

    async def load(self, index: int) -> PartitionView:
        """Bring a partition into view."""
        return (await self.load_all([index]))[index]

    async def load_all(self, indexes: Iterable[int]) -> View:
        """Bring several partitions into view at once, under the view's own manifest where that still holds."""
        async with self._moving:
            missing = [index for index in indexes if index not in self.view]
            if not missing:
                return self.view
            manifest = self.view.manifest
            loaded, asked = await self._load(manifest, missing, {})
            newest = await self._manifests.refresh() if asked else manifest
            if all(isinstance(view, PartitionView) and _holds(view, manifest, newest) for view in loaded):
                fresh = {view.index: view for view in loaded if isinstance(view, PartitionView)}
                self.view = View(manifest, {**self.view, **fresh})
                return self.view
            return await self._move(newest, [*self.view, *missing])

    async def _move(self, manifest: Manifest, indexes: Sequence[int]) -> View:
        known = dict(self.view)
        for _ in range(_TRIES_MAX):
            loaded, asked = await self._load(manifest, indexes, known)
            newest = await self._manifests.refresh() if asked else manifest
            stale = [view.index for view in loaded if isinstance(view, PartitionView)
                     and not _holds(view, manifest, newest)]  # fmt: skip
            vanished = [view for view in loaded if isinstance(view, SlotVanished)]
            if not stale and not vanished:
                views = [self._ours(view.index, manifest) or view for view in loaded if isinstance(view, PartitionView)]
                self.view = View(manifest, {**self.view, **{view.index: view for view in views}})
                return self.view
            if vanished and newest.number == manifest.number:
                raise Corrupt(
                    f"{vanished[0]} The manifest needs it, and nothing has replaced it: it was lost or deleted. "
                    "Restore it from a copy of the bucket."
                )
            known = {view.index: view for view in loaded if isinstance(view, PartitionView) and view.index not in stale}
            manifest = newest
        raise Conflict(f"{self._store.url}: the table changes faster than it can be read. Try again.")

    async def _load(
        self, manifest: Manifest, indexes: Sequence[int], known: dict[int, PartitionView]
    ) -> tuple[list[PartitionView | SlotVanished], bool]:
        """Every partition under this manifest; and whether the store was asked for any of it."""
        limit = asyncio.Semaphore(_PARTITIONS_AT_ONCE)
        asked = False

        async def one(index: int) -> PartitionView | SlotVanished:
            nonlocal asked
            partition = manifest.partitions[index]
            ours = self._ours(index, manifest)
            if ours is not None:
                return ours
            start = _reusable(known.get(index), index, partition)
            if partition.sealed_at is not None:
                slots = list(range(start.prefix.last + 1, partition.sealed_at + 1))
                if not slots:
                    return PartitionView(index, partition, start.prefix, start.tail)
            async with limit:
                asked = True
                try:
                    if partition.sealed_at is None:
                        last, seen = start.prefix.last, partition.wal_id_last_seen
                        slots = await self._wal.contiguous(index, last, at_least=seen)
                    prefix, counting = await self._wal.read_prefix(index, start.prefix, slots)
                except SlotVanished as error:
                    return error
            return start.extended(partition, prefix, counting)

        return list(await asyncio.gather(*(one(index) for index in indexes))), asked

    # --- single keys ----------------------------------------------------------------------------------------

    def get_cached(self, index: int, key: bytes) -> dict[str, Any] | _Miss | None:
        """A row, None where there is none, or ``MISS`` where only the store can tell. Never waits; any thread."""
        view = self.view
        if index not in view:
            return MISS
        return self._search(view[index], key)

    async def get(self, index: int, key: bytes) -> dict[str, Any] | None:
        """A row, or None."""
        for _ in range(_TRIES_MAX):
            view = self.view[index] if index in self.view else await self.load(index)
            found = self._search(view, key)
            if not isinstance(found, _Miss):
                return found
            try:
                return await self._find(view, key)
            except FileVanished as gone:
                await self._replace(index, gone)
        raise Conflict(f"{self._store.url}: files vanish faster than they can be read. Try again.")

    def get_cached_many(self, places: Sequence[tuple[int, bytes]]) -> list[dict[str, Any] | _Miss | None]:
        """Many rows of one and the same view, each as with ``get_cached``."""
        view, search = self.view, self._search
        return [search(view[index], key) if index in view else MISS for index, key in places]

    async def get_many(self, places: Sequence[tuple[int, bytes]]) -> list[dict[str, Any] | None]:
        """Many rows of one and the same view."""
        limit = asyncio.Semaphore(_GETS_AT_ONCE)
        indexes = sorted({index for index, _ in places})

        async def one(view: PartitionView, key: bytes) -> dict[str, Any] | FileVanished | None:
            found = self._search(view, key)
            if not isinstance(found, _Miss):
                return found
            async with limit:
                try:
                    return await self._find(view, key)
                except FileVanished as gone:
                    return gone

        for _ in range(_TRIES_MAX):
            view = await self.load_all(indexes)
            rows = await asyncio.gather(*(one(view[index], key) for index, key in places))
            gone = next((row for row in rows if isinstance(row, FileVanished)), None)
            if gone is None:
                return [row for row in rows if not isinstance(row, FileVanished)]
            await self._replace(None, gone)
        raise Conflict(f"{self._store.url}: files vanish faster than they can be read. Try again.")

    def _search(self, view: PartitionView, key: bytes) -> dict[str, Any] | _Miss | None:
        hashed = -1
        for source in view.sources:
            if isinstance(source, Run):
                place = source.find(key)
                if place is not None:
                    return place[0].row(place[1])
                continue
            if not source.first_key <= key < source.key_limit:
                continue
            tail = self._caches.tails.get(source.id)
            if tail is None:
                return MISS
            if hashed < 0:
                hashed = key_hash(key)
            number = tail.find_block(key, hashed)
            if number is None:
                continue
            block = self._caches.blocks.get((source.id, number))
            if block is None:
                return MISS
            at = block.find(key)
            if at >= 0:
                return block.row(at)
        return None

    async def _find(self, view: PartitionView, key: bytes) -> dict[str, Any] | None:
        hashed = key_hash(key)
        for source in view.sources:
            if isinstance(source, Run):
                place = source.find(key)
                if place is not None:
                    return place[0].row(place[1])
                continue
            if not source.first_key <= key < source.key_limit:
                continue
            tail = await self._tail(view.index, source)
            number = tail.find_block(key, hashed)
            if number is None:
                continue
            block = await self._block(view.index, source, tail, number)
            at = block.find(key)
            if at >= 0:
                return block.row(at)
        return None

    # --- ranges ---------------------------------------------------------------------------------------------

    async def scan(
        self,
        indexes: Sequence[int],
        start: bytes | None,
        end: bytes | None,
        columns: Sequence[str] | None,
        newer: Callable[[int], Sequence[Run]] = lambda index: (),
    ) -> AsyncIterator[pa.Table]:
        """Rows of [start, end) in key order, with ``_key`` and ``_op``, deletes left out.

        ``newer`` gives a partition's rows that are newer than the view: what a writer has not stored yet.
        """
        emitted = False
        for _ in range(_TRIES_MAX):
            view = await self.load_all(indexes)
            cursors = [cursor for index in indexes
                       for cursor in self._cursors(view[index], start, end, columns, newer(index))]  # fmt: skip
            try:
                async for rows in merge(cursors):
                    rows = without_deletes(rows)
                    if rows.num_rows:
                        emitted = True
                        yield rows
                return
            except FileVanished as gone:
                if emitted:
                    raise ReadExpired(
                        f"{gone.name} was collected while the scan was under way. Start again, or take a snapshot first."
                    ) from gone
                await self._replace(None, gone)
        raise Conflict(f"{self._store.url}: files vanish faster than they can be read. Try again.")

    def _cursors(
        self, view: PartitionView, start: bytes | None, end: bytes | None, columns: Sequence[str] | None,
        newer: Sequence[Run],
    ) -> list[Cursor]:  # fmt: skip
        cursors: list[Cursor] = []
        levels: dict[int, list[SstInfo]] = {}
        for source in (*newer, *view.sources):
            if isinstance(source, Run):
                cursors.append(_RunCursor(source, start, end, columns))
            elif (end is None or source.first_key < end) and (start is None or source.key_limit > start):
                if source.level == 0:
                    cursors.append(_FileCursor(self, view.index, [source], start, end, columns))
                else:
                    levels.setdefault(source.level, []).append(source)
        # Files of one level do not overlap: one cursor reads them one after another.
        cursors += [_FileCursor(self, view.index, levels[level], start, end, columns) for level in sorted(levels)]
        return cursors

    # --- files ----------------------------------------------------------------------------------------------

    async def _replace(self, index: int | None, gone: FileVanished) -> None:
        """A file of the view is gone: see whether a newer manifest does without it."""
        view = await self.refresh()
        partitions = view.manifest.partitions if index is None else (view.manifest.partitions[index],)
        if any(gone.sst.id == sst.id for partition in partitions for sst in partition.ssts):
            raise Corrupt(
                f"{gone.name} is missing, and the newest manifest needs it: it was lost or deleted. "
                "Restore it from a copy of the bucket."
            )

    def _name(self, index: int, sst: SstInfo) -> str:
        return f"{self._store.url}/{level_path(index, sst.base, sst.id)}"

    async def _fetch(self, index: int, sst: SstInfo, start: int, length: int) -> bytes:
        path = level_path(index, sst.base, sst.id)
        try:
            return await with_retries(
                lambda: self._store.get_range(path, start, length), self._environment, self._manifests.policy
            )
        except ObjectNotFound as error:
            raise FileVanished(sst, self._name(index, sst)) from error

    async def _tail(self, index: int, sst: SstInfo) -> SstTail:
        tail = self._caches.tails.get(sst.id)
        if tail is not None:
            return tail
        name = self._name(index, sst)
        small = sst.size_bytes <= _WHOLE_FILE_BYTES
        begin = 0 if small else sst.filter_offset
        data = await self._fetch(index, sst, begin, sst.size_bytes - begin)
        if len(data) != sst.size_bytes - begin:
            raise Corrupt(f"{name} is cut off: {begin + len(data)} bytes instead of {sst.size_bytes}.")
        tail = SstTail(data, sst.size_bytes, name, sst.checksum)
        self._caches.tails.put(sst.id, tail, len(data) - (sst.filter_offset if small else 0) + 4_096)
        if small:
            for number in range(tail.blocks):
                start, length = tail.block_range(number)
                block = Block(tail.decode_block(number, data[start : start + length]))
                self._caches.blocks.put((sst.id, number), block, block.size_bytes)
        return tail

    async def _block(self, index: int, sst: SstInfo, tail: SstTail, number: int) -> Block:
        block = self._caches.blocks.get((sst.id, number))
        if block is None:
            block = Block(await self._rows(index, sst, tail, number, None))
            self._caches.blocks.put((sst.id, number), block, block.size_bytes)
        return block

    async def _rows(
        self, index: int, sst: SstInfo, tail: SstTail, number: int, columns: Sequence[str] | None
    ) -> pa.Table:
        start, length = tail.block_range(number)
        data = await self._fetch(index, sst, start, length)
        return await self._environment.offload(tail.decode_block, number, data, columns)


class _RunCursor:
    """Rows in memory."""

    def __init__(self, run: Run, start: bytes | None, end: bytes | None, columns: Sequence[str] | None) -> None:
        rows = run.rows if columns is None else run.rows.select(["_key", "_op", "_seq", *columns])
        self._rows: pa.Table = _between(rows, start, end)
        average = max(1, self._rows.nbytes // max(1, self._rows.num_rows))
        self._step = max(1, min(_RUN_BLOCK_ROWS, _RUN_BLOCK_BYTES // average))

    async def next_block(self) -> pa.Table | None:
        block, self._rows = self._rows.slice(0, self._step), self._rows.slice(self._step)
        return block if block.num_rows else None


class _FileCursor:
    """Files that do not overlap, block by block, with a few requests under way ahead of the merge."""

    def __init__(
        self, reader: Reader, index: int, ssts: Sequence[SstInfo], start: bytes | None, end: bytes | None,
        columns: Sequence[str] | None,
    ) -> None:  # fmt: skip
        self._reader = reader
        self._index = index
        self._ssts = list(reversed(ssts))
        self._start, self._end, self._columns = start, end, columns
        self._blocks: list[tuple[SstInfo, SstTail, int]] = []
        self._ahead: list[asyncio.Task[pa.Table]] = []

    async def next_block(self) -> pa.Table | None:
        while True:
            await self._look_ahead()
            if not self._ahead:
                return None
            try:
                rows = _between(await self._ahead.pop(0), self._start, self._end)
            except BaseException:
                for task in self._ahead:
                    task.cancel()
                raise
            if rows.num_rows:
                return rows

    async def _look_ahead(self) -> None:
        while len(self._ahead) < _AHEAD_BLOCKS:
            if not self._blocks:
                if not self._ssts:
                    return
                sst = self._ssts.pop()
                tail = await self._reader._tail(self._index, sst)
                self._blocks = [(sst, tail, number) for number in tail.blocks_between(self._start, self._end)]
                continue
            sst, tail, number = self._blocks.pop(0)
            cached = self._reader._caches.blocks.get((sst.id, number))
            self._ahead.append(asyncio.ensure_future(self._read(sst, tail, number, cached)))

    async def _read(self, sst: SstInfo, tail: SstTail, number: int, cached: Block | None) -> pa.Table:
        if cached is not None:
            rows = cached.rows
            return rows if self._columns is None else rows.select(["_key", "_op", "_seq", *self._columns])
        return await self._reader._rows(self._index, sst, tail, number, self._columns)


def _reusable(known: PartitionView | None, index: int, partition: Partition) -> PartitionView:
    """What is known of a partition already, as far as a newer manifest lets it stand."""
    if (
        known is None
        or known.prefix.last < partition.wal_id_last_compacted
        or known.partition.wal_id_last_compacted > partition.wal_id_last_compacted
        or (partition.sealed_at is not None and known.prefix.last > partition.sealed_at)
    ):
        return PartitionView.at_replay_point(index, partition)
    return known


def _holds(view: PartitionView, used: Manifest, newest: Manifest) -> bool:
    """Prefix: whether slots that were read under one manifest still stand under the newest."""
    if view.prefix.attached > used.number:
        return False
    before, after = used.partitions[view.index], newest.partitions[view.index]
    return (before.wal_id_last_compacted, before.attached) == (after.wal_id_last_compacted, after.attached)


def _between(rows: pa.Table, start: bytes | None, end: bytes | None) -> pa.Table:
    """The part of sorted rows in [start, end)."""
    count = rows.num_rows
    if not count:
        return rows
    keys = rows.column("_key")
    low = 0 if start is None or keys[0].as_py() >= start else _first_at_least(keys, start, count)
    high = count if end is None or keys[-1].as_py() < end else _first_at_least(keys, end, count)
    return rows if (low, high) == (0, count) else rows.slice(low, max(0, high - low))


def _first_at_least(keys: pa.ChunkedArray, bound: bytes, count: int) -> int:
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if keys[middle].as_py() < bound:
            low = middle + 1
        else:
            high = middle
    return low
