"""The compactor: moves rows from the WAL into sorted runs, beside writers and readers, fenced by an epoch of its own.

It reads a stretch of a partition's WAL, stages one file of level 0 with the newest row of every key, and publishes both
the file and the new replay point in one manifest entry. Publishing checks that nothing it built on has moved, so a
compactor that slept can only fail. The stretch never ends inside a run of fences that is not complete: what the log
means above a replay point must not depend on slots below it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from hedgerow.engine import transitions
from hedgerow.engine.layout import level_path
from hedgerow.engine.manifest import Manifest, SstInfo, key_limit
from hedgerow.engine.manifests import Manifests
from hedgerow.engine.transitions import Flush
from hedgerow.engine.wal import Prefix, Slot, SlotVanished, Wal
from hedgerow.errors import Conflict, Corrupt
from hedgerow.objects import with_retries
from hedgerow.sst import EncodedSst, SstMeta, encode_sst, newest_wins

__all__ = ["Compactor"]

_PARTITIONS_AT_ONCE = 4
_SLOTS_AT_ONCE = 16
_STRETCH_BYTES = 256 << 20
"""A stretch of the WAL ends here, so that merging it fits into memory and into one column of Arrow's."""


class Compactor:
    """One incarnation of a table's compactor."""

    def __init__(self, manifests: Manifests, wal: Wal, name: str = "compactor") -> None:
        self._manifests = manifests
        self._wal = wal
        self._name = name
        self._epoch = 0

    async def start(self) -> int:
        """Take over from whoever compacted before; the new epoch."""
        taken = await self._manifests.update(lambda manifest: transitions.take_compactor(manifest, self._name))
        self._epoch = taken.compactor_epoch
        return self._epoch

    async def flush_wal(self, partitions: Iterable[int] | None = None) -> int:
        """Move the WAL of partitions (None: of all) into level 0; how many partitions moved.

        ``Fenced`` where another compactor took over. A partition that moved meanwhile is left for the next round.
        """
        manifest = await self._manifests.refresh()
        indexes = range(len(manifest.partitions)) if partitions is None else partitions
        limit = asyncio.Semaphore(_PARTITIONS_AT_ONCE)

        async def one(index: int) -> Flush | None:
            async with limit:
                return await self._flush(manifest, index)

        flushes = [flush for flush in await asyncio.gather(*(one(index) for index in indexes)) if flush]
        if not flushes:
            return 0
        try:
            await self._manifests.update(
                lambda current: transitions.publish_flush(
                    current, flushes, compactor_epoch=self._epoch, base=manifest.number
                )
            )
        except Conflict:
            return 0
        return len(flushes)

    async def _flush(self, manifest: Manifest, index: int) -> Flush | None:
        partition = manifest.partitions[index]
        after = partition.wal_id_last_compacted
        try:
            if partition.sealed_at is None:
                slots = await self._wal.contiguous(index, after, at_least=partition.wal_id_last_seen)
            else:
                slots = list(range(after + 1, partition.sealed_at + 1))
            read = await self._read(index, slots)
        except SlotVanished as vanished:
            if (await self._manifests.refresh()).partitions[index] == partition:
                raise Corrupt(f"{vanished} The manifest needs it: it was lost or deleted.") from vanished
            return None  # compacted and collected by somebody else meanwhile
        prefix = Prefix.at_replay_point(partition)
        rows, counted, fences, stop = [], [], [], prefix
        fence_slots: list[tuple[int, int]] = []
        for slot in read:
            prefix, valid = prefix.follow(slot.meta)
            if prefix.attached > manifest.number:
                return None  # written after a commit that this manifest does not know
            if not valid:
                # Fences, and rows that count for nothing: were one of those collected, its slot would be free again.
                fence_slots.append((slot.wal_id, slot.wal_id))
            if valid and slot.rows.num_rows:
                rows.append((slot.wal_id, slot.meta.epoch, slot.rows))
            if not prefix.inside_a_run:
                stop, counted, fences = prefix, list(rows), list(fence_slots)
        if stop.last == after:
            return None
        sst = None
        if counted:
            tables = [table for _, _, table in reversed(counted)]
            merged = await self._manifests.environment.offload(newest_wins, tables)
            sst = await self._stage(manifest, index, stop.last, max(epoch for _, epoch, _ in counted), merged)
        return Flush(index, after, stop.last, stop.fence_epoch, transitions.merged_ranges(fences), sst)

    async def _read(self, index: int, slots: Sequence[int]) -> list[Slot]:
        """As many slots as make one file."""
        read: list[Slot] = []
        size_bytes = 0
        for at in range(0, len(slots), _SLOTS_AT_ONCE):
            some = await asyncio.gather(*(self._wal.read(index, slot) for slot in slots[at : at + _SLOTS_AT_ONCE]))
            for slot in some:
                read.append(slot)
                size_bytes += slot.rows.nbytes
                if size_bytes >= _STRETCH_BYTES:
                    return read
        return read

    async def _stage(self, manifest: Manifest, index: int, wal_id: int, epoch: int, rows: object) -> SstInfo:
        environment = self._manifests.environment
        sst_id = environment.now_ms().to_bytes(6, "big") + environment.new_id()[6:]
        meta = SstMeta(
            kind="level",
            table=manifest.table_id.hex(),
            partition=index,
            epoch=epoch,
            write_id=sst_id.hex(),
            wal_id=wal_id,
        )
        encoded: EncodedSst = await environment.offload(encode_sst, rows, meta)
        path = level_path(index, manifest.number, sst_id)
        await with_retries(lambda: self._manifests.store.put(path, encoded.data), environment, self._manifests.policy)
        return sst_info(encoded, sst_id, base=manifest.number, level=0, wal_id=wal_id, epoch=epoch)


def sst_info(
    encoded: EncodedSst, sst_id: bytes, *, base: int, level: int, wal_id: int, epoch: int, manifest: int = 0
) -> SstInfo:
    """What the manifest keeps of a file."""
    return SstInfo(
        id=sst_id,
        base=base,
        level=level,
        first_key=encoded.first_key,
        key_limit=key_limit(encoded.last_key),
        filter_offset=encoded.filter_offset,
        filter_len=encoded.filter_len,
        block_meta_offset=encoded.block_meta_offset,
        block_meta_len=encoded.block_meta_len,
        rows=encoded.rows,
        wal_id=wal_id,
        manifest=manifest,
        epoch=epoch,
        checksum=encoded.checksum,
    )
