"""The guard of one partition: may this process still write it?

Theory of operation. A guard is made when a partition is acquired, and stands for that one acquisition: one partition,
one node, one epoch. Its state is a single word that moves forward only:

====================  =========================================================  ==========  ===================
state                 event                                                      next state  the caller gets
====================  =========================================================  ==========  ===================
valid, draining       the authority names our epoch and our node                 unchanged   confirmed
valid, draining       the authority names an epoch below ours                    unchanged   ``MetadataBehind``
valid, draining       the authority names an epoch above ours                    revoked     ``StaleEpoch``
valid, draining       the authority names our epoch and another node, or nobody  revoked     ``NotOwned``
valid, draining       the authority does not know the partition                  revoked     ``UnknownPartition``
valid, draining       the deadline passes without a confirmation                 revoked     ``EpochError``
valid, draining       ``revoke(error)``                                          revoked     that error
valid                 ``drain()``                                                draining
draining              ``drain()``                                                draining
revoked               anything at all                                            revoked     the first reason
====================  =========================================================  ==========  ===================

There is no way back: who lost a partition acquires it again, gets a higher epoch, and with it a new guard. An answer
that arrives late or from a lagging replica can therefore never revive a guard that a newer answer revoked.

``check`` reads the word and nothing else, so it is cheap enough for every write. It knows what the last answer said,
which may be seconds old; it saves a doomed write, it does not prevent one. What prevents it is the store, where the
successor's fence already stands. The deadline bounds how long a process cut off from its authority goes on believing.
It is compared by whoever refreshes, through ``expire_if_due``, because reading a clock costs more than ``check``.

Any thread may check while another revokes. The reason is stored before the word, so whoever sees the word finds the
reason. Watchers are called after the lock is released: a guard set takes its own lock there, and never the other way.
"""

from __future__ import annotations

import enum
import math
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from hedgerow.errors import EpochError, InvalidInput, MetadataBehind, NotOwned, StaleEpoch, UnknownPartition
from hedgerow.ownership.authority import Authority, Ownership
from hedgerow.ownership.conditional_put import ConditionalPut
from hedgerow.ownership.ids import UNASSIGNED, Epoch, NodeId, PartitionId, epoch, node_id, partition_id

__all__ = ["GuardState", "PartitionGuard"]


class GuardState(enum.IntEnum):
    """What a guard lets through; the order is the only direction in which it changes.

    >>> GuardState.VALID < GuardState.DRAINING < GuardState.REVOKED
    True
    """

    VALID = 0
    DRAINING = 1
    REVOKED = 2


_VALID, _DRAINING, _REVOKED = (int(state) for state in GuardState)


