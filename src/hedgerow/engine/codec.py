"""Manifests as bytes: a whole value, or what changed since the last one.

A payload is a MessagePack map, compressed with Zstandard behind its length. Files are kept as columns: numbers of one
kind compress well next to each other, and what remains of a file is its id, its first key and a short upper bound.
Unknown fields of a *known* format version are ignored; the version rises whenever ignoring would be wrong.

A change holds only the partitions, files, snapshots and table fields that differ. Which is cheaper, whole or change, is
decided by ``encode`` for every entry.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from hedgerow.engine.manifest import RECENT_ENTRIES, Did, Manifest, Partition, Snapshot, SstInfo, TableLayout
from hedgerow.errors import Corrupt, UnsupportedFormat
from hedgerow.objects import Entry

__all__ = ["FORMAT_VERSION", "decode", "encode_change", "encode_whole"]

FORMAT_VERSION = 1
_CODEC = pa.Codec("zstd", 1)
_TABLE_FIELDS = (
    "layout",
    "authority",
    "compactor_epoch",
    "staging_floor",
    "retention_ms",
    "sources",
    "properties",
)
_NUMBERS = ("base", "level", "filter_offset", "filter_len", "block_meta_offset", "block_meta_len", "rows", "wal_id",
            "manifest", "epoch")  # fmt: skip
_get_numbers = operator.attrgetter(*_NUMBERS)
_NUMBER_TYPES = {name: "<u4" if name in ("level", "filter_len", "block_meta_len") else "<u8" for name in _NUMBERS}


class _Files(msgspec.Struct, frozen=True, rename="lower"):
    """Files as columns. ``owners`` says how many of them each partition has, in order."""

    owners: tuple[tuple[int, int], ...]
    ids: bytes
    checksums: bytes
    first_key_lengths: bytes
    first_keys: bytes
    limit_lengths: bytes
    limits: bytes
    numbers: dict[str, bytes]


class _Body(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a payload holds. Of a change, only what differs."""

    format: int
    created_ms: int
    did: Did
    version: int
    table: dict[str, msgspec.Raw] = {}
    partitions: tuple[tuple[int, Partition], ...] = ()
    files: _Files | None = None
    removed: tuple[tuple[int, tuple[bytes, ...]], ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    snapshots_removed: tuple[bytes, ...] = ()
    recent: tuple[tuple[int, bytes], ...] = ()
    table_id: bytes = b""


class _Version(msgspec.Struct):
    """The one field that every format version has."""

    format: int


_VERSION = msgspec.msgpack.Decoder(_Version)
_ENCODER = msgspec.msgpack.Encoder()
_BODY = msgspec.msgpack.Decoder(_Body)
_FIELD_TYPES: dict[str, Any] = {
    "layout": TableLayout, "authority": str, "compactor_epoch": int, "staging_floor": int, "retention_ms": int,
    "sources": dict[str, Any], "properties": dict[str, str],
}  # fmt: skip


def encode_whole(manifest: Manifest) -> bytes:
    """A payload that says everything."""
    body = _Body(
        format=FORMAT_VERSION,
        created_ms=manifest.created_ms,
        did=manifest.did,
        version=manifest.version,
        table={name: msgspec.Raw(_ENCODER.encode(getattr(manifest, name))) for name in _TABLE_FIELDS},
        partitions=tuple(enumerate(_bare(partition) for partition in manifest.partitions)),
        files=_pack([(index, partition.ssts) for index, partition in enumerate(manifest.partitions) if partition.ssts]),
        snapshots=manifest.snapshots,
        recent=manifest.recent,
        table_id=manifest.table_id,
    )
    return _compress(_ENCODER.encode(body))


def encode_change(before: Manifest, after: Manifest) -> bytes:
    """A payload that says what differs from the entry before."""
    changed = [
        (index, old, new)
        for index, (old, new) in enumerate(zip(before.partitions, after.partitions, strict=False))
        if old is not new
    ]
    added: list[tuple[int, tuple[SstInfo, ...]]] = []
    removed: list[tuple[int, tuple[bytes, ...]]] = []
    for index, old, new in changed:
        if old.ssts is not new.ssts:
            old_ids, new_ids = {sst.id for sst in old.ssts}, {sst.id for sst in new.ssts}
            if fresh := tuple(sst for sst in new.ssts if sst.id not in old_ids):
                added.append((index, fresh))
            if gone := tuple(sst.id for sst in old.ssts if sst.id not in new_ids):
                removed.append((index, gone))
    old_snapshots = {snapshot.id: snapshot for snapshot in before.snapshots}
    new_snapshots = {snapshot.id for snapshot in after.snapshots}
    body = _Body(
        format=FORMAT_VERSION,
        created_ms=after.created_ms,
        did=after.did,
        version=after.version,
        table={
            name: msgspec.Raw(_ENCODER.encode(getattr(after, name)))
            for name in _TABLE_FIELDS
            if getattr(before, name) is not getattr(after, name) and getattr(before, name) != getattr(after, name)
        },
        partitions=tuple((index, _bare(new)) for index, _, new in changed),
        files=_pack(added),
        removed=tuple(removed),
        snapshots=tuple(s for s in after.snapshots if old_snapshots.get(s.id) != s),
        snapshots_removed=tuple(i for i in old_snapshots if i not in new_snapshots),
    )
    return _compress(_ENCODER.encode(body))


def decode(entry: Entry, before: Manifest | None, name: str) -> Manifest:
    """The manifest after an entry: of a whole one by itself, of a change together with the one before."""
    body = _body(entry.payload, name)
    if entry.whole:
        base = _blank(body, entry, name)
    elif before is None or before.number + 1 != entry.number:
        raise Corrupt(f"{name} is a change, and what it changes is missing.")
    else:
        base = before
    try:
        table = {field: msgspec.msgpack.decode(raw, type=_FIELD_TYPES[field]) for field, raw in body.table.items()
                 if field in _FIELD_TYPES}  # fmt: skip
        partitions = _partitions(base.partitions, body)
        snapshots = _snapshots(base.snapshots, body)
    except (msgspec.MsgspecError, IndexError, KeyError, ValueError) as error:
        raise Corrupt(f"{name} cannot be applied to the entry before it: {error}") from error
    recent = body.recent if entry.whole else (*base.recent, (base.number, base.write_id))
    return msgspec.structs.replace(
        base,
        number=entry.number,
        write_id=entry.write_id,
        created_ms=body.created_ms,
        floor=entry.floor,
        partitions=partitions,
        snapshots=snapshots,
        recent=recent[-RECENT_ENTRIES:],
        version=body.version,
        did=body.did,
        **table,
    )


def _blank(body: _Body, entry: Entry, name: str) -> Manifest:
    if body.table_id != entry.log_id:
        raise Corrupt(f"{name} belongs to another table.")
    try:
        layout = msgspec.msgpack.decode(body.table["layout"], type=TableLayout)
    except (KeyError, msgspec.MsgspecError) as error:
        raise Corrupt(f"{name} does not say what the table is: {error}") from error
    empty = (Partition(),) * layout.partitions
    return Manifest(body.table_id, entry.number, entry.write_id, body.created_ms, layout, empty)


def _partitions(base: tuple[Partition, ...], body: _Body) -> tuple[Partition, ...]:
    added = _unpack(body.files) if body.files else {}
    removed = dict(body.removed)
    if not body.partitions:
        return base
    partitions = list(base)
    for index, bare in body.partitions:
        ssts = base[index].ssts
        if index in removed:
            gone = set(removed[index])
            ssts = tuple(sst for sst in ssts if sst.id not in gone)
        if index in added:
            ssts = in_order((*added[index], *ssts))
        partitions[index] = msgspec.structs.replace(bare, ssts=ssts) if ssts else bare
    return tuple(partitions)


def in_order(ssts: Sequence[SstInfo]) -> tuple[SstInfo, ...]:
    """Newest first; files of one run by their keys."""
    return tuple(sorted(ssts, key=lambda sst: (-sst.wal_id, -sst.manifest, sst.first_key)))


def _snapshots(base: tuple[Snapshot, ...], body: _Body) -> tuple[Snapshot, ...]:
    if not body.snapshots and not body.snapshots_removed:
        return base
    gone = {*body.snapshots_removed, *(snapshot.id for snapshot in body.snapshots)}
    return (*(snapshot for snapshot in base if snapshot.id not in gone), *body.snapshots)


def _bare(partition: Partition) -> Partition:
    return msgspec.structs.replace(partition, ssts=()) if partition.ssts else partition


def _pack(owned: Sequence[tuple[int, tuple[SstInfo, ...]]]) -> _Files | None:
    files = [sst for _, ssts in owned for sst in ssts]
    if not files:
        return None
    matrix = np.array(list(map(_get_numbers, files)), "<u8")
    return _Files(
        owners=tuple((index, len(ssts)) for index, ssts in owned),
        ids=b"".join([sst.id for sst in files]),
        checksums=np.array([sst.checksum for sst in files], "<u8").tobytes(),
        first_key_lengths=np.array([len(sst.first_key) for sst in files], "<u2").tobytes(),
        first_keys=b"".join([sst.first_key for sst in files]),
        limit_lengths=np.array([len(sst.key_limit) for sst in files], "<u2").tobytes(),
        limits=b"".join([sst.key_limit for sst in files]),
        numbers={
            name: _planes(np.ascontiguousarray(matrix[:, at].astype(_NUMBER_TYPES[name])))
            for at, name in enumerate(_NUMBERS)
        },
    )


def _unpack(packed: _Files) -> dict[int, tuple[SstInfo, ...]]:
    count = sum(length for _, length in packed.owners)
    firsts = _split(packed.first_key_lengths, packed.first_keys, count)
    limits = _split(packed.limit_lengths, packed.limits, count)
    checksums = np.frombuffer(packed.checksums, "<u8", count).tolist()
    numbers = {name: _from_planes(packed.numbers[name], _NUMBER_TYPES[name], count).tolist() for name in _NUMBERS}
    ids = [packed.ids[at : at + 16] for at in range(0, count * 16, 16)]
    files = [
        SstInfo(i, base, level, first, limit, filter_offset, filter_len, meta_offset, meta_len, rows, wal_id, number,
                epoch, checksum)
        for i, base, level, first, limit, filter_offset, filter_len, meta_offset, meta_len, rows, wal_id, number, epoch,
        checksum in zip(ids, numbers["base"], numbers["level"], firsts, limits, numbers["filter_offset"],
                        numbers["filter_len"], numbers["block_meta_offset"], numbers["block_meta_len"], numbers["rows"],
                        numbers["wal_id"], numbers["manifest"], numbers["epoch"], checksums, strict=True)
    ]  # fmt: skip
    owned: dict[int, tuple[SstInfo, ...]] = {}
    at = 0
    for index, length in packed.owners:
        owned[index] = tuple(files[at : at + length])
        at += length
    return owned


def _planes(values: np.ndarray[Any, Any]) -> bytes:
    """Numbers of one column, all lowest bytes first, then all second bytes, ...: what is alike lies together."""
    return values.view(np.uint8).reshape(len(values), -1).T.tobytes()


def _from_planes(data: bytes, dtype: str, count: int) -> np.ndarray[Any, Any]:
    width = np.dtype(dtype).itemsize
    return np.ascontiguousarray(np.frombuffer(data, np.uint8).reshape(width, count).T).view(dtype).reshape(count)


def _split(lengths: bytes, data: bytes, count: int) -> list[bytes]:
    ends = np.cumsum(np.frombuffer(lengths, "<u2", count), dtype=np.int64).tolist()
    starts = [0, *ends[:-1]]
    if ends and ends[-1] != len(data):
        raise ValueError("keys and their lengths do not agree")
    return [data[start:end] for start, end in zip(starts, ends, strict=True)]


def _compress(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + bytes(_CODEC.compress(data, asbytes=True))


def _body(payload: bytes, name: str) -> _Body:
    try:
        length = int.from_bytes(payload[:8], "little")
        if length > 1 << 33:
            raise ValueError(f"a length of {length}")
        data = _CODEC.decompress(payload[8:], decompressed_size=length, asbytes=True)
        version = _VERSION.decode(data).format
        if version > FORMAT_VERSION:
            raise UnsupportedFormat(
                f"{name} has manifest format {version}; this Hedgerow reads up to {FORMAT_VERSION}. Upgrade Hedgerow."
            )
        return _BODY.decode(data)
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError, pa.ArrowException, OSError) as error:
        raise Corrupt(f"{name} is not a manifest: {error}") from error
