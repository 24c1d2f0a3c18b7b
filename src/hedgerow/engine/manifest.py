"""The manifest: everything that is true of a table, as one immutable value.

One log of manifests serves the whole table, so one append changes any number of partitions at once. Functions in
``transitions`` make the next value from the last one; ``codec`` writes what changed; ``manifests`` keeps the log.

What belongs to one partition stands in ``Partition``, what belongs to the table in ``Manifest``. WAL ids begin at 1, and
so do epochs and manifest numbers: 0 always means "none yet".
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

__all__ = ["Did", "Manifest", "Partition", "Snapshot", "SstInfo", "TableLayout", "key_limit"]

RECENT_ENTRIES = 256
"""How many entries' write ids a manifest remembers: how far back a client can learn the fate of its own append."""
_LIMIT_BYTES = 12


class SstInfo(msgspec.Struct, frozen=True, gc=False):
    """A sorted run's file, as the manifest knows it.

    Rows of a partition are ordered by (``wal_id``, ``manifest``): a file holds what is newer than every WAL slot up to
    ``wal_id`` was replaced by, and older than every later slot. ``checksum`` pins the file's footer, and so all of it.
    """

    id: bytes
    base: int
    level: int
    first_key: bytes
    key_limit: bytes
    filter_offset: int
    filter_len: int
    block_meta_offset: int
    block_meta_len: int
    rows: int
    wal_id: int
    manifest: int
    epoch: int
    checksum: int

    @property
    def size_bytes(self) -> int:
        """Size of the file: the block metadata, which is the footer, ends it."""
        return self.block_meta_offset + self.block_meta_len

    @property
    def position(self) -> tuple[int, int]:
        """Where its rows stand in the partition's history."""
        return self.wal_id, self.manifest


class Partition(msgspec.Struct, frozen=True, omit_defaults=True):
    """One partition's state: who owns it, and which of its WAL is already in sorted runs.

    >>> Partition().sealed_at
    0
    """

    writer_epoch: int = 0
    owner: int = 0
    owner_name: str = ""
    sealed_at: int | None = 0
    """The last WAL slot of an owner that closed properly; None while an owner may be writing."""
    wal_id_last_compacted: int = 0
    """The replay point: every row at or below it is in ``ssts``. Nothing at or below it is ever read from the WAL."""
    wal_id_last_seen: int = 0
    """The highest slot known to be part of history when the manifest was written: what a version shows of the WAL."""
    max_parallel_writes: int = 1
    """The most slots that any owner up to now may have had in flight: how many fences it takes to stop it."""
    attached: int = 0
    """The last manifest that attached sorted runs by a commit."""
    fence_epoch: int = 0
    """The epoch of the last complete run of fences at or below the replay point."""
    fences: tuple[tuple[int, int], ...] = ()
    """The slots at or below the replay point that hold fences (or rows that count for nothing), as ranges. They are
    never collected."""
    ssts: tuple[SstInfo, ...] = ()
    """Newest first."""

    @property
    def live(self) -> bool:
        """Whether an owner may be writing to the WAL."""
        return self.sealed_at is None


class Snapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pin: the collector keeps what manifest ``manifest_id`` needs until ``expire_ms`` (0: for ever)."""

    id: bytes
    manifest_id: int
    expire_ms: int = 0
    name: str = ""


class Did(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an entry did, for people: the line of it in the table's history."""

    kind: str
    who: str = ""
    partitions: int = 0
    rows: int = 0
    detail: str = ""


class TableLayout(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a table is: columns, key, partitions. ``number`` rises whenever staged files of an older layout become unusable."""

    schema: bytes
    key: tuple[str, ...]
    partitions: int
    field_ids: tuple[int, ...]
    key_value: bool = False
    number: int = 1

    @property
    def columns(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        return pa.ipc.read_schema(pa.py_buffer(self.schema))


class Manifest(msgspec.Struct, frozen=True):
    """A table at one moment."""

    table_id: bytes
    number: int
    write_id: bytes
    created_ms: int
    layout: TableLayout
    partitions: tuple[Partition, ...]
    authority: str = "embedded"
    compactor_epoch: int = 0
    staging_floor: int = 0
    floor: int = 1
    retention_ms: int = 24 * 3600 * 1000
    snapshots: tuple[Snapshot, ...] = ()
    sources: dict[str, Any] = {}
    properties: dict[str, str] = {}
    recent: tuple[tuple[int, bytes], ...] = ()
    version: int = 0
    """The last entry that changed rows by a commit; entries that only move rows around keep it."""
    did: Did = Did("create")

    def fate(self, number: int, write_id: bytes) -> bool | None:
        """Whether an append was part of history: True, False, or None where this manifest no longer knows."""
        if not self.recent or number < self.recent[0][0] or number > self.number:
            return None
        return (number, write_id) in self.recent


def key_limit(last_key: bytes) -> bytes:
    """A short key above ``last_key``: an upper bound that a manifest can afford to keep for every file.

    >>> key_limit(b"abc"), key_limit(b"a" * 40)
    (b'abc\\x00', b'aaaaaaaaaaab')
    """
    if len(last_key) < _LIMIT_BYTES:
        return last_key + b"\x00"
    prefix = last_key[:_LIMIT_BYTES].rstrip(b"\xff")
    if not prefix:
        return last_key + b"\x00"
    return prefix[:-1] + bytes([prefix[-1] + 1])
