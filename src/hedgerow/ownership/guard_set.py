"""All the guards of one node: the check of a batch, and one read of the authority for all of them.

Theory of operation. A dictionary holds the guards. Beside it stands an array with one byte per partition id,
the word of its guard or ``ABSENT``, so that a batch is checked by one lookup for all its rows. A guard tells
the set whenever its state changes, whoever changed it, and the set copies the word *as it is by then* under
its own lock. Words only move forward, so notices may arrive in any order, twice, or while the array grows,
and no copy ever falls behind a revocation that has returned to its caller. Ids too large for an array are
looked up one by one, each once per batch.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hedgerow.errors import EpochError, InvalidInput, MetadataBehind
from hedgerow.ownership import ids, refusals
from hedgerow.ownership.authority import Authority, Ownership
from hedgerow.ownership.guard import PartitionGuard
from hedgerow.ownership.ids import NodeId, PartitionId

__all__ = ["DENSE_PARTITIONS_MAX", "PartitionGuardSet"]

DENSE_PARTITIONS_MAX = 65_536
"""Partitions with an id below this are checked at full speed by ``check_many``."""

_ABSENT = 255
_WORDS_MIN = 64


class PartitionGuardSet:
    """The guards that one node holds, by partition.

    >>> guards = PartitionGuardSet(node=4)
    >>> guards.insert(PartitionGuard(3, epoch=7, node=4))
    >>> guards.check(3)
    >>> guards.check_many(np.array([3, 3, 5]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    hedgerow.errors.NotOwned: node 4 holds no guard for partition 5...
    """

    __slots__ = ("_guards", "_lock", "_node", "_words")

    def __init__(self, node: int) -> None:
        self._node = ids.node_id(node)
        self._guards: dict[int, PartitionGuard] = {}
        self._words = np.full(_WORDS_MIN, _ABSENT, np.uint8)
        self._lock = threading.RLock()

    @property
    def node(self) -> NodeId:
        """The node that holds the guards."""
        return self._node

    def insert(self, guard: PartitionGuard) -> None:
        """Add a guard; the one of an earlier epoch gives way and is revoked.

        ``InvalidInput`` if one of the same or a later epoch is there already, or the guard is another node's.

        >>> guards = PartitionGuardSet(node=4)
        >>> old = PartitionGuard(3, epoch=7, node=4)
        >>> guards.insert(old)
        >>> guards.insert(PartitionGuard(3, epoch=8, node=4))
        >>> old.state.name
        'REVOKED'
        """
        if guard.node != self._node:
            raise InvalidInput(
                f"the guard of partition {guard.partition} is of node {guard.node}, and this set of node "
                f"{self._node}: acquire the partition for this node"
            )
        partition = guard.partition
        with self._lock:
            present = self._guards.get(partition)
            if present is not None and guard.epoch <= present.epoch:
                raise InvalidInput(
                    f"partition {partition} is guarded at epoch {present.epoch} already, so a guard of epoch "
                    f"{guard.epoch} cannot take its place: acquire the partition again for a later epoch"
                )
            self._guards[partition] = guard
            if partition < DENSE_PARTITIONS_MAX:
                self._grow(partition + 1)
                # Watch before reading the word: a revocation is then either read here or told.
                guard.watch(self._copy_word)
                self._words[partition] = guard._word
        if present is not None:
            self._forget(present)
            present.revoke(refusals.replaced(present, guard))

    def remove(self, partition: int) -> PartitionGuard | None:
        """Take a guard out, as it is; ``None`` if there was none. From now on ``check`` raises ``NotOwned``.

        >>> guards = PartitionGuardSet(node=4)
        >>> guards.insert(PartitionGuard(3, epoch=7, node=4))
        >>> guards.remove(3), guards.remove(3)
        (PartitionGuard(3, epoch=7, node=4, state=valid), None)
        """
        with self._lock:
            guard = self._guards.pop(partition, None)
            if guard is not None and guard.partition < DENSE_PARTITIONS_MAX:
                self._words[guard.partition] = _ABSENT
        if guard is not None:
            self._forget(guard)
        return guard

    def check(self, partition: int) -> None:
        """Return if a new write to the partition may be accepted; raise its guard's error, or ``NotOwned``.

        >>> PartitionGuardSet(node=4).check(3)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        hedgerow.errors.NotOwned: node 4 holds no guard for partition 3...
        """
        # The word is read in place: calling the guard's own check would cost as much again.
        try:
            if not self._guards[partition]._word:
                return
        except KeyError:
            pass
        refusal = self._refusal(partition)
        if refusal is not None:
            raise refusal

    def check_many(self, partitions: npt.NDArray[np.integer[Any]]) -> None:
        """Check the partition of every row; raise the error of the first row that is refused.

        >>> guards = PartitionGuardSet(node=4)
        >>> guards.insert(PartitionGuard(3, epoch=7, node=4))
        >>> guards.check_many(np.array([3, 3, 3]))
        """
        rows = np.asarray(partitions).reshape(-1)
        if rows.size == 0:
            return
        if rows.dtype.kind not in "iu":
            raise InvalidInput(f"partitions must be an array of whole numbers, not of {rows.dtype}")
        words = self._words
        # Fenced: a negative id would count from the end of the array and pass as another partition's.
        in_words = rows.min() >= 0 and rows.max() < words.size
        if in_words and not words.take(rows.astype(np.intp, copy=False)).any():
            return
        self._check_each(rows)

    def validate_all(
        self, authority: Authority, *, asked_at_s: float | None = None
    ) -> list[tuple[PartitionId, EpochError | MetadataBehind]]:
        """Validate every guard by one read of the authority; return those not confirmed, each with its error.

        The list is sorted by partition. ``MetadataBehind`` in it means: read again. Anything else is final.

        >>> from hedgerow.ownership.authority import StaticAuthority
        >>> guards = PartitionGuardSet(node=4)
        >>> guards.insert(PartitionGuard(3, epoch=7, node=4))
        >>> problems = guards.validate_all(StaticAuthority({}))
        >>> [(partition, type(error).__name__) for partition, error in problems]
        [(3, 'UnknownPartition')]
        """
        return [
            (guard.partition, problem)
            for guard, ownership in self._ask(authority)
            if (problem := guard.observe(ownership, asked_at_s=asked_at_s)) is not None
        ]

    def refresh_all(self, authority: Authority, *, asked_at_s: float | None = None) -> list[PartitionId]:
        """Refresh every guard by one read of the authority; return the partitions not confirmed, sorted.

        Those whose guard is ``REVOKED`` are lost. The others are waiting for an authority that lags.

        >>> from hedgerow.ownership.authority import StaticAuthority
        >>> guards = PartitionGuardSet(node=4)
        >>> guards.insert(PartitionGuard(3, epoch=7, node=4))
        >>> guards.refresh_all(StaticAuthority({}))
        [3]
        """
        return [partition for partition, _ in self.validate_all(authority, asked_at_s=asked_at_s)]

    def expire_if_due(self, now_s: float | None = None) -> list[PartitionId]:
        """Revoke every guard whose deadline has passed; return the partitions that this call revoked, sorted.

        >>> guards = PartitionGuardSet(node=4)
        >>> guards.insert(PartitionGuard(3, epoch=7, node=4, clock=lambda: 100.0, valid_for_s=5))
        >>> guards.expire_if_due(105.0), guards.expire_if_due(105.0)
        ([3], [])
        """
        return [guard.partition for guard in self._sorted() if guard.expire_if_due(now_s)]

    def get(self, partition: int) -> PartitionGuard | None:
        """The partition's guard, or ``None``."""
        return self._guards.get(partition)

    def partition_ids(self) -> list[PartitionId]:
        """The guarded partitions, sorted, whatever the state of their guards.

        >>> PartitionGuardSet(node=4).partition_ids()
        []
        """
        return [guard.partition for guard in self._sorted()]

    def __contains__(self, partition: object) -> bool:
        return partition in self._guards

    def __len__(self) -> int:
        return len(self._guards)

    def __repr__(self) -> str:
        return f"PartitionGuardSet(node={self._node}, partitions={len(self)})"

    def _sorted(self) -> list[PartitionGuard]:
        with self._lock:
            guards = list(self._guards.values())
        return sorted(guards, key=lambda guard: guard.partition)

    def _ask(self, authority: Authority) -> list[tuple[PartitionGuard, Ownership | None]]:
        guards = self._sorted()
        answers: Sequence[Ownership | None] = authority.ownerships([guard.partition for guard in guards])
        # Fenced: a short answer would leave the last guards as they are, or give one the ownership of
        # another.
        if len(answers) != len(guards):
            raise InvalidInput(f"the authority gave {len(answers)} answers for {len(guards)} partitions")
        return list(zip(guards, answers, strict=True))

    def _refusal(self, partition: int) -> EpochError | None:
        guard = self._guards.get(partition)
        return refusals.absent(partition, self._node) if guard is None else guard.reason

    def _check_each(self, rows: npt.NDArray[np.integer[Any]]) -> None:
        found = {partition: self._refusal(partition) for partition in np.unique(rows).tolist()}
        refused = {partition: error for partition, error in found.items() if error is not None}
        if refused:
            is_refused = np.isin(rows, np.array(list(refused), rows.dtype))
            raise refused[int(rows[int(np.argmax(is_refused))])]

    def _grow(self, size: int) -> None:
        if size > self._words.size:
            grown = np.full(1 << (size - 1).bit_length(), _ABSENT, np.uint8)
            grown[: self._words.size] = self._words
            self._words = grown

    def _copy_word(self, guard: PartitionGuard) -> None:
        with self._lock:
            # Not if another guard has taken its place: the old one's end says nothing about the new one.
            if self._guards.get(guard.partition) is guard:
                self._words[guard.partition] = guard._word

    def _forget(self, guard: PartitionGuard) -> None:
        if guard.partition < DENSE_PARTITIONS_MAX:
            guard.unwatch(self._copy_word)
