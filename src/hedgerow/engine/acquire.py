"""Becoming the owner of partitions: a new epoch in the manifest, then fences in the WAL.

Theory of operation
-------------------
1. *Note* the first free slot of every partition. Before the epoch is raised: later, the notes could lie above rows that
   an older owner still writes.
2. *Mint*: one manifest entry raises the epochs of all partitions and pins their WAL. Where a partition moved since it
   was noted, it is noted again.
3. *Fence*: from the noted slot upward, slot by slot, until ``max_parallel_writes`` consecutive slots are our fences.
   What stands in a slot decides:

   ===================  ==============================================================
   nothing              our fence goes there; the run grows
   our own bytes        success, the answer had been lost; the run grows
   a lower epoch        an older owner was faster; the run begins again above it
   a higher epoch       we are fenced: stop
   our epoch, not ours  two owners with one epoch, which cannot be: fence ourselves, stop, say so
   ===================  ==============================================================

4. *Look again*: read the newest manifest. The epoch is no longer ours: fenced. The replay point has reached our first
   fence: it may lie in a hole that was collected while we slept, so it counts for nothing, and the walk starts again
   right above the replay point. Otherwise every slot from the replay point to our last fence is filled and final.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from hedgerow.engine import transitions
from hedgerow.engine.manifest import Manifest, Partition, Snapshot
from hedgerow.engine.manifests import Manifests
from hedgerow.engine.wal import SlotVanished, Wal
from hedgerow.errors import Conflict, Corrupt, HedgerowError, NotOwned, StaleEpoch

__all__ = ["Held", "Identity", "acquire"]

PIN_MS = 10 * 60 * 1000
_TRIES_MAX = 100
_PARTITIONS_AT_ONCE = 64


class Identity(msgspec.Struct, frozen=True):
    """Who a writer is: a number that no other incarnation has, and a name for people."""

    owner: int
    name: str
    pin: bytes


class Held(msgspec.Struct, frozen=True):
    """A partition that was acquired: its fences stand."""

    partition: int
    epoch: int
    last_fence: int
    parallel_writes_before: int
    """The number of fences that were needed: what ``max_parallel_writes`` was when the epoch was minted."""


async def acquire(
    manifests: Manifests, wal: Wal, partitions: Iterable[int], identity: Identity, max_parallel_writes: int
) -> dict[int, Held | HedgerowError]:
    """Own partitions at a new epoch each. Where that failed for one of them, its error stands in its place:
    ``Fenced`` where a still newer owner came in between."""
    wanted = sorted(set(partitions))
    minted, slots, before = await _mint(manifests, wal, wanted, identity, max_parallel_writes)
    limit = asyncio.Semaphore(_PARTITIONS_AT_ONCE)
    outcomes: dict[int, Held | HedgerowError] = {}

    async def walk(index: int) -> int | HedgerowError:
        async with limit:
            try:
                if index in again:
                    # Not from the first free slot: whoever acquired meanwhile may own what comes before it.
                    slots[index] = newest.partitions[index].wal_id_last_compacted + 1
                epoch, needed = minted.partitions[index].writer_epoch, before[index].max_parallel_writes
                return await _walk(wal, index, epoch, slots[index], needed, placed[index])
            except HedgerowError as error:
                return error

    left, again, newest = wanted, set[int](), minted
    placed: dict[int, set[int]] = {index: set() for index in wanted}
    for _ in range(_TRIES_MAX):
        walked = await asyncio.gather(*(walk(index) for index in left))
        newest = await manifests.refresh()
        for index, last in zip(left, walked, strict=True):
            outcome = _judge(newest, index, minted.partitions[index].writer_epoch, identity, last, before[index])
            if outcome is not None:
                outcomes[index] = outcome
        left = [index for index in left if index not in outcomes]
        again = set(left)
        if not left:
            return outcomes
    raise Conflict(f"Partitions {left} are compacted faster than they can be fenced. Try again.")


def _judge(
    newest: Manifest, index: int, epoch: int, identity: Identity, last: int | HedgerowError, before: Partition
) -> Held | HedgerowError | None:
    """What a walk came to, by the manifest read after it; None: its fences lie too low, and it has to be made again."""
    if isinstance(last, HedgerowError):
        return last
    partition, needed = newest.partitions[index], before.max_parallel_writes
    # Fenced: the epoch is read again after the fences, and only fences above the replay point count.
    if not transitions.owned_by(partition, epoch, identity.owner):
        return transitions.fenced(index, epoch, partition)
    if last - needed + 1 > partition.wal_id_last_compacted:
        return Held(index, epoch, last, needed)
    return None


async def _mint(
    manifests: Manifests, wal: Wal, wanted: list[int], identity: Identity, max_parallel_writes: int
) -> tuple[Manifest, dict[int, int], dict[int, Partition]]:
    manifest = await manifests.refresh()
    noted: dict[int, Partition] = {}
    slots: dict[int, int] = {}
    expire_ms = manifests.environment.now_ms() + PIN_MS
    pin = Snapshot(identity.pin, 0, expire_ms, f"writer {identity.name}")
    for _ in range(_TRIES_MAX):
        stale = [index for index in wanted if noted.get(index) != manifest.partitions[index]]
        seen = {index: manifest.partitions[index] for index in stale}
        try:
            firsts = await asyncio.gather(*(_first_free(wal, index, seen[index]) for index in stale))
            noted.update(seen)
            slots.update(zip(stale, firsts, strict=True))
            minted = await manifests.update(
                lambda current: transitions.acquire(
                    current,
                    noted,
                    slots,
                    owner=identity.owner,
                    owner_name=identity.name,
                    max_parallel_writes=max_parallel_writes,
                    pin=pin,
                )
            )
            return minted, slots, noted
        except transitions.Moved:
            manifest = manifests.current
        except SlotVanished as vanished:
            newer = await manifests.refresh()
            if newer.number == manifest.number:
                raise Corrupt(f"{vanished} The manifest needs it: it was lost or deleted.") from vanished
            manifest = newer
    raise Conflict(f"{manifests.store.url}: partitions {wanted} change hands too fast to be acquired. Try again.")


async def _first_free(wal: Wal, index: int, partition: Partition) -> int:
    after = partition.wal_id_last_compacted
    filled = await wal.contiguous(index, after, at_least=partition.wal_id_last_seen)
    return after + len(filled) + 1


async def _walk(wal: Wal, index: int, epoch: int, slot: int, needed: int, placed: set[int]) -> int:
    """Fill slots upward until ``needed`` consecutive ones are our fences; the last of them.

    ``placed`` remembers where our fences stand, for a walk that has to be made again.
    """
    run = 0
    while True:
        fence = await wal.encode(index, slot, None, epoch=epoch, fences=needed)
        standing = await wal.create(index, slot, fence.data)
        if standing is None or (standing.epoch == epoch and slot in placed):
            placed.add(slot)
            run += 1
            if run == needed:
                return slot
        elif standing.epoch > epoch:
            raise StaleEpoch(
                f"Partition {index}: epoch {epoch} was replaced by epoch {standing.epoch} before it could begin. "
                "Nothing was written. Stop, or open a new writer.",
                partition=index,
                epoch=epoch,
                current_epoch=standing.epoch,
            )
        elif standing.epoch == epoch:
            raise same_epoch(index, epoch, slot)
        else:
            run = 0
        slot += 1


def same_epoch(index: int, epoch: int, slot: int) -> NotOwned:
    """Two owners with one epoch: it cannot happen, so if it does, nobody goes on as if it had not."""
    return NotOwned(
        f"Partition {index}: slot {slot} holds another writer's object with this writer's own epoch {epoch}. This writer "
        "has fenced itself and stops. Two copies of one writer's state are at work; open a new writer.",
        partition=index,
        epoch=epoch,
        current_epoch=epoch,
    )
