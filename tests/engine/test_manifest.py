"""The manifest as bytes and as a value: a wrong one is a wrong table."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tools import make_core, open_core, run

from hedgerow.engine import codec, transitions
from hedgerow.engine.manifest import (
    Did,
    Manifest,
    Partition,
    Snapshot,
    SstInfo,
    TableLayout,
    key_limit,
)
from hedgerow.errors import (
    Conflict,
    Corrupt,
    Fenced,
    InvalidInput,
    TableExists,
    TableNotFound,
    UnsupportedFormat,
)
from hedgerow.objects import Entry, MemoryStore
from hedgerow.objects.log import decode_entry

SCHEMA = pa.schema([("k", pa.binary())]).serialize().to_pybytes()
LAYOUT = TableLayout(schema=SCHEMA, key=("k",), partitions=3, field_ids=(1,))
TABLE = b"t" * 16
replace = msgspec.structs.replace

numbers = st.integers(0, 2**40)
ssts = st.builds(
    SstInfo,
    id=st.binary(min_size=16, max_size=16),
    base=numbers,
    level=st.integers(0, 7),
    first_key=st.binary(max_size=40),
    key_limit=st.binary(min_size=1, max_size=13),
    filter_offset=numbers,
    filter_len=st.integers(0, 2**31),
    block_meta_offset=numbers,
    block_meta_len=st.integers(0, 2**31),
    rows=numbers,
    wal_id=numbers,
    manifest=numbers,
    epoch=numbers,
    checksum=st.integers(0, 2**64 - 1),
)
partitions = st.builds(
    Partition,
    writer_epoch=numbers,
    owner=st.integers(0, 2**64 - 1),
    owner_name=st.text(max_size=8),
    sealed_at=st.none() | numbers,
    wal_id_last_compacted=numbers,
    wal_id_last_seen=numbers,
    max_parallel_writes=st.integers(1, 64),
    attached=numbers,
    fence_epoch=numbers,
    fences=st.lists(st.tuples(numbers, numbers), max_size=3).map(tuple),
    ssts=st.lists(ssts, max_size=6, unique_by=lambda sst: sst.id).map(codec.in_order),
)
snapshots = st.lists(
    st.builds(
        Snapshot,
        id=st.binary(min_size=16, max_size=16),
        manifest_id=numbers,
        expire_ms=numbers,
        name=st.text(max_size=5),
    ),
    max_size=4,
    unique_by=lambda pin: pin.id,
).map(tuple)
manifests = st.builds(
    Manifest,
    table_id=st.just(TABLE),
    number=st.just(7),
    write_id=st.just(b"w" * 16),
    created_ms=numbers,
    layout=st.just(LAYOUT),
    partitions=st.tuples(partitions, partitions, partitions),
    authority=st.sampled_from(["embedded", "cluster"]),
    compactor_epoch=numbers,
    staging_floor=numbers,
    floor=st.just(1),
    retention_ms=numbers,
    snapshots=snapshots,
    properties=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    version=numbers,
    did=st.builds(Did, kind=st.text(max_size=4), rows=numbers),
)


def entry(payload: bytes, number: int, base: int, write_id: bytes = b"w" * 16) -> Entry:
    return Entry(TABLE, number, write_id, b"p" * 16, 1, base, payload)


@given(manifests)
def test_a_whole_manifest_comes_back_as_it_was(manifest: Manifest) -> None:
    assert codec.decode(entry(codec.encode_whole(manifest), 7, 7), None, "x") == manifest


@given(manifests, manifests, st.lists(st.integers(0, 2), unique=True, max_size=3))
@settings(max_examples=150)
def test_a_change_applied_to_the_one_before_gives_the_one_after(
    before: Manifest, other: Manifest, which: list[int]
) -> None:
    parts = tuple(other.partitions[i] if i in which else before.partitions[i] for i in range(3))
    after = replace(
        other,
        number=8,
        write_id=b"v" * 16,
        partitions=parts,
        recent=((7, before.write_id),),
    )
    decoded = codec.decode(entry(codec.encode_change(before, after), 8, 7, b"v" * 16), before, "x")
    assert set(decoded.snapshots) == set(after.snapshots)
    assert replace(decoded, snapshots=()) == replace(after, snapshots=())


@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_that_are_no_manifest_are_called_corrupt(garbage: bytes) -> None:
    with pytest.raises(Corrupt, match="the-object"):
        codec.decode(entry(garbage, 7, 7), None, "the-object")


@given(manifests, st.data())
@settings(max_examples=60)
def test_a_damaged_payload_is_never_a_different_table(manifest: Manifest, data: st.DataObject) -> None:
    """The log's checksum stands before this; here the parser itself must hold."""
    payload = bytearray(codec.encode_whole(manifest))
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        codec.decode(entry(bytes(payload), 7, 7), None, "x")
    except (Corrupt, UnsupportedFormat):
        return


