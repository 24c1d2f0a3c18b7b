"""Who may write a partition: ids, epochs, the guard of one partition, and the guards of a node. No I/O."""

from hedgerow.ownership.authority import Authority, Ownership, StaticAuthority
from hedgerow.ownership.conditional_put import ConditionalPut
from hedgerow.ownership.guard import PartitionGuard
from hedgerow.ownership.guard_set import PartitionGuardSet
from hedgerow.ownership.ids import UNASSIGNED, Epoch, NodeId, PartitionId, epoch, node_id, partition_id
from hedgerow.ownership.state import GuardState

__all__ = [
    "UNASSIGNED",
    "Authority",
    "ConditionalPut",
    "Epoch",
    "GuardState",
    "NodeId",
    "Ownership",
    "PartitionGuard",
    "PartitionGuardSet",
    "PartitionId",
    "StaticAuthority",
    "epoch",
    "node_id",
    "partition_id",
]
