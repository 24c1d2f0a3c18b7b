"""Readers beside writers, compactors and collectors: always a prefix, never a mixture, never a wrong row."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tools import Ahead, Watched, collect, compact, make_core, open_core, open_table_on, run

from hedgerow.engine.acquire import Identity, acquire
from hedgerow.engine.layout import level_path, wal_path
from hedgerow.engine.manifest import Partition
from hedgerow.engine.view import compacted_tail
from hedgerow.engine.wal import Prefix
from hedgerow.errors import Corrupt, Fenced, ReadExpired
from hedgerow.objects import MemoryStore
from hedgerow.sst import Run, SstMeta, sst_schema
from hedgerow.table.aio import AsyncTable

sys.path.insert(0, str(Path(__file__).parent.parent / "simulation"))
from safeguards import SWITCHES


async def written(store: Any, rows: dict[bytes, bytes], *, close: bool = True, **settings: Any) -> Any:
    table = await open_table_on(store)
    writer = await table.writer(flush_interval_s=0.0, **settings).start()
    for key, value in rows.items():
        await writer.put(key, value)
        await writer.flush()
    if close:
        await writer.close()
    return writer


def test_a_view_stands_still_until_it_is_refreshed() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        table = AsyncTable(await make_core(store))
        await written(store, {b"a": b"1"})
        assert await table.get(b"a") is None
        await table.refresh()
        assert await table.get(b"a") == b"1"

    run(scenario())


def test_a_reader_waits_for_a_missing_slot_and_never_reads_beyond_it() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        core = await make_core(store)
        await written(store, {b"a": b"1", b"b": b"2", b"c": b"3"}, close=False, max_parallel_writes=1)
        # Slot 1 is the fence; 2, 3 and 4 hold the rows. Take slot 3 away, as if it had not arrived yet.
        hidden = await store.get(wal_path(0, 3))
        await store.delete([wal_path(0, 3)])
        table = await open_table_on(store)
        assert [row["key"] for row in (await table.to_arrow()).to_pylist()] == [b"a"]
        await store.put(wal_path(0, 3), hidden)
        await table.refresh()
        assert [row["key"] for row in (await table.to_arrow()).to_pylist()] == [b"a", b"b", b"c"]
        assert core.manifests.current.number == 1

    run(scenario())


def test_slots_that_vanish_under_a_reader_are_found_in_files() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store)
        await written(store, {b"a": b"1", b"b": b"2"})
        watched = Watched(store)
        table = await open_table_on(watched)
        fired = False

        async def interfere(verb: str, path: str) -> None:
            nonlocal fired
            if verb == "get" and "/wal/" in path and not fired:
                fired = True
                assert await compact(store) == 1
                assert (await collect(store)).wal_ssts == 2

        watched.before = interfere
        assert await table.get_many([b"a", b"b"]) == [b"1", b"2"]
        assert fired

    run(scenario())


def test_a_stray_fence_in_a_collected_hole_does_not_hide_rows() -> None:
    """While a reader reads the WAL, its slots are compacted, collected, and one of them filled by an acquirer that slept."""

    async def scenario() -> list[Any]:
        store = MemoryStore()
        await make_core(store)
        old = await open_table_on(store)
        writer = await old.writer(flush_interval_s=0.0, max_parallel_writes=1).start()
        await writer.put(b"a", b"1")
        await writer.flush()
        sleeper = await open_core(store)
        await sleeper.manifests.refresh()
        watched = Watched(store)
        reader = await open_table_on(watched)
        fired = False

        async def interfere(verb: str, path: str) -> None:
            nonlocal fired
            if verb == "get" and path == wal_path(0, 2) and not fired:
                fired = True
                await compact(store)
                await collect(store)
                stray = await sleeper.wal.encode(0, 2, None, epoch=2, fences=1)
                assert await sleeper.wal.create(0, 2, stray.data) is None

        watched.before = interfere
        return [await reader.get(b"a"), fired]

    assert run(scenario()) == [b"1", True]
    with SWITCHES["without_looking_at_the_manifest_after_the_tail"]():
        assert run(scenario()) == [None, True], "the safeguard was removed, and nothing broke"


def test_a_slot_that_is_really_lost_is_called_corrupt() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store)
        await written(store, {b"a": b"1", b"b": b"2"})
        await store.delete([wal_path(0, 2)])
        with pytest.raises(Corrupt, match="it was lost or deleted"):
            await (await open_table_on(store)).get(b"b")
        with pytest.raises(Corrupt, match="it was lost or deleted"):
            await (await (await open_table_on(store)).writer().start()).get(b"b")

    run(scenario())


def test_a_file_that_vanishes_moves_a_lookup_on_and_a_lost_one_is_called_corrupt() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store)
        await written(store, {b"a": b"1"})
        await compact(store)
        table = await open_table_on(store, cache_bytes=0)
        assert await table.get(b"a") == b"1"
        partition = (await open_core(store)).manifests.current.partitions[0]
        path = level_path(0, partition.ssts[0].base, partition.ssts[0].id)
        data = await store.get(path)
        await store.delete([path])
        with pytest.raises(Corrupt, match="newest manifest needs it"):
            await table.get(b"a")
        await store.put(path, data[:-20] + bytes(20))
        with pytest.raises(Corrupt):
            await table.get(b"a")
        await store.put(path, data[: len(data) // 2])
        with pytest.raises(Corrupt, match="cut off"):
            await table.get(b"a")

    run(scenario())


def test_a_scan_that_loses_a_file_fails_and_never_goes_on_with_another_manifest() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
        await make_core(store, schema=schema, key="id")
        table = await open_table_on(store)
        async with table.writer() as writer:
            await writer.write(
                pa.table({"id": range(40_000), "text": [f"{i:040d}" for i in range(40_000)]}, schema=schema)
            )
        await compact(store)
        reader = await open_table_on(store, cache_bytes=0)
        batches = reader.scan()
        first = await anext(batches)
        assert first.num_rows < 40_000
        partition = (await open_core(store)).manifests.current.partitions[0]
        await store.delete([level_path(0, sst.base, sst.id) for sst in partition.ssts])
        with pytest.raises(ReadExpired, match="snapshot"):
            async for _ in batches:
                pass

    run(scenario())


def test_a_get_that_misses_costs_two_ranged_reads_per_file_and_one_where_the_filter_says_no() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
        await make_core(store, schema=schema, key="id")
        table = await open_table_on(store)
        async with table.writer() as writer:
            ids = range(0, 80_000, 2)
            await writer.write(pa.table({"id": ids, "text": [f"{i:060d}" for i in ids]}, schema=schema))
        await compact(store)
        watched = Watched(store)
        reader = await open_table_on(watched)
        await reader.get(-1)
        watched.asked.clear()
        assert (await reader.get(40_000))["id"] == 40_000
        assert watched.asked == {"get_range": 2}
        watched.asked.clear()
        absent = list(range(1, 2_001, 2))
        before = len(watched.ranges)
        for i in absent:
            assert await reader.get(i) is None
        false_positives = len(watched.ranges) - before
        assert false_positives <= 1, "one block, once: everything else the filter ruled out"
        assert (await reader.get(40_000))["id"] == 40_000
        assert watched.asked["get_range"] == false_positives

    run(scenario())


def test_an_idle_table_asks_for_nothing_and_a_sealed_one_lists_no_wal() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store, partitions=50)
        await written(store, {b"%d" % i: b"x" for i in range(60)})
        await compact(store)
        watched = Watched(store)
        table = await open_table_on(watched)
        await table.to_arrow()
        watched.asked.clear()
        await table.refresh()
        assert watched.asked == {"list": 1}

    run(scenario())


def test_fences_of_many_partitions_are_minted_in_one_entry() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        core = await make_core(store, partitions=40)
        watched = Watched(store)
        mine = await open_core(watched)
        held = await acquire(mine.manifests, mine.wal, range(40), Identity(7, "me", b"p" * 16), 2)
        assert len(held) == 40
        assert (await core.manifests.refresh()).number == 2
        assert watched.asked["create"] == 1 + 40

    run(scenario())


# --- what a prefix means ------------------------------------------------------------------------------------


def fence(epoch: int, fences: int = 1) -> SstMeta:
    return SstMeta(kind="fence", table="", partition=0, epoch=epoch, write_id="", fences=fences)


def data(epoch: int, attached: int = 0) -> SstMeta:
    return SstMeta(kind="wal", table="", partition=0, epoch=epoch, write_id="", attached=attached)


@pytest.mark.parametrize(
    ("slots", "counting"),
    [
        ([fence(1), data(1), data(1)], [False, True, True]),
        ([fence(1), data(1), fence(2), data(1), data(2)], [False, True, False, False, True]),
        # With two in flight, one fence stops nobody yet; two in a row do.
        (
            [fence(2, 2), data(1), fence(2, 2), fence(2, 2), data(1), data(2)],
            [False, True, False, False, False, True],
        ),
        # Another's fence in between breaks the run.
        (
            [fence(2, 2), fence(3, 2), fence(2, 2), data(1), fence(3, 2), fence(3, 2), data(2)],
            [False] * 3 + [True] + [False] * 3,
        ),
        # A fence of a lower epoch above a completed run takes nothing back.
        ([fence(5), fence(2), data(4), data(5)], [False, False, False, True]),
    ],
)
def test_a_lower_epoch_above_a_completed_run_counts_for_nothing(slots: list[SstMeta], counting: list[bool]) -> None:
    prefix, seen = Prefix(0), []
    for meta in slots:
        prefix, valid = prefix.follow(meta)
        seen.append(valid)
    assert seen == counting
    assert prefix.last == len(slots)


def test_a_prefix_remembers_the_fences_below_the_replay_point() -> None:
    prefix = Prefix.at_replay_point(Partition(wal_id_last_compacted=7, fence_epoch=4))
    assert prefix.follow(data(3))[1] is False
    assert prefix.follow(data(4))[1] is True
    assert prefix.follow(fence(5, 2))[0].inside_a_run
    assert not prefix.follow(fence(5, 1))[0].inside_a_run
    assert prefix.follow(data(4, attached=12))[0].attached == 12


def test_a_zombies_object_above_the_fences_is_stepped_over_by_the_owner_and_ignored_by_readers() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store)
        old = await written(store, {b"a": b"1"}, close=False, max_parallel_writes=1)
        table = await open_table_on(store)
        writer = await table.writer(flush_interval_s=0.0, max_parallel_writes=1).start()
        await writer.acquire([0])  # fence in slot 3
        core = old._core
        rows = pa.table({"_key": [b"z"], "_op": pa.array([0], pa.int8()), "_seq": [0], "key": [b"z"], "value": [b"zombie"]},
                        schema=sst_schema(core.schema.columns))  # fmt: skip
        zombie = await core.wal.encode(0, 4, rows, epoch=1)
        assert await core.wal.create(0, 4, zombie.data) is None
        await writer.put(b"b", b"2")
        await writer.flush()
        reader = await open_table_on(store)
        assert [row["key"] for row in (await reader.to_arrow()).to_pylist()] == [b"a", b"b"]
        assert await store.get(wal_path(0, 5))
        await writer.close()
        await compact(store)
        assert await (await open_table_on(store)).get(b"z") is None

    run(scenario())


def test_two_writers_with_one_epoch_fence_themselves() -> None:
    """It cannot happen; if somebody restores half a bucket and it does, nobody goes on."""

    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store)
        writer = await written(store, {b"a": b"1"}, close=False, max_parallel_writes=1)
        twin = await writer._core.wal.encode(0, 3, None, epoch=1, fences=1)
        await store.create(wal_path(0, 3), twin.data)
        done = await writer.put(b"b", b"2")
        with pytest.raises(Fenced, match="has fenced itself"):
            await writer.flush()
        assert isinstance(done.exception(), Fenced)

    run(scenario())


def test_objects_in_each_others_places_are_refused() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store, partitions=2)
        await written(store, {b"%d" % i: b"x" for i in range(8)})
        one, other = await store.get(wal_path(0, 2)), await store.get(wal_path(1, 2))
        for path, bytes_ in ((wal_path(0, 2), other), (wal_path(0, 2), await store.get(wal_path(0, 3)))):
            await store.put(path, bytes_)
            with pytest.raises(Corrupt, match="another's place"):
                await (await open_table_on(store)).to_arrow()
            await store.put(wal_path(0, 2), one)
        assert (await (await open_table_on(store)).to_arrow()).num_rows == 8

    run(scenario())


def test_a_long_tail_is_kept_in_few_runs_and_says_the_same() -> None:
    schema = sst_schema(pa.schema([("key", pa.binary()), ("value", pa.int64())]))
    expected: dict[bytes, int] = {}
    tail: tuple[Run, ...] = ()
    for slot in range(1, 400):
        key = b"%d" % (slot * 7 % 50)
        expected[key] = slot
        rows = pa.Table.from_pylist([{"_key": key, "_op": 0, "_seq": 0, "key": key, "value": slot}], schema=schema)
        tail = compacted_tail((Run(rows, slot, slot), *tail), ())
    assert len(tail) <= 12
    for key, value in expected.items():
        found = next(place for run_ in tail if (place := run_.find(key)) is not None)
        assert found[0].row(found[1]) == {"key": key, "value": value}
    assert (tail[-1].oldest, tail[0].newest) == (1, 399)


def test_the_collector_leaves_fences_and_what_is_not_its_own() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store)
        await written(store, {b"a": b"1"})
        await written(store, {b"b": b"2"})
        await store.put("partitions/00000/wal/notes.txt", b"somebody's")
        await compact(store)
        gone = await collect(store)
        assert (gone.wal_ssts, gone.level_ssts) == (2, 0)
        left = [path for path in store.paths() if "/wal/" in path]
        assert left == [wal_path(0, 1), wal_path(0, 3), wal_path(0, 4), "partitions/00000/wal/notes.txt"]
        assert await (await open_table_on(store)).get_many([b"a", b"b"]) == [b"1", b"2"]
        again = await collect(store)
        assert (again.wal_ssts, again.level_ssts) == (0, 0)

    run(scenario())


def test_a_writers_pin_keeps_its_wal_until_it_expires() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store)
        await written(store, {b"a": b"1"}, close=False)
        await compact(store)
        from hedgerow.engine.collector import Collector

        now = await open_core(store)
        assert (await Collector(now.manifests, keep_entries=0, staging_entries=0).collect()).wal_ssts == 0
        later = await open_core(store, Ahead())
        assert (await Collector(later.manifests, keep_entries=0, staging_entries=0).collect()).wal_ssts == 1

    run(scenario())


def test_guards_follow_the_manifest_and_stop_the_engine() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store)
        writer = await written(store, {b"a": b"1"}, close=False)
        guard = writer.engine.guards.get(0)
        assert guard is not None and guard.epoch == 1
        guard.check()
        guard.revoke(guard.conditional_put().refused_by(9))
        with pytest.raises(Fenced, match="epoch 9"):
            await writer.put(b"b", b"2")
        before = len(store.paths())
        await asyncio.sleep(0)
        assert len(store.paths()) == before

    run(scenario())


def test_rows_that_wait_when_the_guard_is_revoked_are_refused_and_not_written() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store)
        table = await open_table_on(store)
        writer = await table.writer(flush_interval_s=60).start()
        await writer.acquire([0])
        done = await writer.put(b"b", b"2")
        guard = writer.engine.guards.get(0)
        assert guard is not None
        guard.revoke(guard.conditional_put().refused_by(9))
        with pytest.raises(Fenced, match="epoch 9"):
            await writer.flush()
        assert isinstance(done.exception(), Fenced)
        assert await (await open_table_on(store)).get(b"b") is None

    run(scenario())
