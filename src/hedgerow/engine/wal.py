"""A partition's write-ahead log: numbered slots, each created once, by whoever owns the partition at that moment.

Theory of operation
-------------------
A slot holds rows or a *fence*, and carries the epoch of who put it there. An owner with ``k`` writes in flight creates
slots ``n .. n+k-1``, where every slot below ``n`` is known to be its own. A new owner, at a higher epoch, fills slots
upward from the first free one until ``k`` consecutive ones are its fences. After that no older owner can create
anything: its window begins at or below the first of these fences, so it ends at or below the last.

What a prefix of the log means follows from the prefix alone, slot by slot:

===================  ==========================================  ====================================================
slot                 condition                                   meaning
===================  ==========================================  ====================================================
fence of epoch e     extends a run of e's fences                 the run grows; at its full length, ``fence_epoch`` = e
fence of epoch e     otherwise                                   a run of length 1 begins
rows of epoch e      e >= ``fence_epoch``                        part of history
rows of epoch e      e < ``fence_epoch``                         ignored by all: it came after a completed run
(nothing)                                                        the prefix ends here, whatever lies above
===================  ==========================================  ====================================================

Nothing at or below the replay point is ever looked at: collected slots there can be filled again by a client that slept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pyarrow as pa

from hedgerow.engine.layout import parse_wal, wal_folder, wal_path
from hedgerow.engine.manifest import Partition
from hedgerow.errors import Corrupt, HedgerowError, ObjectNotFound
from hedgerow.objects import Environment, ObjectStore, RetryPolicy, create_or_read, with_retries
from hedgerow.sst import EncodedSst, SstMeta, encode_sst, read_meta, read_whole, sst_schema

__all__ = ["Prefix", "Slot", "SlotVanished", "Wal"]

_READS_AT_ONCE = 16


class SlotVanished(HedgerowError):
    """A slot that the manifest says is there is not: the manifest is out of date, or the slot is lost."""


class Slot(msgspec.Struct, frozen=True):
    """A slot that was read."""

    wal_id: int
    meta: SstMeta
    rows: pa.Table


class Prefix(msgspec.Struct, frozen=True):
    """What the log means up to and including slot ``last``.

    >>> fence = SstMeta(kind="fence", table="", partition=0, epoch=2, write_id="", fences=1)
    >>> old = SstMeta(kind="wal", table="", partition=0, epoch=1, write_id="")
    >>> prefix, _ = Prefix(last=4).follow(fence)
    >>> prefix.follow(old)[1]
    False
    """

    last: int
    fence_epoch: int = 0
    run_epoch: int = 0
    run_length: int = 0
    attached: int = 0
    """The highest ``attached`` that any slot names: a manifest below it must not be used with this prefix."""

    @classmethod
    def at_replay_point(cls, partition: Partition) -> Prefix:
        """Where reading begins."""
        return cls(partition.wal_id_last_compacted, partition.fence_epoch)

    def follow(self, meta: SstMeta) -> tuple[Prefix, bool]:
        """The prefix with one slot more, and whether that slot's rows are part of history."""
        last = self.last + 1
        if not meta.is_fence:
            valid = meta.epoch >= self.fence_epoch
            attached = max(self.attached, meta.attached) if valid else self.attached
            return Prefix(last, self.fence_epoch, attached=attached), valid
        length = self.run_length + 1 if meta.epoch == self.run_epoch else 1
        complete = length >= meta.fences
        fence_epoch = max(self.fence_epoch, meta.epoch) if complete else self.fence_epoch
        return Prefix(last, fence_epoch, meta.epoch, length, self.attached), False

    @property
    def inside_a_run(self) -> bool:
        """Whether the prefix ends in a run of fences that is not complete: no place to move a replay point to."""
        return self.run_epoch > self.fence_epoch


