"""The manifest's transitions: pure functions from one manifest to the next, with their preconditions.

=============  ==========================================================  ============================================
transition     precondition (else)                                         what changes
=============  ==========================================================  ============================================
acquire        authority is ours to mint for (``InvalidInput``); the        epoch + 1, owner, live; parallel writes only
               partition is as it was when its next slot was noted          ever raised; a snapshot pins the WAL
               (``Moved``: note again)
lower          we own it at this epoch (``Fenced``) and our fences stand    ``max_parallel_writes``
seal           we own it at this epoch (``Fenced``)                         ``sealed_at``, owner cleared, pin dropped
take_compactor always                                                       ``compactor_epoch`` + 1
publish_flush  our compactor epoch (``Fenced``); replay point where we      replay point, fences below it, a level-0 file
               read it; our base at or above the staging floor
revoke         floors only rise                                             floor, staging floor, expired snapshots
=============  ==========================================================  ============================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from hedgerow.engine.codec import in_order
from hedgerow.engine.manifest import Did, Manifest, Partition, Snapshot, SstInfo
from hedgerow.errors import Conflict, Fenced, HedgerowError, InvalidInput, StaleEpoch

__all__ = ["Moved", "acquire", "lower_parallel_writes", "publish_flush", "revoke", "seal", "take_compactor"]

replace = msgspec.structs.replace


class Moved(HedgerowError):
    """A partition changed since it was looked at; look again. Never leaves the engine."""

    def __init__(self, partitions: Iterable[int]) -> None:
        self.partitions = sorted(partitions)
        super().__init__(f"partitions {self.partitions} moved")


def acquire(
    manifest: Manifest,
    noted: Mapping[int, Partition],
    slots: Mapping[int, int],
    *,
    owner: int,
    owner_name: str,
    max_parallel_writes: int,
    pin: Snapshot,
    authority: str = "embedded",
) -> Manifest:
    """Take any number of partitions, each at its next epoch, in one step.

    ``slots`` are their next free WAL slots, and ``noted`` the partitions as they were when those were looked up: the
    notes must not be older than the epoch, or a fence could be aimed below what another owner has written and compacted
    meanwhile.
    """
    if manifest.authority != authority:
        raise InvalidInput(
            f"The table's epochs are minted by {manifest.authority!r}, not by {authority!r}. Open it through its cluster, "
            "or have it adopted."
        )
    moved = [index for index, seen in noted.items() if manifest.partitions[index] != seen]
    if moved:
        raise Moved(moved)
    changes = {
        index: replace(
            partition,
            writer_epoch=partition.writer_epoch + 1,
            owner=owner,
            owner_name=owner_name,
            sealed_at=None,
            wal_id_last_seen=max(partition.wal_id_last_seen, slots[index] - 1),
            max_parallel_writes=max(partition.max_parallel_writes, max_parallel_writes),
        )
        for index, partition in noted.items()
    }
    pinned = replace(pin, manifest_id=manifest.number + 1)
    return replace(
        manifest,
        partitions=_with(manifest.partitions, changes),
        snapshots=(*(s for s in manifest.snapshots if s.id != pin.id), pinned),
        did=Did("acquire", who=owner_name, partitions=len(changes)),
    )


def lower_parallel_writes(
    manifest: Manifest, held: Mapping[int, int], owner: int, max_parallel_writes: int
) -> Manifest:
    """Allow fewer writes in flight. Only for an owner whose fences for the old number stand: it knows that nobody
    is left who may have more of them in flight."""
    changes = {
        index: replace(_owned(manifest, index, epoch, owner), max_parallel_writes=max_parallel_writes)
        for index, epoch in held.items()
    }
    return replace(
        manifest,
        partitions=_with(manifest.partitions, changes),
        did=Did("parallel writes", partitions=len(changes), detail=str(max_parallel_writes)),
    )


def seal(manifest: Manifest, held: Mapping[int, tuple[int, int]], owner: int, pin: bytes) -> Manifest:
    """Give partitions up in an orderly way. ``held``: partition to (epoch, last WAL slot)."""
    changes = {}
    for index, (epoch, last_slot) in held.items():
        partition = _owned(manifest, index, epoch, owner)
        changes[index] = replace(
            partition,
            owner=0,
            owner_name="",
            sealed_at=last_slot,
            wal_id_last_seen=max(partition.wal_id_last_seen, last_slot),
        )
    grown = any(changes[index].wal_id_last_seen > manifest.partitions[index].wal_id_last_seen for index in changes)
    return replace(
        manifest,
        partitions=_with(manifest.partitions, changes),
        snapshots=tuple(s for s in manifest.snapshots if s.id != pin),
        did=Did("seal", who=_first_owner(manifest, held), partitions=len(changes)),
        # Rows came by the WAL since the last numbered state: now they are part of one.
        version=manifest.number + 1 if grown else manifest.version,
    )


def take_compactor(manifest: Manifest, who: str) -> Manifest:
    """Become the compactor: whoever was it before can publish nothing any more."""
    return replace(manifest, compactor_epoch=manifest.compactor_epoch + 1, did=Did("compactor", who=who))


class Flush(msgspec.Struct, frozen=True):
    """A stretch of one partition's WAL, merged into a file (or none, where it held no rows)."""

    partition: int
    after: int
    through: int
    fence_epoch: int
    fences: tuple[tuple[int, int], ...]
    sst: SstInfo | None


