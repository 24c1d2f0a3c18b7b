"""The guard of one partition: may this process still write it?

Theory of operation. A guard is made when a partition is acquired, and stands for that one acquisition: one
partition, one node, one epoch. Its state is a single word that moves forward only:

===============  ===========================================  ==========  ====================
state            event                                        next state  the caller gets
===============  ===========================================  ==========  ====================
valid, draining  the authority names our epoch and node       unchanged   confirmed
valid, draining  the authority names an epoch below ours      unchanged   ``MetadataBehind``
valid, draining  the authority names an epoch above ours      revoked     ``StaleEpoch``
valid, draining  the authority names our epoch, not our node  revoked     ``NotOwned``
valid, draining  the authority does not know the partition    revoked     ``UnknownPartition``
valid, draining  the deadline passes unconfirmed              revoked     ``EpochError``
valid, draining  ``revoke(error)``                            revoked     that error
valid, draining  ``drain()``                                  draining    ``EpochError``
revoked          anything at all                              revoked     the first reason
===============  ===========================================  ==========  ====================

There is no way back: who lost a partition acquires it again, gets a higher epoch, and with it a new guard. So
an answer that arrives late, or from a lagging replica, never revives a guard that a newer one revoked.

``check`` reads the word and nothing else, so it is cheap enough for every write. It knows what the last
answer said, which may be seconds old; it saves a doomed write, it does not prevent one. What prevents it is
the store, where the successor's fence already stands. The deadline bounds how long a process cut off from its
authority goes on believing. It is compared by whoever refreshes, through ``expire_if_due``, because reading a
clock costs more than ``check``.

Any thread may check while another revokes. The reason is stored before the word, so whoever sees the word
finds the reason. Watchers are called after the lock is released: a guard set takes its own lock there, and
never the other way.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from hedgerow.errors import EpochError, InvalidInput, MetadataBehind
from hedgerow.ownership import ids, refusals
from hedgerow.ownership.authority import Authority, Ownership
from hedgerow.ownership.conditional_put import ConditionalPut
from hedgerow.ownership.ids import Epoch, NodeId, PartitionId
from hedgerow.ownership.state import GuardState

__all__ = ["PartitionGuard"]

# Plain numbers: comparing members of an enumeration costs a call.
_VALID, _DRAINING, _REVOKED = (int(state) for state in GuardState)


class PartitionGuard:
    """Proof that one node acquired one partition at one epoch, for as long as nothing newer is known.

    With ``valid_for_s`` the guard has a deadline, that long after ``asked_at_s``, the moment on its clock at
    which the acquisition was sent (if not given: now), and later again after each confirmation.

    >>> from hedgerow.ownership.authority import StaticAuthority
    >>> guard = PartitionGuard(3, epoch=7, node=4)
    >>> guard.check()
    >>> guard.refresh(StaticAuthority({PartitionId(3): Ownership(NodeId(9), Epoch(8))}))
    False
    >>> guard.check()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    hedgerow.errors.StaleEpoch: partition 3 belongs to node 9 at epoch 8; this guard is of node 4 ...
    """

    __slots__ = (
        *("_partition", "_epoch", "_node", "_clock", "_valid_for_s"),
        *("_word", "_reason", "_known_epoch", "_deadline_s", "_watchers", "_lock"),
    )

    def __init__(
        self,
        partition: int,
        epoch: int,
        node: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        valid_for_s: float | None = None,
        asked_at_s: float | None = None,
    ) -> None:
        if valid_for_s is not None and not 0 < valid_for_s < math.inf:
            raise InvalidInput(f"valid_for_s must be None or a positive number of seconds, not {valid_for_s}")
        self._partition = ids.partition_id(partition)
        self._epoch = ids.epoch(epoch)
        self._node = ids.node_id(node)
        self._known_epoch: int = self._epoch
        self._reason: EpochError | None = None
        self._word = _VALID
        self._watchers: list[Callable[[PartitionGuard], None]] = []
        # Reentrant: a signal handler may drain or revoke while this very thread is doing so.
        self._lock = threading.RLock()
        self._clock = clock
        self._valid_for_s = valid_for_s
        self._deadline_s = math.inf
        if valid_for_s is not None:
            self._deadline_s = self._not_after_now(asked_at_s) + valid_for_s

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
        >>> guard.validate(StaticAuthority({}))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        hedgerow.errors.UnknownPartition: the authority knows no partition 3, ...
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
        """Take in one answer of an authority; return ``None`` if it confirms, else what is against it.

        ``asked_at_s`` is when the read behind the answer was *sent*, on this guard's clock. A confirmation
        moves the deadline to ``valid_for_s`` after it. Without it the deadline stays: how old the answer is,
        only the caller knows, and a view asked twice is no younger the second time.

        >>> guard = PartitionGuard(3, epoch=7, node=4)
        >>> guard.observe(Ownership(NodeId(4), Epoch(7))) is None
        True
        """
        behind: MetadataBehind | None = None
        if ownership is None:
            self.revoke(refusals.unknown(self))
        else:
            self._learn(ownership.epoch)
            if ownership.epoch > self._epoch:
                self.revoke(refusals.stale(self, ownership))
            elif ownership.epoch < self._epoch:
                # Fenced: an answer from before our own acquisition cannot show whether a newer owner stands.
                behind = refusals.behind(self, ownership)
            elif ownership.node_id != self._node:
                # Fenced: two owners of one epoch must not exist. The one that notices stops.
                self.revoke(refusals.not_owned(self, ownership))
            elif asked_at_s is not None and self._valid_for_s is not None:
                self.extend(self._not_after_now(asked_at_s) + self._valid_for_s)
        # The state has the last word: revoked before, or just now by another thread, is revoked.
        return self.reason if self._word == _REVOKED else behind

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
        self._advance(_REVOKED, refusals.fresh(error))

    def drain(self) -> None:
        """Refuse new writes and let accepted ones finish: the partition is being handed over.

        >>> guard = PartitionGuard(3, epoch=7, node=4)
        >>> guard.drain()
        >>> guard.check()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        hedgerow.errors.EpochError: partition 3 is draining: node 4 at epoch 7 ...
        """
        self._advance(_DRAINING, refusals.draining(self))

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
        if self._valid_for_s is None or self._word == _REVOKED or now_s < self._deadline_s:
            return False
        return self._advance(_REVOKED, refusals.expired(self, now_s), due_by_s=now_s)

    def conditional_put(self) -> ConditionalPut:
        """Under which ownership objects are written: for tracing, and for the error of a refusal.

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

    @property
    def partition(self) -> PartitionId:
        """The partition that is guarded."""
        return self._partition

    @property
    def epoch(self) -> Epoch:
        """The epoch at which it was acquired."""
        return self._epoch

    @property
    def node(self) -> NodeId:
        """The node that acquired it."""
        return self._node

    @property
    def known_epoch(self) -> int:
        """The highest epoch heard of for the partition; it never falls."""
        return self._known_epoch

    @property
    def deadline_s(self) -> float:
        """When the guard expires unless confirmed, on its clock; infinite without ``valid_for_s``."""
        return self._deadline_s

    @property
    def state(self) -> GuardState:
        """Valid, draining or revoked."""
        return GuardState(self._word)

    @property
    def reason(self) -> EpochError | None:
        """What ``check`` raises, or ``None`` if it does not."""
        return None if self._reason is None else refusals.fresh(self._reason)

    def __repr__(self) -> str:
        state = self.state.name.lower()
        return f"PartitionGuard({self._partition}, epoch={self._epoch}, node={self._node}, state={state})"

    def __reduce__(self) -> NoReturn:
        # Fenced: revoking the original would not reach a copy.
        raise TypeError("a guard cannot be copied or pickled: pass on the guard itself, or acquire anew")

    def _refuse(self) -> NoReturn:
        reason = self.reason
        assert reason is not None, "the reason is stored before the word"
        raise reason

    def _learn(self, seen_epoch: int) -> None:
        with self._lock:
            self._known_epoch = max(self._known_epoch, seen_epoch)

    def _not_after_now(self, asked_at_s: float | None) -> float:
        # A moment from another clock, the wall's above all, would otherwise put the deadline off for years.
        now_s = self._clock()
        return now_s if asked_at_s is None else min(asked_at_s, now_s)

    def _advance(self, word: int, reason: EpochError, due_by_s: float = math.inf) -> bool:
        with self._lock:
            advances = word > self._word and due_by_s >= self._deadline_s
            if advances:
                self._reason = reason
                self._word = word
        # Also when nothing changed: another thread may have advanced it a moment ago and not told everybody
        # yet, and the caller of either may count on it.
        for watcher in tuple(self._watchers):
            watcher(self)
        return advances