def test_a_change_without_what_it_changes_is_refused() -> None:
    manifest = Manifest(TABLE, 7, b"w" * 16, 1, LAYOUT, (Partition(),) * 3)
    change = codec.encode_change(manifest, replace(manifest, number=8))
    with pytest.raises(Corrupt, match="missing"):
        codec.decode(entry(change, 8, 7), None, "x")
    with pytest.raises(Corrupt, match="missing"):
        codec.decode(entry(change, 9, 7), manifest, "x")


def test_a_newer_format_is_refused_with_advice() -> None:
    body = msgspec.msgpack.encode({"format": 99, "what": "ever"})
    payload = codec._compress(body)
    with pytest.raises(UnsupportedFormat, match="Upgrade"):
        codec.decode(entry(payload, 7, 7), None, "x")


def test_a_hundred_thousand_files_and_a_thousand_snapshots_fit_in_a_hundred_bytes_a_file() -> None:
    rng = random.Random(1)

    def sst() -> SstInfo:
        size = rng.randrange(60_000_000, 64_000_000)
        return SstInfo(
            rng.randbytes(16), rng.randrange(10**6), rng.randrange(7), rng.randbytes(32), key_limit(rng.randbytes(32)),
            size, rng.randrange(10**6, 2 * 10**6), size + 2 * 10**6, rng.randrange(20_000, 60_000),
            rng.randrange(500_000, 600_000), rng.randrange(10**6), rng.randrange(10**6), rng.randrange(50),
            rng.getrandbits(64),
        )  # fmt: skip

    parts = tuple(
        Partition(
            writer_epoch=3,
            owner=rng.getrandbits(64),
            ssts=codec.in_order([sst() for _ in range(100_000 // 64)]),
        )
        for _ in range(64)
    )
    pins = tuple(Snapshot(rng.randbytes(16), rng.randrange(10**6), rng.randrange(10**13), "job") for _ in range(1_000))
    manifest = Manifest(TABLE, 7, b"w" * 16, 1, replace(LAYOUT, partitions=64), parts, snapshots=pins)
    payload = codec.encode_whole(manifest)
    files = sum(len(part.ssts) for part in parts)
    assert len(payload) / files <= 100
    assert codec.decode(entry(payload, 7, 7), None, "x") == manifest


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_a_key_limit_lies_above_the_key_and_is_short(last: bytes, other: bytes) -> None:
    limit = key_limit(last)
    assert limit > last
    assert len(limit) <= 13 or last[:12] == b"\xff" * 12


# --- transitions --------------------------------------------------------------------------------------------


def fresh(count: int = 2) -> Manifest:
    return Manifest(TABLE, 1, b"w" * 16, 1, replace(LAYOUT, partitions=count), (Partition(),) * count)


def acquired(manifest: Manifest, owner: int = 5, k: int = 1, **changes: Any) -> Manifest:
    noted = dict(enumerate(manifest.partitions))
    pin = Snapshot(bytes([owner]) * 16, 0)
    arguments: dict[str, Any] = {
        "owner": owner,
        "owner_name": "me",
        "max_parallel_writes": k,
        "pin": pin,
        **changes,
    }
    return transitions.acquire(manifest, noted, dict.fromkeys(noted, 1), **arguments)


def test_acquiring_mints_the_next_epoch_for_all_partitions_in_one_step_and_pins() -> None:
    after = acquired(fresh())
    assert [(p.writer_epoch, p.owner, p.live) for p in after.partitions] == [(1, 5, True)] * 2
    assert [pin.manifest_id for pin in after.snapshots] == [2]
    again = acquired(after, owner=5)
    assert [p.writer_epoch for p in again.partitions] == [2, 2], "also when the same owner comes back"


def test_acquiring_on_old_notes_is_refused() -> None:
    manifest = fresh()
    noted = {0: replace(manifest.partitions[0], wal_id_last_compacted=3)}
    with pytest.raises(transitions.Moved):
        transitions.acquire(
            manifest, noted, {0: 1}, owner=5, owner_name="", max_parallel_writes=1, pin=Snapshot(bytes(16), 0)
        )


def test_a_table_of_a_cluster_mints_nothing_here() -> None:
    with pytest.raises(InvalidInput, match="'cluster'"):
        acquired(replace(fresh(), authority="cluster"))


def test_parallel_writes_are_raised_by_acquiring_and_lowered_only_by_the_owner() -> None:
    raised = acquired(acquired(fresh(), k=4), owner=6, k=2)
    assert raised.partitions[0].max_parallel_writes == 4
    with pytest.raises(Fenced):
        transitions.lower_parallel_writes(raised, {0: 1}, 5, 2)
    lowered = transitions.lower_parallel_writes(raised, {0: 2}, 6, 2)
    assert [p.max_parallel_writes for p in lowered.partitions] == [2, 4]


def test_only_the_owner_seals_and_sealing_ends_its_pin() -> None:
    held = acquired(fresh())
    sealed = transitions.seal(held, {0: (1, 9)}, 5, bytes([5]) * 16)
    assert (
        sealed.partitions[0].sealed_at,
        sealed.partitions[0].owner,
        sealed.partitions[0].wal_id_last_seen,
    ) == (9, 0, 9)
    assert sealed.snapshots == ()
    assert sealed.partitions[0].writer_epoch == 1, "an epoch never falls"
    for epoch, owner in ((1, 6), (2, 5), (0, 5)):
        with pytest.raises(Fenced):
            transitions.seal(held, {0: (epoch, 9)}, owner, b"")


def test_a_compactor_publishes_only_over_what_it_read() -> None:
    manifest = transitions.take_compactor(fresh(), "c")
    flush = transitions.Flush(0, 0, 5, 2, ((1, 2), (4, 4)), None)
    after = transitions.publish_flush(manifest, [flush], compactor_epoch=1, base=1)
    assert (after.partitions[0].wal_id_last_compacted, after.partitions[0].fences) == (5, ((1, 2), (4, 4)))
    with pytest.raises(Conflict, match="replay point moved"):
        transitions.publish_flush(after, [flush], compactor_epoch=1, base=1)
    with pytest.raises(Fenced, match="another compactor"):
        transitions.publish_flush(transitions.take_compactor(manifest, "d"), [flush], compactor_epoch=1, base=1)
    with pytest.raises(Conflict, match="staging floor"):
        transitions.publish_flush(replace(manifest, staging_floor=2), [flush], compactor_epoch=1, base=1)


def test_floors_only_rise_and_expired_pins_go() -> None:
    pins = (Snapshot(b"a" * 16, 1, 50), Snapshot(b"b" * 16, 1, 0), Snapshot(b"c" * 16, 1, 200))
    manifest = replace(fresh(), floor=5, staging_floor=4, snapshots=pins)
    after = transitions.revoke(manifest, floor=3, staging_floor=9, now_ms=100)
    assert (after.floor, after.staging_floor) == (5, 9)
    assert [pin.id[:1] for pin in after.snapshots] == [b"b", b"c"]


# --- the log of manifests -----------------------------------------------------------------------------------


def test_opening_reads_the_last_whole_entry_and_the_changes_after_it() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        core = await make_core(store, partitions=4)
        for i in range(150):
            await core.manifests.update(lambda m, i=i: replace(m, properties={**m.properties, "i": str(i)}))
        other = await open_core(store)
        assert other.manifests.current == core.manifests.current
        assert other.manifests.current.properties["i"] == "149"
        newest = decode_entry(await store.get(core.manifests.path(151)), "x")
        assert 151 - newest.base < 64

    run(scenario())


def test_two_clients_move_the_same_table_and_neither_change_is_lost() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        cores = [await make_core(store), await open_core(store)]
        for i in range(20):
            for n, core in enumerate(cores):
                await core.manifests.update(lambda m, n=n, i=i: replace(m, properties={**m.properties, f"{n}.{i}": ""}))
        assert sum("." in name for name in (await cores[0].manifests.refresh()).properties) == 40

    run(scenario())


def test_time_never_goes_back_along_the_log() -> None:
    async def scenario() -> None:
        core = await make_core(MemoryStore())
        core.environment.now_ms = lambda: 5  # type: ignore[method-assign]
        before = core.manifests.current.created_ms
        after = await core.manifests.update(lambda m: m)
        assert after.created_ms == before + 1

    run(scenario())


def test_there_is_one_founder() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        with pytest.raises(TableNotFound):
            await open_core(store)
        first = await make_core(store)
        with pytest.raises(TableExists):
            await make_core(store)
        manifests = first.manifests
        with pytest.raises(TableExists, match="somebody else"):
            await type(manifests)(store, first.environment).create(manifests.current)

    run(scenario())
