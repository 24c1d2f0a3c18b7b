"""Whatever an authority answers, in whatever order: who lost a partition never writes it again."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hedgerow.errors import EpochError, Fenced, MetadataBehind, NotOwned, StaleEpoch, UnknownPartition
from hedgerow.ownership import (
    Epoch,
    GuardState,
    NodeId,
    Ownership,
    PartitionGuard,
    PartitionGuardSet,
    PartitionId,
    StaticAuthority,
)

PARTITION, EPOCH, NODE = 3, 7, 4

answers = st.one_of(
    st.none(),
    st.builds(Ownership, st.sampled_from([0, 4, 9]).map(NodeId), st.integers(EPOCH - 2, EPOCH + 3).map(Epoch)),
)


def expected(answer: Ownership | None) -> type[Exception] | None:
    """The table of transitions, written a second time."""
    match answer:
        case None:
            return UnknownPartition
        case Ownership(epoch=epoch) if epoch > EPOCH:
            return StaleEpoch
        case Ownership(epoch=epoch) if epoch < EPOCH:
            return MetadataBehind
        case Ownership(node_id=node) if node != NODE:
            return NotOwned
    return None


class GuardMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 100.0
        self.deadline_s = 110.0
        self.guard = PartitionGuard(PARTITION, EPOCH, NODE, lambda: self.now_s, valid_for_s=10)
        self.guards = PartitionGuardSet(NODE)
        self.guards.insert(self.guard)
        self.state = GuardState.VALID
        self.reason: type[Exception] | None = None
        self.highest_epoch = EPOCH
        self.states_seen = [self.guard.state]

    def revoked(self, reason: type[Exception]) -> None:
        if self.state is not GuardState.REVOKED:
            self.state, self.reason = GuardState.REVOKED, reason

    def answered(self, answer: Ownership | None, asked_at_s: float | None) -> type[Exception] | None:
        problem = expected(answer)
        if answer is not None:
            self.highest_epoch = max(self.highest_epoch, answer.epoch)
        if problem is not None and issubclass(problem, Fenced):
            self.revoked(problem)
        if problem is None and asked_at_s is not None:
            self.deadline_s = max(self.deadline_s, min(asked_at_s, self.now_s) + 10)
        return self.reason if self.state is GuardState.REVOKED else problem

    asked = st.none() | st.floats(80, 200)

    @rule(answer=answers, asked_at_s=asked, how=st.sampled_from(["guard", "set"]))
    def validate(self, answer: Ownership | None, asked_at_s: float | None, how: str) -> None:
        problem: Exception | None = None
        if how == "set":
            problems = self.guards.validate_all(view(answer), asked_at_s=asked_at_s)
            problem = problems[0][1] if problems else None
        else:
            try:
                self.guard.validate(view(answer), asked_at_s=asked_at_s)
            except (EpochError, MetadataBehind) as error:
                problem = error
        told = self.answered(answer, asked_at_s)
        assert told is (None if problem is None else type(problem))

    @rule(answer=answers, asked_at_s=asked, how=st.sampled_from(["guard", "set"]))
    def refresh(self, answer: Ownership | None, asked_at_s: float | None, how: str) -> None:
        if how == "set":
            confirmed = self.guards.refresh_all(view(answer), asked_at_s=asked_at_s) == []
        else:
            confirmed = self.guard.refresh(view(answer), asked_at_s=asked_at_s)
        assert confirmed is (self.answered(answer, asked_at_s) is None)

    @rule()
    def drain(self) -> None:
        self.guard.drain()
        if self.state is GuardState.VALID:
            self.state, self.reason = GuardState.DRAINING, EpochError

    @rule(actual_epoch=st.integers(EPOCH, EPOCH + 2))
    def lose_a_write(self, actual_epoch: int) -> None:
        error = self.guard.conditional_put().refused_by(actual_epoch)
        self.guard.revoke(error)
        self.highest_epoch = max(self.highest_epoch, actual_epoch)
        self.revoked(type(error))

    @rule(passed_s=st.floats(0, 15))
    def wait(self, passed_s: float) -> None:
        self.now_s += passed_s
        expires = self.state is not GuardState.REVOKED and self.now_s >= self.deadline_s
        assert self.guard.expire_if_due() is expires
        if expires:
            self.revoked(EpochError)

    @rule(deadline_s=st.floats(90, 200))
    def extend(self, deadline_s: float) -> None:
        self.guard.extend(deadline_s)
        self.deadline_s = max(self.deadline_s, deadline_s)

    @invariant()
    def the_guard_is_what_the_table_says(self) -> None:
        assert self.guard.state is self.state
        assert self.guard.known_epoch == self.highest_epoch
        assert self.guard.deadline_s == self.deadline_s
        self.states_seen.append(self.guard.state)
        assert self.states_seen == sorted(self.states_seen)

    @invariant()
    def every_way_to_check_agrees(self) -> None:
        for check in (
            self.guard.check,
            lambda: self.guards.check(PARTITION),
            lambda: self.guards.check_many(np.array([PARTITION])),
        ):
            assert refusal(check) is self.reason
        flush_refused = self.reason if self.state is GuardState.REVOKED else None
        assert refusal(self.guard.check_flush) is flush_refused


def view(answer: Ownership | None) -> StaticAuthority:
    return StaticAuthority({} if answer is None else {PartitionId(PARTITION): answer})


def refusal(check: object) -> type[Exception] | None:
    try:
        check()  # type: ignore[operator]
    except EpochError as error:
        return type(error)
    return None


TestGuardFollowsItsTable = GuardMachine.TestCase


@given(st.lists(answers, max_size=20))
def test_no_sequence_of_answers_gives_a_lost_partition_back(sequence: list[Ownership | None]) -> None:
    guard = PartitionGuard(PARTITION, EPOCH, NODE)
    lost, known_epoch = False, EPOCH
    for answer in sequence:
        confirmed = guard.refresh(view(answer))
        lost = lost or expected(answer) in (UnknownPartition, StaleEpoch, NotOwned)
        assert (refusal(guard.check) is not None) is lost
        assert not (confirmed and lost)
        assert guard.known_epoch >= known_epoch
        known_epoch = guard.known_epoch