def publish_flush(manifest: Manifest, flushes: Iterable[Flush], *, compactor_epoch: int, base: int) -> Manifest:
    """Move replay points forward over WAL that now stands in files of level 0."""
    if manifest.compactor_epoch != compactor_epoch:
        raise Fenced(
            f"Compactor epoch {compactor_epoch} was replaced by {manifest.compactor_epoch}: another compactor runs. "
            "Nothing was published; let the other one go on.",
            epoch=compactor_epoch,
            current_epoch=manifest.compactor_epoch,
        )
    if base < manifest.staging_floor:
        raise Conflict(
            f"What was staged at manifest {base} lies below the staging floor {manifest.staging_floor} and may have been "
            "collected. Compact again."
        )
    changes: dict[int, Partition] = {}
    rows = 0
    for flush in flushes:
        partition = manifest.partitions[flush.partition]
        if partition.wal_id_last_compacted != flush.after:
            raise Conflict(f"Partition {flush.partition}'s replay point moved from {flush.after}. Compact again.")
        if any(sst.wal_id > flush.after and sst.wal_id < flush.through for sst in partition.ssts):
            raise Conflict(f"A commit was attached inside the WAL of partition {flush.partition}. Compact again.")
        rows += flush.sst.rows if flush.sst else 0
        changes[flush.partition] = replace(
            partition,
            wal_id_last_compacted=flush.through,
            wal_id_last_seen=max(partition.wal_id_last_seen, flush.through),
            fence_epoch=max(partition.fence_epoch, flush.fence_epoch),
            fences=merged_ranges((*partition.fences, *flush.fences)),
            ssts=in_order((*partition.ssts, flush.sst)) if flush.sst else partition.ssts,
        )
    return replace(
        manifest,
        partitions=_with(manifest.partitions, changes),
        did=Did("flush", partitions=len(changes), rows=rows),
    )


def revoke(manifest: Manifest, *, floor: int, staging_floor: int, now_ms: int) -> Manifest:
    """Before anything is deleted: expired snapshots go, and the floors rise."""
    return replace(
        manifest,
        floor=max(manifest.floor, floor),
        staging_floor=max(manifest.staging_floor, staging_floor),
        snapshots=tuple(s for s in manifest.snapshots if not s.expire_ms or s.expire_ms > now_ms),
        did=Did("collect"),
    )


def merged_ranges(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Inclusive ranges, sorted, with neighbours joined.

    >>> merged_ranges([(5, 6), (1, 2), (3, 3)])
    ((1, 3), (5, 6))
    """
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return tuple(joined)


def owned_by(partition: Partition, epoch: int, owner: int) -> bool:
    """Whether this partition is still the owner's at this epoch."""
    return partition.writer_epoch == epoch and partition.owner == owner


def _owned(manifest: Manifest, index: int, epoch: int, owner: int) -> Partition:
    partition = manifest.partitions[index]
    if not owned_by(partition, epoch, owner):
        raise fenced(index, epoch, partition)
    return partition


def fenced(index: int, epoch: int, partition: Partition) -> StaleEpoch:
    """The error of an owner that was replaced."""
    by = f" by {partition.owner_name!r}" if partition.owner_name else ""
    return StaleEpoch(
        f"Partition {index}: this writer's epoch {epoch} was replaced by epoch {partition.writer_epoch}{by}. Rows that "
        "were not acknowledged are not stored by this writer. Stop, or open a new writer and write them again.",
        partition=index,
        epoch=epoch,
        current_epoch=partition.writer_epoch,
    )


def _first_owner(manifest: Manifest, held: Mapping[int, tuple[int, int]]) -> str:
    return next((manifest.partitions[index].owner_name for index in held), "")


def _with(partitions: tuple[Partition, ...], changes: Mapping[int, Partition]) -> tuple[Partition, ...]:
    if not changes:
        return partitions
    listed = list(partitions)
    for index, partition in changes.items():
        listed[index] = partition
    return tuple(listed)
