"""Who owns which partition: the view that guards are validated against.

An authority is held in memory, for instance a manifest that was just read. Fetching it is the caller's I/O,
done before; asking it does none. So an answer is as old as the fetch, and a guard treats it that way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from hedgerow.ownership.ids import Epoch, NodeId, PartitionId

__all__ = ["Authority", "Ownership", "StaticAuthority"]


class Ownership(msgspec.Struct, frozen=True):
    """One partition's owner and the epoch at which it became the owner.

    A partition that was released keeps its epoch and has the node ``UNASSIGNED``; one that was never owned
    has epoch 0 too.

    >>> Ownership(NodeId(4), Epoch(7))
    Ownership(node_id=4, epoch=7)
    """

    node_id: NodeId
    epoch: Epoch


class Authority(Protocol):
    """What a guard needs to know from whoever records ownership."""

    def ownership(self, partition: PartitionId) -> Ownership | None:
        """The partition's ownership, or ``None`` if there is no such partition."""
        ...

    def ownerships(self, partitions: Sequence[PartitionId]) -> Sequence[Ownership | None]:
        """The answers for many partitions, in their order, all from one moment."""
        ...


class StaticAuthority:
    """An authority that answers from a mapping, as it was when handed over.

    >>> authority = StaticAuthority({PartitionId(3): Ownership(NodeId(4), Epoch(7))})
    >>> authority.ownership(PartitionId(3))
    Ownership(node_id=4, epoch=7)
    >>> authority.ownerships([PartitionId(3), PartitionId(5)])
    [Ownership(node_id=4, epoch=7), None]
    """

    __slots__ = ("_by_partition",)

    def __init__(self, by_partition: Mapping[PartitionId, Ownership]) -> None:
        self._by_partition = dict(by_partition)

    def ownership(self, partition: PartitionId) -> Ownership | None:
        """The partition's ownership, or ``None`` if the mapping lacks it."""
        return self._by_partition.get(partition)

    def ownerships(self, partitions: Sequence[PartitionId]) -> Sequence[Ownership | None]:
        """The answers for many partitions, in their order."""
        return [self._by_partition.get(partition) for partition in partitions]
