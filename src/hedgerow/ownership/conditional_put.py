"""Under which ownership an object is written: for tracing, and for the error when the store refuses it."""

from __future__ import annotations

import msgspec

from hedgerow.errors import ConditionalPutFailed
from hedgerow.ownership.ids import Epoch, NodeId, PartitionId

__all__ = ["ConditionalPut"]


class ConditionalPut(msgspec.Struct, frozen=True):
    """The partition, epoch and node on whose behalf an object is created.

    >>> put = ConditionalPut(PartitionId(3), Epoch(7), NodeId(4))
    >>> put.as_metadata()["x-hedgerow-epoch"]
    '7'
    """

    partition: PartitionId
    epoch: Epoch
    node: NodeId

    # There is no condition to send along. An ETag is chosen by the store, so an epoch can never be one, and
    # stores do not compare metadata. The fencing token is the create itself: the name holds the next number
    # of a log, the store lets one create of it succeed, and a successor's fence has taken that number before
    # it writes anything else.

    def as_metadata(self) -> dict[str, str]:
        """Headers that tell a person looking at the object who wrote it. They fence nothing.

        >>> ConditionalPut(PartitionId(3), Epoch(7), NodeId(4)).as_metadata()
        {'x-hedgerow-partition': '3', 'x-hedgerow-epoch': '7', 'x-hedgerow-node': '4'}
        """
        return {
            "x-hedgerow-partition": str(self.partition),
            "x-hedgerow-epoch": str(self.epoch),
            "x-hedgerow-node": str(self.node),
        }

    def refused_by(self, actual_epoch: int) -> ConditionalPutFailed:
        """The error for a create that found an object of another owner, written at ``actual_epoch``.

        >>> raise ConditionalPut(PartitionId(3), Epoch(7), NodeId(4)).refused_by(8)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        hedgerow.errors.ConditionalPutFailed: the write to partition 3 at epoch 7 (node 4) was refused: an ...
        """
        return ConditionalPutFailed(
            f"the write to partition {self.partition} at epoch {self.epoch} (node {self.node}) was refused: "
            f"an object of epoch {actual_epoch} stands in its place. Nothing was written; stop, and open a "
            "new writer before putting these rows again",
            partition=self.partition,
            epoch=self.epoch,
            current_epoch=actual_epoch,
        )