class PartitionGuard:
    """Proof that one node acquired one partition at one epoch, for as long as nothing newer is known.

    With ``valid_for_s`` the guard has a deadline, that long after it was made and after each confirmation.

    >>> from hedgerow.ownership.authority import StaticAuthority
    >>> guard = PartitionGuard(3, epoch=7, node=4)
    >>> guard.check()
    >>> guard.refresh(StaticAuthority({PartitionId(3): Ownership(NodeId(9), Epoch(8))}))
    False
    >>> guard.check()
    Traceback (most recent call last):
    ...
    hedgerow.errors.StaleEpoch: partition 3 belongs to node 9 at epoch 8; this guard is of node 4 at epoch 7. Stop writing; open a new writer to take the partition back
    """

    __slots__ = (
        "_clock",
        "_deadline_s",
        "_epoch",
        "_known_epoch",
        "_lock",
        "_node",
        "_partition",
        "_reason",
        "_valid_for_s",
        "_watchers",
        "_word",
    )

    def __init__(
        self,
        partition: int,
        epoch: int,
        node: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        valid_for_s: float | None = None,
    ) -> None:
        if valid_for_s is not None and not 0 < valid_for_s < math.inf:
            raise InvalidInput(f"valid_for_s must be a positive number of seconds or None, not {valid_for_s!r}")
        self._partition = partition_id(partition)
        self._epoch = _granted_epoch(epoch)
        self._node = node_id(node)
        self._clock = clock
        self._valid_for_s = valid_for_s
        self._deadline_s = math.inf if valid_for_s is None else clock() + valid_for_s
        self._known_epoch = self._epoch
        self._reason: EpochError | None = None
        self._word = _VALID
        self._watchers: list[Callable[[PartitionGuard], None]] = []
        # Reentrant: a signal handler may drain or revoke while this very thread is doing so.
        self._lock = threading.RLock()

    def check(self) -> None:
        """Return if a new write may be accepted, as far as is known here; raise an ``EpochError`` if not.

        >>> PartitionGuard(3, epoch=7, node=4).check()
        """
        if self._word:
            self._refuse()

    def check_flush(self) -> None:
        """Like ``check``, for writes that were accepted earlier: a draining guard lets them finish.

        >>> guard = PartitionGuard(3, epoch=7, node=4)
        >>> guard.drain()
        >>> guard.check_flush()
        """
        if self._word > _DRAINING:
            self._refuse()

    def validate(self, authority: Authority, *, asked_at_s: float | None = None) -> None:
        """Return if the authority confirms the ownership; otherwise raise, and revoke unless it merely lags.

        ``MetadataBehind`` means that the authority's view is older than this guard: fetch it again, and write
        nothing on its word. ``asked_at_s`` is as in ``observe``.

        >>> from hedgerow.ownership.authority import StaticAuthority
        >>> guard = PartitionGuard(3, epoch=7, node=4)
        >>> guard.validate(StaticAuthority({PartitionId(3): Ownership(NodeId(4), Epoch(7))}))
        >>> guard.validate(StaticAuthority({}))
        Traceback (most recent call last):
        ...
        hedgerow.errors.UnknownPartition: the authority knows no partition 3, guarded by node 4 at epoch 7. Stop writing; see whether the table was dropped or another one opened
        """
        problem = self.observe(authority.ownership(self._partition), asked_at_s=asked_at_s)
        if problem is not None:
            raise problem

    def refresh(self, authority: Authority, *, asked_at_s: float | None = None) -> bool:
        """Like ``validate``, with an answer instead of an error: was the ownership confirmed?

        ``False`` means revoked, or that the authority lags behind this guard. ``state`` tells the two apart;
        only a revoked guard is lost, and neither is a confirmation.

        >>> from hedgerow.ownership.authority import StaticAuthority
        >>> guard = PartitionGuard(3, epoch=7, node=4)
        >>> lagging = StaticAuthority({PartitionId(3): Ownership(NodeId(9), Epoch(6))})
        >>> guard.refresh(lagging), guard.state.name
        (False, 'VALID')
        """
        return self.observe(authority.ownership(self._partition), asked_at_s=asked_at_s) is None

    def observe(
        self, ownership: Ownership | None, *, asked_at_s: float | None = None
    ) -> EpochError | MetadataBehind | None:
        """Take in one answer of an authority; return ``None`` if it confirms, else what stands against writing.

        ``asked_at_s`` is when the read behind the answer was *sent*, on this guard's clock. A confirmation moves
        the deadline to ``valid_for_s`` after it. Without it the deadline stays: how old the answer is, only the
        caller knows, and a view asked twice is no younger the second time.

        >>> guard = PartitionGuard(3, epoch=7, node=4)
        >>> guard.observe(Ownership(NodeId(4), Epoch(7))) is None
        True
        """
        behind: MetadataBehind | None = None
        if ownership is None:
            self.revoke(self._unknown())
        else:
            self._learn(ownership.epoch)
            if ownership.epoch > self._epoch:
                self.revoke(self._stale(ownership))
            elif ownership.epoch < self._epoch:
                # Fenced: an answer from before our own acquisition cannot show whether a newer owner stands.
                behind = self._behind(ownership)
            elif ownership.node_id != self._node:
                # Fenced: two owners of one epoch must not exist. The one that notices stops, whoever is right.
                self.revoke(self._not_owned(ownership))
            elif asked_at_s is not None and self._valid_for_s is not None:
                self.extend(asked_at_s + self._valid_for_s)
        return _fresh(self._reason) if self._word >= _REVOKED and self._reason is not None else behind

    def revoke(self, error: EpochError) -> None:
        """Refuse every write from now on, with this error. The first reason stays; nothing undoes it.

        >>> guard = PartitionGuard(3, epoch=7, node=4)
        >>> guard.revoke(guard.conditional_put().refused_by(8))
        >>> guard.state.name
        'REVOKED'
        """
        if not isinstance(error, EpochError):
            raise InvalidInput(f"a guard is revoked with an EpochError that says why, not {error!r}")
        if error.current_epoch is not None:
            self._learn(error.current_epoch)
        self._advance(_REVOKED, _fresh(error))

    def drain(self) -> None:
        """Refuse new writes and let accepted ones finish: the partition is being handed over.

        >>> guard = PartitionGuard(3, epoch=7, node=4)
        >>> guard.drain()
        >>> guard.check()
        Traceback (most recent call last):
        ...
        hedgerow.errors.EpochError: partition 3 is draining: node 4 at epoch 7 is handing it over and takes no new writes. Send this write to the next owner
        """
        self._advance(_DRAINING, self._draining())

    def extend(self, deadline_s: float) -> None:
        """Move the deadline later; an earlier one changes nothing, and neither revives a revoked guard.

        >>> guard = PartitionGuard(3, epoch=7, node=4, clock=lambda: 100.0, valid_for_s=5)
        >>> guard.extend(103.0)
        >>> guard.deadline_s
        105.0
        """
        with self._lock:
            if deadline_s > self._deadline_s:
                self._deadline_s = deadline_s

    def expire_if_due(self, now_s: float | None = None) -> bool:
        """Revoke if the deadline has passed by ``now_s`` (else by the clock); ``True`` if this call did it.

        >>> guard = PartitionGuard(3, epoch=7, node=4, clock=lambda: 100.0, valid_for_s=5)
        >>> guard.expire_if_due(104.9), guard.expire_if_due(105.0), guard.expire_if_due(106.0)
        (False, True, False)
        """
        now_s = self._clock() if now_s is None else now_s
        with self._lock:
            due = self._word < _REVOKED and now_s >= self._deadline_s
            if due:
                self._reason = self._expired(now_s)
                self._word = _REVOKED
        if due:
            self._tell()
        return due

    def conditional_put(self) -> ConditionalPut:
        """Under which ownership objects are written: for tracing, and for the error when the store refuses one.

        >>> PartitionGuard(3, epoch=7, node=4).conditional_put()
        ConditionalPut(partition=3, epoch=7, node=4)
        """
        return ConditionalPut(self._partition, self._epoch, self._node)

    def watch(self, watcher: Callable[[PartitionGuard], None]) -> None:
        """Call ``watcher(guard)`` after every change of state, in the changing thread; it must not raise."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[PartitionGuard], None]) -> None:
        """Stop calling a watcher."""
        self._watchers.remove(watcher)

