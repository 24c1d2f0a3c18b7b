"""The collector: list, revoke, delete. In that order, and nothing else, is what makes it safe.

1. *List* what is there. Whatever appears later is not a candidate.
2. *Revoke*: append a manifest that drops expired snapshots and raises the floor and the staging floor. From then on no
   snapshot, commit or publish can begin to rely on what lies below, because each of them is an append itself.
3. *Delete* what was listed, and is needed neither by that manifest nor by any that it retains.

What is needed: of every retained manifest, its entry with the base and changes below it, its files, and its WAL above
the replay point. **Fences are never deleted**: an owner that slept for a year finds one in its next slot. Staged files
that no manifest names are kept while their base is at or above the staging floor: their job may still commit.

No clock is trusted with safety. A wrong one may revoke too early, and then somebody's commit, snapshot or read fails with
a clear error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import msgspec

from hedgerow.engine import transitions
from hedgerow.engine.layout import levels_folder, parse_level, parse_wal, wal_folder
from hedgerow.engine.manifest import Manifest
from hedgerow.engine.manifests import Manifests
from hedgerow.errors import Conflict, ObjectNotFound
from hedgerow.objects import ObjectMeta, with_retries

__all__ = ["Collected", "Collector"]

_DELETES_AT_ONCE = 500


class Collected(msgspec.Struct, frozen=True):
    """What a round of collection removed."""

    manifests: int = 0
    wal_ssts: int = 0
    level_ssts: int = 0
    size_bytes: int = 0


class Collector:
    """Removes what nothing needs any more."""

    def __init__(self, manifests: Manifests, *, keep_entries: int = 64, staging_entries: int = 1_000) -> None:
        """``keep_entries``: how far below the newest the floor stays; ``staging_entries``: the same for staged files."""
        self._manifests = manifests
        self._keep_entries = keep_entries
        self._staging_entries = staging_entries

    async def collect(self) -> Collected:
        """One round. ``Conflict`` where the table moves too fast; nothing was deleted then."""
        manifests = self._manifests
        newest = await manifests.refresh()
        numbers = await manifests.numbers()
        objects = [line for index in range(len(newest.partitions)) for line in await self._listed(index)]

        revoked = await manifests.update(self._revoke)
        retained, chains = await self._retained(revoked)
        needed = _Needed(revoked, retained)
        doomed = [line for line in objects if line not in needed]
        entries = [number for number in numbers if number < revoked.floor and number not in chains]
        paths = [manifests.path(number) for number in entries] + [line.path for line in doomed]
        for at in range(0, len(paths), _DELETES_AT_ONCE):
            batch = paths[at : at + _DELETES_AT_ONCE]
            await with_retries(partial(manifests.store.delete, batch), manifests.environment, manifests.policy)
        return Collected(
            manifests=len(entries),
            wal_ssts=sum(parse_wal(line.path) is not None for line in doomed),
            level_ssts=sum(parse_level(line.path) is not None for line in doomed),
            size_bytes=sum(line.size_bytes for line in doomed),
        )

    def _revoke(self, manifest: Manifest) -> Manifest:
        number = manifest.number + 1
        return transitions.revoke(
            manifest,
            floor=number - self._keep_entries,
            staging_floor=number - self._staging_entries,
            now_ms=self._manifests.environment.now_ms(),
        )

    async def _listed(self, index: int) -> Iterable[ObjectMeta]:
        manifests = self._manifests
        lines: list[ObjectMeta] = []
        for folder in (wal_folder(index), levels_folder(index)):
            lines += await with_retries(partial(manifests.store.list, folder), manifests.environment, manifests.policy)
        return lines

    async def _retained(self, revoked: Manifest) -> tuple[list[Manifest], set[int]]:
        """Every manifest that may still be read, and the entries it takes to read them: the newest, those at or above the
        floor, and those that a snapshot names."""
        wanted = {revoked.number, *range(max(revoked.floor, 1), revoked.number)}
        wanted |= {pin.manifest_id for pin in revoked.snapshots}
        retained: dict[int, Manifest] = {}
        entries: set[int] = set()
        for number in sorted(wanted, reverse=True):
            if number in retained:
                continue
            try:
                base, chain = await self._manifests.chain_at(number)
            except ObjectNotFound:
                if number >= revoked.floor:
                    raise Conflict(
                        f"Manifest {number} is being collected by somebody else. Nothing was deleted."
                    ) from None
                continue  # named by a snapshot that came too late: it protects nothing any more
            retained.update({manifest.number: manifest for manifest in chain if manifest.number in wanted})
            entries.update(range(base, number + 1))
        return list(retained.values()), entries


class _Needed:
    """Durable: whether anybody who may still read needs an object."""

    def __init__(self, revoked: Manifest, retained: Sequence[Manifest]) -> None:
        self._revoked = revoked
        count = len(revoked.partitions)
        self._replay_points = [
            min(m.partitions[index].wal_id_last_compacted for m in retained) for index in range(count)
        ]
        self._files = {sst.id for manifest in retained for partition in manifest.partitions for sst in partition.ssts}

    def __contains__(self, line: ObjectMeta) -> bool:
        slot = parse_wal(line.path)
        if slot is not None:
            index, wal_id = slot
            fence = any(first <= wal_id <= last for first, last in self._revoked.partitions[index].fences)
            return fence or wal_id > self._replay_points[index]
        file = parse_level(line.path)
        if file is None:
            return True  # nothing of ours: leave it alone
        _, base, sst_id = file
        return base >= self._revoked.staging_floor or sst_id in self._files
