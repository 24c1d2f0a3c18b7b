"""The manifest as the authority that guards are validated against."""

from __future__ import annotations

from collections.abc import Sequence

from hedgerow.engine.manifest import Manifest
from hedgerow.ownership import Epoch, NodeId, Ownership, PartitionId

__all__ = ["ManifestAuthority"]


class ManifestAuthority:
    """Who owns which partition, by one manifest."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    def ownership(self, partition: PartitionId) -> Ownership | None:
        """The partition's owner and epoch; None where the table has no such partition."""
        if not 0 <= partition < len(self._manifest.partitions):
            return None
        state = self._manifest.partitions[partition]
        return Ownership(NodeId(state.owner), Epoch(state.writer_epoch))

    def ownerships(self, partitions: Sequence[PartitionId]) -> Sequence[Ownership | None]:
        """The same for many partitions, all by the same manifest."""
        return [self.ownership(partition) for partition in partitions]
