"""The writer: rows in, acknowledged when durable, refused once a newer owner stands.

Theory of operation
-------------------
Rows gather in a buffer per partition. After ``flush_interval_s``, or when there is enough, or when somebody asks, the
buffer becomes one WAL SST and goes into the partition's next slot. Up to ``max_parallel_writes`` slots are in flight.
What comes back decides:

====================  ================================================================================================
created, or ours      once every lower slot is ours as well, its rows are durable: **acknowledged in slot order**
a higher epoch        a newer owner stands. This slot's rows are lost and say so; rows in higher slots may be there or
                      not; rows still in the buffer were never sent. Nothing more is sent for this partition
our epoch, not ours   two writers with one epoch: fence ourselves, stop, say so
a lower epoch         nothing that counts, above our fences: stepped over where nothing else is in flight
no answer             unknown. Nothing above this slot can be acknowledged; the partition stops
====================  ================================================================================================

A partition is acquired when it is first needed, all that are needed at once in one step. After an error a partition
stays stopped: a new writer gets a new epoch, and with it a clear answer. Closing flushes and *seals*.

Rows may be added from any thread; everything else happens on the event loop that started the writer.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from hedgerow.engine import transitions
from hedgerow.engine.acquire import Held, Identity, acquire, same_epoch
from hedgerow.engine.authority import ManifestAuthority
from hedgerow.engine.manifest import Manifest
from hedgerow.engine.manifests import Manifests
from hedgerow.engine.memtable import ABSENT, Acknowledgement, Memtable
from hedgerow.engine.reader import MISS, Caches, Reader
from hedgerow.engine.view import PartitionView
from hedgerow.engine.wal import Prefix, SlotVanished, Wal
from hedgerow.errors import (
    BufferFull,
    Closed,
    ConditionalPutFailed,
    Corrupt,
    EpochError,
    Fenced,
    HedgerowError,
    OutcomeUnknown,
)
from hedgerow.ownership import PartitionGuard, PartitionGuardSet
from hedgerow.sst import Run, SstMeta, sst_schema

__all__ = ["Writer", "WriterSettings"]


class WriterSettings(msgspec.Struct, frozen=True):
    """How a writer gathers and sends.

    >>> WriterSettings().flush_interval_s
    0.1
    """

    flush_interval_s: float = 0.1
    """Rows wait at most this long for company."""
    flush_bytes: int = 32 << 20
    """A buffer of this size is sent at once."""
    buffer_bytes: int = 256 << 20
    """Rows that are not durable yet, of all partitions: beyond it, adding more waits."""
    timeout_s: float = 60.0
    """How long adding rows waits for room."""
    max_parallel_writes: int = 2
    """Slots of one partition in flight at once."""


_TAIL_BYTES = 64 << 20
"""How much of its own WAL a writer keeps for its reads before it looks whether some of it has been compacted."""


class _Flight:
    """A slot under way."""

    __slots__ = ("created", "memtable", "slot")

    def __init__(self, slot: int, memtable: Memtable) -> None:
        self.slot = slot
        self.memtable = memtable
        self.created = False


class _Owned:
    """One partition, as its writer sees it."""

    __slots__ = (
        "acknowledged",
        "attached",
        "failure",
        "flights",
        "guard",
        "held",
        "index",
        "late",
        "loading",
        "memtable",
        "next_slot",
        "uncertain",
        "view",
        "view_number",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.memtable = Memtable()
        self.held: Held | None = None
        self.guard: PartitionGuard | None = None
        self.attached = 0
        self.next_slot = 0
        self.acknowledged = 0
        self.flights: dict[int, _Flight] = {}
        self.failure: HedgerowError | None = None
        self.uncertain = False
        self.view_number = 0
        self.view: PartitionView | None = None
        self.loading = asyncio.Lock()
        self.late: list[tuple[int, Run]] | None = None


class Writer:
    """Writes any partitions of one table, each at an epoch of its own."""

    def __init__(
        self, manifests: Manifests, wal: Wal, caches: Caches, identity: Identity, settings: WriterSettings
    ) -> None:
        self._manifests = manifests
        self._wal = wal
        self._identity = identity
        self.settings = settings
        self._schema = sst_schema(manifests.current.layout.columns)
        self._environment = manifests.environment
        self._partitions: dict[int, _Owned] = {}
        self.guards = PartitionGuardSet(identity.owner)
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._buffered_bytes = 0
        self._closing = False
        self._ended = False
        self._ending = asyncio.Lock()
        self._thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._urgent = asyncio.Event()
        self._changed = asyncio.Event()
        self._woken = False
        self._hurry = False
        self._acquiring = asyncio.Lock()
        self._stored_since_flush = False
        self._catching_up = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.reader = Reader(manifests, wal, caches)
        self.reader.own(self._own_view)
        self._gatherer = self._loop.create_task(self._gather())

    # --- adding rows: any thread ----------------------------------------------------------------------------

    def put_row(
        self,
        index: int,
        key: bytes,
        operation: int,
        row: dict[str, Any],
        size_bytes: int,
        ack: Acknowledgement | None,
    ) -> None:
        """Add one row to a partition's buffer."""
        with self._lock:
            owned = self._open_partition(index)
            owned.memtable.put_row(key, operation, row, size_bytes)
            if ack is not None:
                owned.memtable.acknowledgements.append(ack)
            self._added(owned, size_bytes)

    def put_rows(self, index: int, rows: pa.Table, ack: Acknowledgement | None) -> None:
        """Add sorted rows with unique keys to a partition's buffer."""
        with self._lock:
            owned = self._open_partition(index)
            owned.memtable.put_rows(rows)
            if ack is not None:
                owned.memtable.acknowledgements.append(ack)
            self._added(owned, rows.nbytes)

    def _open_partition(self, index: int) -> _Owned:
        if self._closing:
            raise Closed("This writer is closed. Open another one.")
        owned = self._partitions.get(index)
        if owned is None:
            owned = self._partitions[index] = _Owned(index)
        if owned.failure is not None:
            refused = _again(owned)
            refused.maybe_stored = False  # what is added now was never sent
            raise refused
        if owned.guard is not None:
            owned.guard.check()
        return owned

    def _added(self, owned: _Owned, size_bytes: int) -> None:
        self._buffered_bytes += size_bytes
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._wake.set)
        if owned.memtable.size_bytes >= self.settings.flush_bytes and not self._hurry:
            self._hurry = True
            self._loop.call_soon_threadsafe(self._urgent.set)

    @property
    def has_room(self) -> bool:
        """Whether more rows may be added now."""
        return self._buffered_bytes < self.settings.buffer_bytes

    def wait_for_room_blocking(self) -> None:
        """From a thread of the caller's: wait until more rows may be added."""
        if self.has_room:
            return
        self._loop.call_soon_threadsafe(self._urgent.set)
        if threading.get_ident() == self._thread:
            raise self._full("A callback on the writer's own thread cannot wait for room. ")
        with self._room:
            if not self._room.wait_for(lambda: self.has_room or self._closing, self.settings.timeout_s):
                raise self._full()

    async def wait_for_room(self) -> None:
        """On the event loop: wait until more rows may be added."""
        deadline_s = self._loop.time() + self.settings.timeout_s
        while not self.has_room and not self._closing:
            self._urgent.set()
            self._changed.clear()
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._changed.wait()
            except TimeoutError:
                raise self._full() from None

    def _full(self, why: str = "") -> BufferFull:
        return BufferFull(
            f"{why}{self._buffered_bytes:,} bytes wait to be stored, and for {self.settings.timeout_s:g} s there was no room "
            f"for more (buffer_bytes={self.settings.buffer_bytes:,}). The store is slower than the rows come; this row "
            "was not taken. Try again, or raise buffer_bytes or timeout_s."
        )

    # --- durable, or not ------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Everything that was added before this call is durable when it returns; else the first error."""
        waiting: list[asyncio.Future[None]] = []
        with self._lock:
            for owned in self._partitions.values():
                for memtable in (*(flight.memtable for flight in owned.flights.values()), owned.memtable):
                    if memtable:
                        future: asyncio.Future[None] = self._loop.create_future()
                        memtable.acknowledgements.append(future)
                        waiting.append(future)
        self._urgent.set()
        self._wake.set()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        problems = [outcome for outcome in outcomes if isinstance(outcome, HedgerowError)]
        with self._lock:
            stopped = [owned for owned in self._partitions.values() if owned.failure is not None]
        problems += [_again(owned) for owned in stopped]
        if problems:
            # One error speaks for all rows since the last flush: if any of them is stored or may be, it says so.
            maybe_stored = self._stored_since_flush or any(problem.maybe_stored for problem in problems)
            problems[0].maybe_stored = maybe_stored
            raise problems[0]
        with self._lock:
            if not any(owned.memtable or owned.flights for owned in self._partitions.values()):
                self._stored_since_flush = False

    async def close(self, *, flush: bool = True) -> None:
        """Flush and seal: the partitions have no live owner until somebody acquires them.

        A close that was cancelled or failed can be repeated: it goes on where it stopped.
        """
        async with self._ending:
            if self._ended:
                return
            problem: HedgerowError | None = None
            if flush and not self._closing:
                try:
                    await self.flush()
                except HedgerowError as error:
                    problem = error
            self._drop_unsent()
            self._gatherer.cancel()
            # Not gather: cancelling this close must not cancel what is under way, or nobody would tell its rows.
            await asyncio.wait([*self._tasks, self._gatherer])
            try:
                await self._seal()
            except HedgerowError as error:
                problem = problem or error
            self._ended = True
            if problem is not None:
                raise problem

    def _drop_unsent(self) -> None:
        unsent = []
        with self._lock:
            self._closing = True
            for owned in self._partitions.values():
                unsent.append(owned.memtable)  # out of reach of a send that is about to begin
                owned.memtable = Memtable()
            self._buffered_bytes -= sum(memtable.size_bytes for memtable in unsent)
            self._room.notify_all()
        self._changed.set()
        _reject(unsent, Closed("The writer was closed before this row was sent; it is not stored."))

    async def _seal(self) -> None:
        """Where another owner has taken a partition meanwhile there is nothing left to seal."""

        def transition(manifest: Manifest) -> Manifest:
            ours = {
                owned.index: (owned.held.epoch, owned.acknowledged)
                for owned in self._partitions.values()
                if owned.held is not None
                and owned.failure is None
                and not owned.flights
                and transitions.owned_by(manifest.partitions[owned.index], owned.held.epoch, self._identity.owner)
            }
            if not ours:
                raise _NothingToSealError
            return transitions.seal(manifest, ours, self._identity.owner, self._identity.pin)

        try:
            await self._manifests.update(transition)
        except _NothingToSealError:
            return

    # --- gathering and sending: on the event loop -----------------------------------------------------------

    async def _gather(self) -> None:
        """Group commit: rows wait a little for company, and longer while slots are under way."""
        while True:
            await self._wake.wait()
            if not self._urgent.is_set():
                with contextlib.suppress(TimeoutError):
                    # Not wait_for: up to Python 3.11 it can swallow the cancellation that close() sends.
                    async with asyncio.timeout(self.settings.flush_interval_s):
                        await self._urgent.wait()
            with self._lock:
                self._wake.clear()
                self._urgent.clear()
                self._woken = self._hurry = False
                due = [owned for owned in self._partitions.values() if owned.memtable and owned.failure is None]
            unheld = [owned.index for owned in due if owned.held is None]
            if unheld:
                self._start(self._acquire_and_send(unheld))
            for owned in due:
                if owned.held is not None:
                    self._send_due(owned)

    def _start(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _acquire_and_send(self, indexes: Sequence[int]) -> None:
        async with self._acquiring:
            waiting = [owned for index in indexes if (owned := self._partitions[index]).failure is None]
            with contextlib.suppress(HedgerowError):  # every row that waited has been told
                await self._acquire([owned for owned in waiting if owned.held is None])
        for owned in waiting:
            self._send_due(owned)

    async def acquire(self, indexes: Iterable[int]) -> None:
        """Own partitions, in one step for all. An error stops those that are not held yet."""
        async with self._acquiring:
            with self._lock:
                wanted = [self._open_partition(index) for index in indexes]
            await self._acquire([owned for owned in wanted if owned.held is None])

    async def _acquire(self, wanted: Sequence[_Owned]) -> None:
        if not wanted:
            return
        k = self.settings.max_parallel_writes
        try:
            outcomes = await acquire(self._manifests, self._wal, [owned.index for owned in wanted], self._identity, k)
            held = [outcome for outcome in outcomes.values() if isinstance(outcome, Held)]
            await self._lower(held, k)
        except Exception as error:
            problem = error if isinstance(error, HedgerowError) else _unexpected(error)
            for owned in wanted:
                self._stop(owned, problem, known_lost=True)
            raise problem from error
        for one in held:
            self._own(self._partitions[one.partition], one)
        failed = {index: outcome for index, outcome in outcomes.items() if isinstance(outcome, HedgerowError)}
        for index, refusal in failed.items():
            self._stop(self._partitions[index], refusal, known_lost=True)
        if failed:
            raise next(iter(failed.values()))

    def _own(self, owned: _Owned, held: Held) -> None:
        owned.attached = self._manifests.current.partitions[owned.index].attached
        owned.next_slot = held.last_fence + 1
        owned.acknowledged = held.last_fence
        owned.guard = PartitionGuard(held.partition, held.epoch, self._identity.owner)
        self.guards.insert(owned.guard)
        owned.held = held

    async def _lower(self, held: Sequence[Held], k: int) -> None:
        """Our fences for the old number stand, so nobody is left who could have more than ``k`` in flight."""
        higher = {one.partition: one.epoch for one in held if one.parallel_writes_before > k}
        if higher:
            await self._manifests.update(
                lambda manifest: transitions.lower_parallel_writes(manifest, higher, self._identity.owner, k)
            )

    def _send_due(self, owned: _Owned) -> None:
        while (
            owned.held is not None and owned.failure is None and len(owned.flights) < self.settings.max_parallel_writes
        ):
            with self._lock:
                memtable = owned.memtable
                if not memtable:
                    return
                flight = _Flight(owned.next_slot, memtable)
                owned.flights[flight.slot] = flight
                owned.next_slot += 1
                owned.memtable = Memtable()
            self._start(self._send(owned, flight))

    async def _send(self, owned: _Owned, flight: _Flight) -> None:
        assert owned.held is not None and owned.guard is not None
        try:
            run = await self._environment.offload(flight.memtable.to_run, self._schema)
            encoded = await self._wal.encode(
                owned.index, flight.slot, run.rows, epoch=owned.held.epoch, attached=owned.attached
            )
            try:
                owned.guard.check_flush()
            except EpochError as error:
                self._stop(owned, error, at_slot=flight.slot, known_lost=True)
                return
            standing = await self._wal.create(owned.index, flight.slot, encoded.data)
        except BaseException as error:
            # Also a cancellation: rows that wait for an answer get one, whatever happens.
            problem = error if isinstance(error, HedgerowError) else _unexpected(error)
            self._stop(owned, problem, at_slot=flight.slot)
            if not isinstance(error, HedgerowError):
                raise
            return
        if standing is None:
            flight.created = True
            self._acknowledge(owned)
            self._send_due(owned)
        else:
            self._lost(owned, flight, standing, known_lost=await self._never_emptied(owned.index, flight.slot))

    async def _never_emptied(self, index: int, slot: int) -> bool:
        """Whether what stands in a slot is the first that ever did. At or below the replay point it need not be: our own
        object may have been there, compacted and collected before we looked."""
        try:
            partition = (await self._manifests.refresh()).partitions[index]
        except HedgerowError:
            return False
        fence = any(first <= slot <= last for first, last in partition.fences)  # those are never collected
        return slot > partition.wal_id_last_compacted or fence

    def _lost(self, owned: _Owned, flight: _Flight, standing: SstMeta, *, known_lost: bool) -> None:
        """Somebody else has our slot."""
        assert owned.held is not None
        epoch = owned.held.epoch
        if standing.epoch < epoch and known_lost and len(owned.flights) == 1:
            # It counts for nothing, since our fences stand below it; our rows take the next slot.
            with self._lock:
                del owned.flights[flight.slot]
                moved = _Flight(owned.next_slot, flight.memtable)
                owned.flights[moved.slot] = moved
                owned.next_slot += 1
            self._start(self._send(owned, moved))
        elif standing.epoch <= epoch:
            error: EpochError = same_epoch(owned.index, epoch, flight.slot)
            if standing.epoch < epoch:
                error = ConditionalPutFailed(
                    f"Partition {owned.index}: slot {flight.slot} holds an object of epoch {standing.epoch}, which was "
                    "replaced long ago, and later slots are under way. The row is not stored. Open a new writer.",
                    partition=owned.index,
                    epoch=epoch,
                    current_epoch=epoch,
                )
            self._stop(owned, error, at_slot=flight.slot, known_lost=known_lost)
        else:
            error = ConditionalPutFailed(
                f"Partition {owned.index}: this writer's epoch {epoch} was fenced by epoch {standing.epoch}, which holds "
                f"slot {flight.slot}. Another writer owns the partition now: stop, or open a new "
                "writer and write again what was not acknowledged.",
                partition=owned.index,
                epoch=epoch,
                current_epoch=standing.epoch,
            )
            self._stop(owned, error, at_slot=flight.slot, known_lost=known_lost)

    def _acknowledge(self, owned: _Owned) -> None:
        """Prefix: in slot order, never above a gap."""
        while owned.flights:
            slot = next(iter(owned.flights))
            flight = owned.flights[slot]
            if not flight.created:
                return
            run = flight.memtable.to_run(self._schema)
            try:
                self._remember(owned, slot, Run(run.rows, slot, slot))
            except Exception:
                owned.view, owned.late = None, None  # our own reads start again from the store; the rows are durable
            with self._lock:
                del owned.flights[slot]
                owned.acknowledged = slot
                self._stored_since_flush = True
                self._buffered_bytes -= flight.memtable.size_bytes
                self._room.notify_all()
            self._changed.set()
            for ack in flight.memtable.acknowledgements:
                _tell(ack, None)
            if self._own_view(owned.index, self._manifests.current) is not None:
                self._show(owned)

    def _stop(
        self, owned: _Owned, error: HedgerowError, *, at_slot: int | None = None, known_lost: bool = False
    ) -> None:
        """Nothing more is sent for this partition. Every row that waits is told what is known of it."""
        with self._lock:
            first = owned.failure is None
            if first:
                owned.failure = error
                if owned.guard is not None and isinstance(error, EpochError):
                    owned.guard.revoke(error)
            gone: list[Memtable] = []
            uncertain: list[Memtable] = []
            for slot in list(owned.flights):
                if at_slot is None or slot == at_slot:
                    (gone if known_lost else uncertain).append(owned.flights.pop(slot).memtable)
                elif slot > at_slot:
                    uncertain.append(owned.flights.pop(slot).memtable)
            unsent, owned.memtable = owned.memtable, Memtable()
            owned.uncertain = owned.uncertain or bool(uncertain)
            self._buffered_bytes -= sum(memtable.size_bytes for memtable in (*gone, *uncertain, unsent))
            self._room.notify_all()
        self._changed.set()
        _reject([*gone, unsent], error)
        _reject(uncertain, _uncertain(error))

    async def validate(self) -> None:
        """Ask the manifest whether every partition is still ours, without writing; else the first error."""
        manifest = await self._manifests.refresh()
        for index, problem in self.guards.validate_all(ManifestAuthority(manifest)):
            if isinstance(problem, EpochError):
                self._stop(self._partitions[index], problem)
            raise problem

    # --- reading one's own writes ---------------------------------------------------------------------------

    def get_cached(self, index: int, key: bytes) -> Any:
        """What the writer knows of a key without asking the store, or ``MISS``. Never waits; any thread."""
        owned = self._partitions.get(index)
        if self._closing:
            raise Closed("This writer is closed. Open another one.")
        if owned is None:
            return MISS
        with self._lock:
            if owned.failure is not None:
                raise _again(owned)
            memtables = [owned.memtable, *(flight.memtable for flight in reversed(owned.flights.values()))]
            for memtable in memtables:
                found = memtable.find(key)
                if found is not ABSENT:
                    return found
        if owned.view is None:
            return MISS
        return self.reader.get_cached(index, key)

    async def get(self, index: int, key: bytes) -> dict[str, Any] | None:
        """A row as this writer sees it, its own unacknowledged writes included."""
        await self.load([index])
        found = self.get_cached(index, key)
        return await self.reader.get(index, key) if found is MISS else found

    async def scan(
        self, indexes: Sequence[int], start: bytes | None, end: bytes | None, columns: Sequence[str] | None
    ) -> AsyncIterator[pa.Table]:
        """Rows of [start, end) in key order as this writer sees them."""
        await self.load(indexes)
        newer = {index: self._unstored(self._partitions[index]) for index in indexes}
        async for rows in self.reader.scan(indexes, start, end, columns, lambda index: newer[index]):
            yield rows

    def _unstored(self, owned: _Owned) -> list[Run]:
        with self._lock:
            memtables = [owned.memtable, *(flight.memtable for flight in reversed(owned.flights.values()))]
            return [Run(memtable.merged(self._schema)) for memtable in memtables if memtable]

    async def load(self, indexes: Iterable[int]) -> None:
        """Own partitions and read their WAL: exactly what lies between the replay point and our last slot."""
        indexes = list(indexes)
        await self.acquire(indexes)
        await asyncio.gather(*(self._load(self._partitions[index]) for index in indexes))

    async def _load(self, owned: _Owned) -> None:
        async with owned.loading:
            if owned.view is not None:
                return
            owned.late = []
            try:
                number, view = await self._read_own(owned, owned.acknowledged)
                late, owned.late = owned.late, None
                owned.view, owned.view_number = view, number
                for slot, run in late or ():
                    self._remember(owned, slot, run)
                self._show(owned)
            finally:
                owned.late = None

    async def _read_own(self, owned: _Owned, through: int) -> tuple[int, PartitionView]:
        """The WAL between the replay point and our last slot, exactly; and the manifest it was read under."""
        assert owned.held is not None
        while True:
            manifest = self._manifests.current
            partition = manifest.partitions[owned.index]
            if not transitions.owned_by(partition, owned.held.epoch, self._identity.owner):
                error = transitions.fenced(owned.index, owned.held.epoch, partition)
                self._stop(owned, error)
                raise error
            empty = PartitionView.at_replay_point(owned.index, partition)
            slots = range(partition.wal_id_last_compacted + 1, through + 1)
            problem: SlotVanished | None = None
            try:
                prefix, counting = await self._wal.read_prefix(owned.index, empty.prefix, slots)
            except SlotVanished as error:
                problem = error
            newest = (await self._manifests.refresh()).partitions[owned.index]
            if newest.wal_id_last_compacted != partition.wal_id_last_compacted:
                continue
            if problem is not None:
                raise Corrupt(f"{problem} Its rows were acknowledged: it was lost or deleted.") from problem
            return manifest.number, empty.extended(partition, prefix, counting)

    def _remember(self, owned: _Owned, slot: int, run: Run) -> None:
        """Rows that just became durable, for our own reads."""
        if owned.view is None:
            if owned.late is not None:
                owned.late.append((slot, run))
            return
        prefix = Prefix(slot, owned.view.prefix.fence_epoch, attached=owned.attached)
        owned.view = owned.view.grown(prefix, run)
        self._show(owned)
        held_bytes = sum(kept.rows.nbytes for kept in owned.view.tail)
        if held_bytes > _TAIL_BYTES and not self._catching_up:
            self._catching_up = True
            self._start(self._catch_up())

    async def _catch_up(self) -> None:
        """Learn of newer replay points: what has been compacted need not be kept in memory."""
        try:
            manifest = await self._manifests.refresh()
            for owned in self._partitions.values():
                if self._own_view(owned.index, manifest) is not None:
                    self._show(owned)
        except HedgerowError:
            return  # it only costs memory; the next rows try again
        finally:
            self._catching_up = False

    def _show(self, owned: _Owned) -> None:
        assert owned.view is not None
        self.reader.view = self.reader.view.with_partition(owned.view)

    def _own_view(self, index: int, manifest: Manifest) -> PartitionView | None:
        """Our own view of a partition under a newer manifest: its files, and our tail of its WAL."""
        owned = self._partitions.get(index)
        if owned is None or owned.view is None or owned.held is None:
            return None
        if manifest.number <= owned.view_number:
            return owned.view  # forward only: an older list of files lacks what our tail has been trimmed of
        partition = manifest.partitions[index]
        if not transitions.owned_by(partition, owned.held.epoch, self._identity.owner):
            self._stop(owned, transitions.fenced(index, owned.held.epoch, partition))
            return None
        owned.view_number = manifest.number
        owned.view = PartitionView(index, partition, owned.view.prefix, owned.view.tail)
        return owned.view


class _NothingToSealError(HedgerowError):
    """Every partition has another owner already."""


def _again(owned: _Owned) -> HedgerowError:
    """The error that stopped a partition, for somebody who comes later and asks about all that went before."""
    failure = owned.failure
    again: HedgerowError
    if isinstance(failure, Fenced):
        again = type(failure)(
            str(failure), partition=failure.partition, epoch=failure.epoch, current_epoch=failure.current_epoch
        )
    else:
        again = Closed(f"This writer has stopped after an error: {failure} Open a new writer.")
    again.maybe_stored = owned.uncertain
    return again


def _unexpected(error: BaseException) -> HedgerowError:
    return HedgerowError(f"{type(error).__name__}: {error}")


def _uncertain(error: HedgerowError) -> HedgerowError:
    """The error for rows that were sent and may be there."""
    if isinstance(error, Fenced):
        uncertain = type(error)(
            f"{error} This row was in flight at that moment: it may be stored or not.",
            partition=error.partition,
            epoch=error.epoch,
            current_epoch=error.current_epoch,
        )
        uncertain.maybe_stored = True
        return uncertain
    return (
        error
        if isinstance(error, OutcomeUnknown)
        else OutcomeUnknown(f"It is not known whether this row is stored: {error}")
    )


def _reject(memtables: Iterable[Memtable], error: HedgerowError) -> None:
    for memtable in memtables:
        for ack in memtable.acknowledgements:
            _tell(ack, error)
        memtable.acknowledgements.clear()


def _tell(ack: Acknowledgement, error: HedgerowError | None) -> None:
    """Complete a future that its owner may have cancelled meanwhile."""
    try:
        if error is None:
            ack.set_result(None)
        else:
            ack.set_exception(error)
    except Exception:
        if not getattr(ack, "cancelled", lambda: False)():
            raise
