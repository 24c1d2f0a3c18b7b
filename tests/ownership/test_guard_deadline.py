from __future__ import annotations

import math

import pytest

from hedgerow.errors import EpochError, InvalidInput
from hedgerow.ownership import Epoch, NodeId, Ownership, PartitionGuard, PartitionId, StaticAuthority

PARTITION, EPOCH, NODE = 3, 7, 4


def guard(**options: object) -> PartitionGuard:
    return PartitionGuard(PARTITION, EPOCH, NODE, **options)  # type: ignore[arg-type]


def saying(epoch: int, node: int = NODE) -> StaticAuthority:
    return StaticAuthority({PartitionId(PARTITION): Ownership(NodeId(node), Epoch(epoch))})


KNOWS_NOTHING = StaticAuthority({})
OURS = saying(EPOCH)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_an_owner_cut_off_from_its_authority_stops_when_its_deadline_passes() -> None:
    cut_off = guard(clock=Clock(), valid_for_s=5)
    assert cut_off.expire_if_due(104.999) is False
    cut_off.check()
    assert cut_off.expire_if_due(105.0) is True
    with pytest.raises(EpochError, match=r"partition 3 at epoch 7: the deadline passed 0\.000 s ago") as told:
        cut_off.check()
    assert type(told.value) is EpochError
    assert cut_off.expire_if_due(106.0) is False


def test_the_deadline_also_ends_a_hand_over_that_hangs() -> None:
    leaving = guard(clock=Clock(), valid_for_s=5)
    leaving.drain()
    assert leaving.expire_if_due(105.0) is True
    with pytest.raises(EpochError, match="nothing confirmed"):
        leaving.check_flush()


def test_the_deadline_is_read_from_the_guards_own_clock_when_no_time_is_given() -> None:
    clock = Clock()
    owner = guard(clock=clock, valid_for_s=5)
    clock.now_s = 104.0
    assert owner.expire_if_due() is False
    clock.now_s = 105.0
    assert owner.expire_if_due() is True


def test_a_confirmation_counts_from_when_it_was_asked_for_not_from_when_it_arrived() -> None:
    clock = Clock()
    owner = guard(clock=clock, valid_for_s=5)
    clock.now_s = 104.0
    assert owner.refresh(OURS, asked_at_s=101.0)
    assert owner.deadline_s == 106.0
    owner.validate(OURS, asked_at_s=103.0)
    assert owner.deadline_s == 108.0
    assert guard(clock=clock, valid_for_s=5, asked_at_s=102.0).deadline_s == 107.0


def test_asking_an_old_view_again_and_again_keeps_nobody_alive() -> None:
    clock = Clock()
    cut_off = guard(clock=clock, valid_for_s=5)
    for now_s in (102.0, 104.0, 106.0):
        clock.now_s = now_s
        assert cut_off.refresh(OURS)
    assert cut_off.deadline_s == 105.0
    assert cut_off.expire_if_due() is True


def test_a_time_from_the_wall_clock_does_not_put_the_deadline_off_for_years() -> None:
    owner = guard(clock=Clock(), valid_for_s=5)
    owner.refresh(OURS, asked_at_s=1_700_000_000.0)
    assert owner.deadline_s == 105.0


@pytest.mark.parametrize("answer", [saying(EPOCH - 1), saying(EPOCH, 9), saying(EPOCH + 1), KNOWS_NOTHING])
def test_only_a_confirmation_moves_the_deadline(answer: StaticAuthority) -> None:
    clock = Clock()
    owner = guard(clock=clock, valid_for_s=5)
    clock.now_s = 103.0
    owner.refresh(answer, asked_at_s=103.0)
    assert owner.deadline_s == 105.0


def test_an_expired_owner_is_not_revived_by_an_extension_or_a_confirmation() -> None:
    clock = Clock()
    expired = guard(clock=clock, valid_for_s=5)
    expired.expire_if_due(105.0)
    clock.now_s = 105.0
    expired.extend(1000.0)
    assert expired.refresh(OURS, asked_at_s=105.0) is False
    with pytest.raises(EpochError, match="nothing confirmed"):
        expired.check()


def test_an_extension_that_arrives_late_does_not_shorten_a_later_one() -> None:
    owner = guard(clock=Clock(), valid_for_s=5)
    owner.extend(120.0)
    owner.extend(110.0)
    assert owner.expire_if_due(119.0) is False
    assert owner.expire_if_due(120.0) is True


def test_a_guard_without_a_deadline_never_expires() -> None:
    owner = guard()
    owner.extend(1.0)
    assert owner.deadline_s == math.inf
    assert owner.expire_if_due(math.inf) is False
    owner.check()


@pytest.mark.parametrize("valid_for_s", [0, -1, math.inf, math.nan])
def test_a_deadline_that_would_never_or_always_have_passed_is_refused(valid_for_s: float) -> None:
    with pytest.raises(InvalidInput, match="valid_for_s"):
        guard(valid_for_s=valid_for_s)
