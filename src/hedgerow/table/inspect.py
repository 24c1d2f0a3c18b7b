"""What a table is made of, for people and for machines."""

from __future__ import annotations

import msgspec

from hedgerow.table.core import TableCore

__all__ = ["PartitionReport", "TableReport", "report"]


class PartitionReport(msgspec.Struct, frozen=True):
    """One partition."""

    partition: int
    epoch: int
    owner: str
    state: str
    replay_point: int
    wal_last_seen: int
    fences: int
    files: int
    file_rows: int
    file_bytes: int


class SnapshotReport(msgspec.Struct, frozen=True):
    """One pin."""

    id: str
    name: str
    manifest: int
    expires_ms: int


class TableReport(msgspec.Struct, frozen=True):
    """A table at one manifest."""

    url: str
    table_id: str
    manifest: int
    version: int
    columns: dict[str, str]
    key: tuple[str, ...]
    authority: str
    compactor_epoch: int
    floor: int
    partitions: tuple[PartitionReport, ...]
    snapshots: tuple[SnapshotReport, ...]


async def report(core: TableCore) -> TableReport:
    """Look at the newest manifest."""
    manifest = await core.manifests.refresh()
    partitions = tuple(
        PartitionReport(
            partition=index,
            epoch=partition.writer_epoch,
            owner=partition.owner_name,
            state="live" if partition.sealed_at is None else f"sealed at {partition.sealed_at}",
            replay_point=partition.wal_id_last_compacted,
            wal_last_seen=partition.wal_id_last_seen,
            fences=sum(last - first + 1 for first, last in partition.fences),
            files=len(partition.ssts),
            file_rows=sum(sst.rows for sst in partition.ssts),
            file_bytes=sum(sst.size_bytes for sst in partition.ssts),
        )
        for index, partition in enumerate(manifest.partitions)
    )
    return TableReport(
        url=core.store.url,
        table_id=manifest.table_id.hex(),
        manifest=manifest.number,
        version=manifest.version,
        columns={field.name: str(field.type) for field in core.schema.columns},
        key=core.schema.key,
        authority=manifest.authority,
        compactor_epoch=manifest.compactor_epoch,
        floor=manifest.floor,
        partitions=partitions,
        snapshots=tuple(
            SnapshotReport(pin.id.hex(), pin.name, pin.manifest_id, pin.expire_ms) for pin in manifest.snapshots
        ),
    )
