"""What the two public faces of a table share: creating, opening, and the parts that make one up."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from hedgerow.engine.acquire import Identity
from hedgerow.engine.manifest import Did, Manifest, Partition
from hedgerow.engine.manifests import Manifests
from hedgerow.engine.reader import Caches, Reader
from hedgerow.engine.wal import Wal
from hedgerow.engine.writer import Writer, WriterSettings
from hedgerow.errors import InvalidInput
from hedgerow.objects import (
    Environment,
    ObjectStore,
    RetryPolicy,
    TwoPhaseStore,
    open_records,
    open_store,
    self_test,
)
from hedgerow.table.schema import TableSchema, plan_layout

__all__ = ["TableCore", "create_table", "open_table"]

# The property that says how objects of this table are created: never by two authorities.
_WRITES, _TWO_PHASE = "writes", "two-phase"


class TableCore:
    """An open table: one manifest log, one moving view, one set of caches."""

    def __init__(self, manifests: Manifests, caches: Caches) -> None:
        manifest = manifests.current
        self.manifests = manifests
        self.store = manifests.store
        self.environment = manifests.environment
        self.schema = TableSchema(manifest.layout)
        self.caches = caches
        self.wal = Wal(self.store, self.environment, manifests.policy, manifest.table_id, self.schema.columns)
        self.reader = Reader(manifests, self.wal, caches)

    def start_writer(self, name: str | None, settings: WriterSettings) -> Writer:
        """A writer of its own identity. Owns nothing until it is needed."""
        owner = int.from_bytes(self.environment.new_id()[:8], "big") or 1
        name = name or f"{socket.gethostname()}:{os.getpid()}"
        identity = Identity(owner, name, self.environment.new_id())
        return Writer(self.manifests, self.wal, self.caches, identity, settings)


async def create_table(
    url: str | Path | ObjectStore,
    *,
    schema: pa.Schema | None,
    key: Sequence[str] | str | None,
    partitions: int,
    options: Mapping[str, Any] | None,
    cache_bytes: int,
    records: str | None = None,
    environment: Environment | None = None,
    policy: RetryPolicy | None = None,
) -> TableCore:
    """Found a table, after trying out its store."""
    layout = plan_layout(schema, key, partitions)
    environment = environment or Environment()
    store = _store(url, options, records, environment, policy)
    manifests = Manifests(store, environment, policy)
    first = Manifest(
        table_id=environment.new_id(),
        number=1,
        write_id=bytes(16),
        created_ms=environment.now_ms(),
        layout=layout,
        partitions=(Partition(),) * partitions,
        properties={_WRITES: _TWO_PHASE} if _is_two_phase(store) else {},
        did=Did("create"),
    )
    # A second create must fail before anything is written, so the log is looked at first.
    await manifests.expect_none()
    await self_test(store, environment, policy)
    await manifests.create(first)
    return TableCore(manifests, Caches(cache_bytes))


async def open_table(
    url: str | Path | ObjectStore,
    *,
    options: Mapping[str, Any] | None,
    cache_bytes: int,
    records: str | None = None,
    environment: Environment | None = None,
    policy: RetryPolicy | None = None,
) -> TableCore:
    """Open a table that is there."""
    environment = environment or Environment()
    store = _store(url, options, records, environment, policy)
    manifests = Manifests(store, environment, policy)
    manifest = await manifests.refresh()
    # Fenced: of two clients of one slot, both must ask the same authority who has it.
    two_phase = manifest.properties.get(_WRITES) == _TWO_PHASE
    if two_phase != _is_two_phase(store):
        raise InvalidInput(
            f"{store.url}: this table was made {'with' if two_phase else 'without'} records of a database. "
            f"Open it {'with records=... naming the same one' if two_phase else 'without records=...'}."
        )
    return TableCore(manifests, Caches(cache_bytes))


def settings_of(changes: Mapping[str, Any]) -> WriterSettings:
    """A writer's settings, each checked."""
    known = WriterSettings.__struct_fields__
    for name, value in changes.items():
        if name not in known:
            raise InvalidInput(f"A writer has no setting {name!r}. It has {', '.join(known)}.")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not value >= (0 if name == "flush_interval_s" else 1e-9):
            raise InvalidInput(f"{name}={value!r}: give a positive number.")
        if not name.endswith("_s") and not isinstance(value, int):
            raise InvalidInput(f"{name}={value!r}: give a whole number.")
    settings = WriterSettings(**changes)
    if settings.max_parallel_writes > 64:
        raise InvalidInput("max_parallel_writes: every takeover writes as many fences; 64 is the limit.")
    return settings


def _is_two_phase(store: ObjectStore) -> bool:
    return getattr(store, "two_phase", False) is True


def _store(
    url: str | Path | ObjectStore,
    options: Mapping[str, Any] | None,
    records: str | None,
    environment: Environment,
    policy: RetryPolicy | None,
) -> ObjectStore:
    store = open_store(url, options) if isinstance(url, str | Path) else url
    return store if records is None else TwoPhaseStore(store, open_records(records), environment, policy)
