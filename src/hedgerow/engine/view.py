"""What a reader sees: one manifest, and for each partition it has touched, the tail of its WAL in memory.

Views are values. A reader swaps its view for a newer one in a single assignment, so a lookup in another thread works on
one view from beginning to end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hedgerow.engine.manifest import Manifest, Partition, SstInfo
from hedgerow.engine.wal import Prefix, Slot
from hedgerow.sst import Run, newest_wins

__all__ = ["PartitionView", "View"]

_TAIL_RUNS_MAX = 8
_MERGED_BYTES_MAX = 256 << 20
"""Runs are not merged beyond this: a column of Arrow's ends at 2 GiB."""


class PartitionView:
    """A partition as of one manifest and one prefix of its WAL."""

    __slots__ = ("index", "partition", "prefix", "sources", "tail")

    def __init__(self, index: int, partition: Partition, prefix: Prefix, tail: Sequence[Run]) -> None:
        self.index = index
        self.partition = partition
        self.prefix = prefix
        self.tail = tuple(run for run in tail if run.newest > partition.wal_id_last_compacted)
        self.sources = in_search_order(partition.ssts, self.tail)
        """Runs and files, newest first."""

    @classmethod
    def at_replay_point(cls, index: int, partition: Partition) -> PartitionView:
        """A partition before any of its WAL was read."""
        return cls(index, partition, Prefix.at_replay_point(partition), ())

    def extended(self, partition: Partition, prefix: Prefix, slots: Sequence[Slot]) -> PartitionView:
        """With more slots of the WAL, under a manifest that may be newer."""
        tail = (*(Run(slot.rows, slot.wal_id, slot.wal_id) for slot in reversed(slots)), *self.tail)
        return PartitionView(self.index, partition, prefix, compacted_tail(tail, partition.ssts))

    def grown(self, prefix: Prefix, run: Run) -> PartitionView:
        """With the rows of one more slot, as their own writer knows them."""
        tail = compacted_tail((run, *self.tail), self.partition.ssts)
        return PartitionView(self.index, self.partition, prefix, tail)


class View(Mapping[int, PartitionView]):
    """One manifest, and the partitions that have been loaded under it."""

    __slots__ = ("_partitions", "manifest")

    def __init__(self, manifest: Manifest, partitions: Mapping[int, PartitionView]) -> None:
        self.manifest = manifest
        self._partitions = dict(partitions)

    def __getitem__(self, index: int) -> PartitionView:
        return self._partitions[index]

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)

    def with_partition(self, view: PartitionView) -> View:
        """The same with one partition more, or newer."""
        return View(self.manifest, {**self._partitions, view.index: view})


def in_search_order(ssts: Sequence[SstInfo], tail: Sequence[Run]) -> tuple[Run | SstInfo, ...]:
    """Newest first: WAL runs and level-0 files by their place in history, then the levels from the top down."""
    recent: list[tuple[tuple[int, int], Run | SstInfo]] = [((run.newest, 0), run) for run in tail]
    recent += [(sst.position, sst) for sst in ssts if sst.level == 0]
    recent.sort(key=lambda item: item[0], reverse=True)
    deeper = sorted((sst for sst in ssts if sst.level > 0), key=lambda sst: (sst.level, sst.first_key))
    return (*(source for _, source in recent), *deeper)


def compacted_tail(tail: Sequence[Run], ssts: Sequence[SstInfo]) -> tuple[Run, ...]:
    """The same rows in few runs: neighbours of like size are merged, as long as no file stands between them.

    Every row is merged a logarithmic number of times, so a tail of thousands of slots stays quick to search.
    """
    runs = list(tail)
    if len(runs) <= _TAIL_RUNS_MAX:
        return tuple(runs)
    edges = sorted({sst.wal_id for sst in ssts})
    merged: list[Run] = []
    for run in reversed(runs):  # oldest first
        merged.append(run)
        while len(merged) > 1 and merged[-2].rows.num_rows <= 2 * merged[-1].rows.num_rows:
            older, newer = merged[-2], merged[-1]
            if any(older.newest <= edge < newer.oldest for edge in edges):
                break
            if older.rows.nbytes + newer.rows.nbytes > _MERGED_BYTES_MAX:
                break
            merged[-2:] = [Run(newest_wins([newer.rows, older.rows]), older.oldest, newer.newest)]
    return tuple(reversed(merged))