class Wal:
    """The write-ahead logs of a table's partitions."""

    def __init__(
        self,
        store: ObjectStore,
        environment: Environment,
        policy: RetryPolicy,
        table_id: bytes,
        columns: pa.Schema,
    ) -> None:
        self._store = store
        self._environment = environment
        self._policy = policy
        self._table = table_id.hex()
        self._columns = columns
        self._empty = sst_schema(columns).empty_table()

    async def contiguous(self, partition: int, after: int, *, at_least: int = 0) -> list[int]:
        """The slots right above ``after`` without a gap, by one listing.

        ``SlotVanished`` where they end below ``at_least``: a manifest has seen that slot, so it was there.
        """
        lines = await with_retries(
            lambda: self._store.list(wal_folder(partition), after=wal_path(partition, after)),
            self._environment,
            self._policy,
        )
        slots: list[int] = []
        for line in lines:
            parsed = parse_wal(line.path)
            if parsed is None or parsed[1] <= after:
                continue
            if parsed[1] != after + len(slots) + 1:
                break
            slots.append(parsed[1])
        missing = after + len(slots) + 1
        if missing <= at_least:
            raise SlotVanished(f"{self._store.url}/{wal_path(partition, missing)} is missing.")
        return slots

    async def read(self, partition: int, wal_id: int) -> Slot:
        """One slot, checked. ``SlotVanished`` where there is nothing."""
        path = wal_path(partition, wal_id)
        try:
            data = await with_retries(lambda: self._store.get(path), self._environment, self._policy)
        except ObjectNotFound as error:
            raise SlotVanished(f"{self._store.url}/{path} is missing.") from error
        name = f"{self._store.url}/{path}"
        meta, rows = await self._environment.offload(read_whole, data, name, None, self._columns)
        self._check_place(meta, partition, wal_id, name)
        return Slot(wal_id, meta, rows)

    async def read_prefix(self, partition: int, start: Prefix, slots: Sequence[int]) -> tuple[Prefix, list[Slot]]:
        """Read slots that follow ``start`` without a gap: what they mean, and those whose rows count."""
        limit = asyncio.Semaphore(_READS_AT_ONCE)

        async def read(wal_id: int) -> Slot:
            async with limit:
                return await self.read(partition, wal_id)

        prefix, counting = start, []
        for slot in await asyncio.gather(*(read(wal_id) for wal_id in slots)):
            prefix, valid = prefix.follow(slot.meta)
            if valid and slot.rows.num_rows:
                counting.append(slot)
        return prefix, counting

    async def encode(
        self,
        partition: int,
        wal_id: int,
        rows: pa.Table | None,
        *,
        epoch: int,
        attached: int = 0,
        fences: int = 0,
    ) -> EncodedSst:
        """The bytes for a slot: rows, or a fence. Fixed from here on, with a write id that nobody else has."""
        meta = SstMeta(
            kind="fence" if rows is None else "wal",
            table=self._table,
            partition=partition,
            epoch=epoch,
            write_id=self._environment.new_id().hex(),
            wal_id=wal_id,
            attached=attached,
            fences=fences,
        )
        if rows is None:
            return encode_sst(self._empty, meta)
        return await self._environment.offload(encode_sst, rows, meta)

    async def create(self, partition: int, wal_id: int, data: bytes) -> SstMeta | None:
        """Put bytes into a slot. None: they stand there. Else the meta of what somebody else put there first."""
        path = wal_path(partition, wal_id)
        other = await create_or_read(self._store, path, data, self._environment, self._policy)
        if other is None:
            return None
        name = f"{self._store.url}/{path}"
        meta = read_meta(other, name)
        self._check_place(meta, partition, wal_id, name)
        return meta

    def _check_place(self, meta: SstMeta, partition: int, wal_id: int, name: str) -> None:
        """Intact: an object that is valid in itself, but stands where another belongs, is refused."""
        if (meta.table, meta.partition, meta.wal_id) != (
            self._table,
            partition,
            wal_id,
        ) or meta.kind == "level":
            raise Corrupt(
                f"{name} holds slot {meta.wal_id} of partition {meta.partition} of table {meta.table}: "
                "one object was put in another's place."
            )
