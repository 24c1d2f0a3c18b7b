"""What a guard says when it refuses: each error in full, with the partition, the epochs and the way out."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from hedgerow.errors import EpochError, MetadataBehind, NotOwned, StaleEpoch, UnknownPartition
from hedgerow.ownership.authority import Ownership
from hedgerow.ownership.ids import UNASSIGNED

if TYPE_CHECKING:
    from hedgerow.ownership.guard import PartitionGuard

__all__ = ["absent", "behind", "draining", "expired", "fresh", "not_owned", "replaced", "stale", "unknown"]

AnyEpochError = TypeVar("AnyEpochError", bound=EpochError)


def stale(guard: PartitionGuard, found: Ownership) -> StaleEpoch:
    """Somebody acquired the partition after this guard's owner did, perhaps the same node started anew."""
    owner = "nobody" if found.node_id == UNASSIGNED else f"node {found.node_id}"
    return StaleEpoch(
        f"partition {guard.partition} belongs to {owner} at epoch {found.epoch}; this guard is of node "
        f"{guard.node} at epoch {guard.epoch}. Stop writing; open a new writer to take the partition back",
        partition=guard.partition,
        epoch=guard.epoch,
        current_epoch=found.epoch,
    )


def replaced(guard: PartitionGuard, successor: PartitionGuard) -> StaleEpoch:
    """This process itself acquired the partition again."""
    return stale(guard, Ownership(successor.node, successor.epoch))


def not_owned(guard: PartitionGuard, found: Ownership) -> NotOwned:
    """The epoch is this guard's and the owner is not."""
    if found.node_id == UNASSIGNED:
        what = "has no owner now, though"
        advice = "open a new writer to acquire it"
    else:
        what = f"belongs to node {found.node_id} at the very epoch at which"
        advice = "make sure that the metadata was not copied or restored, then open a new writer"
    return NotOwned(
        f"partition {guard.partition} {what} node {guard.node} acquired it at epoch {guard.epoch}. "
        f"Stop writing; {advice}",
        partition=guard.partition,
        epoch=guard.epoch,
        current_epoch=found.epoch,
    )


def absent(partition: int, node: int) -> NotOwned:
    """A guard set holds no guard for the partition."""
    return NotOwned(
        f"node {node} holds no guard for partition {partition}, so no epoch to write it at. Acquire the "
        "partition, or send the write to its owner",
        partition=partition,
    )


def unknown(guard: PartitionGuard) -> UnknownPartition:
    """The authority has never heard of the partition, or has forgotten it."""
    return UnknownPartition(
        f"the authority knows no partition {guard.partition}, guarded by node {guard.node} at epoch "
        f"{guard.epoch}. Stop writing; see whether the table was dropped or another one opened",
        partition=guard.partition,
        epoch=guard.epoch,
    )


def draining(guard: PartitionGuard) -> EpochError:
    """The partition is still this guard's, and takes nothing new."""
    return EpochError(
        f"partition {guard.partition} is draining: node {guard.node} at epoch {guard.epoch} is handing it "
        "over and takes no new writes. Send this write to the next owner",
        partition=guard.partition,
        epoch=guard.epoch,
    )


def expired(guard: PartitionGuard, now_s: float) -> EpochError:
    """Nobody confirmed the ownership in time. Whether somebody else has it is not known."""
    return EpochError(
        f"nothing confirmed in time that node {guard.node} still owns partition {guard.partition} at epoch "
        f"{guard.epoch}: the deadline passed {now_s - guard.deadline_s:.3f} s ago. Stop writing; see whether "
        "the store can be reached, then open a new writer",
        partition=guard.partition,
        epoch=guard.epoch,
    )


def behind(guard: PartitionGuard, found: Ownership) -> MetadataBehind:
    """The answer is older than the guard, so it says nothing about now."""
    return MetadataBehind(
        f"the authority names epoch {found.epoch} for partition {guard.partition}, but node {guard.node} "
        f"holds it at epoch {guard.epoch}: the answer is out of date. Read the metadata again, and write "
        f"nothing until it names epoch {guard.epoch} or a later one"
    )


def fresh(error: AnyEpochError) -> AnyEpochError:
    """A copy without a traceback.

    A guard refuses many times and in many threads: one shared error would gather every traceback, and keep
    alive what the frames hold. ``__init__`` is bypassed so that no subclass can make a revocation fail.

    >>> error = StaleEpoch("partition 3 has moved", epoch=7)
    >>> fresh(error) is error, fresh(error).args, fresh(error).epoch
    (False, ('partition 3 has moved',), 7)
    """
    copy = type(error).__new__(type(error), *error.args)
    vars(copy).update(vars(error))
    return copy
