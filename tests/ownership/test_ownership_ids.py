from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hedgerow.errors import InvalidInput
from hedgerow.ownership import UNASSIGNED, PartitionGuard, PartitionGuardSet, epoch, node_id, partition_id


@pytest.mark.parametrize(
    ("make", "lowest", "highest"),
    [(partition_id, 0, 2**32 - 1), (node_id, 1, 2**64 - 1), (epoch, 1, 2**64 - 1)],
)
def test_every_id_that_can_be_stored_is_accepted_and_none_beyond(
    make: Callable[[int], int], lowest: int, highest: int
) -> None:
    assert make(lowest) == lowest
    assert make(highest) == highest
    for refused in (lowest - 1, highest + 1, -1):
        with pytest.raises(InvalidInput, match=str(refused)):
            make(refused)


@pytest.mark.parametrize("make", [partition_id, node_id, epoch])
@pytest.mark.parametrize("value", [True, False, 1.0, "1", None, b"1", np.int64(1)])
def test_a_flag_or_text_in_the_wrong_argument_never_becomes_an_id(make: Callable[[object], int], value: object) -> None:
    with pytest.raises(InvalidInput, match="must be an int"):
        make(value)


def test_a_node_that_forgot_to_set_its_id_cannot_own_what_nobody_owns() -> None:
    assert UNASSIGNED == 0
    with pytest.raises(InvalidInput, match="no owner"):
        PartitionGuard(3, epoch=7, node=UNASSIGNED)
    with pytest.raises(InvalidInput, match="no owner"):
        PartitionGuardSet(UNASSIGNED)


def test_a_guard_is_refused_the_epoch_that_nobody_is_ever_granted() -> None:
    with pytest.raises(InvalidInput, match="an epoch must be from 1"):
        PartitionGuard(3, epoch=0, node=4)


def test_a_guard_of_a_granted_epoch_knows_what_it_guards() -> None:
    guard = PartitionGuard(3, epoch=1, node=4)
    assert (guard.partition, guard.epoch, guard.node, guard.known_epoch) == (3, 1, 4, 1)
