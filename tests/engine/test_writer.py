"""A writer's promises at its edges: errors, cancellations, callbacks, long lives."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pyarrow as pa
import pytest
from tools import POLICY, Watched, collect, compact, make_core, open_core, open_table_on, run

import hedgerow as hg
from hedgerow.engine.layout import wal_path
from hedgerow.engine.view import _MERGED_BYTES_MAX, compacted_tail
from hedgerow.errors import Closed, Corrupt, Fenced, HedgerowError, OutcomeUnknown, StoreUnavailable, TableExists
from hedgerow.objects import MemoryStore
from hedgerow.sst import Run, sst_schema
from hedgerow.table.aio import AsyncTable

ROWS = pa.table({"key": [b"a", b"b"], "value": [b"1", b"2"]})


async def soon(work: Any) -> Any:
    """Whatever hangs would hang for ever: five seconds are plenty."""
    async with asyncio.timeout(5):
        return await work


def test_flush_says_that_rows_may_be_stored_when_their_answer_was_lost() -> None:
    """Rows of write() have no futures: flush is all the caller gets, before or after the writer has stopped."""

    async def scenario(wait_first: bool) -> None:
        store = MemoryStore()
        await make_core(store)
        watched = Watched(store)
        writer = await (await open_table_on(watched)).writer(flush_interval_s=0.0).start()
        await writer.acquire()

        async def lose(verb: str, path: str) -> None:
            if "/wal/" in path and verb in ("create", "get"):
                raise StoreUnavailable("the answer is lost")

        watched.after = lose
        await writer.write(ROWS)
        if wait_first:
            owned = writer.engine._partitions[0]
            while owned.failure is None:
                await asyncio.sleep(0.01)
        with pytest.raises(HedgerowError) as caught:
            await soon(writer.flush())
        assert caught.value.maybe_stored
        watched.after = None
        with pytest.raises(HedgerowError) as again:
            await soon(writer.close())
        assert again.value.maybe_stored
        assert await (await open_table_on(store)).get(b"a") == b"1", "and it is"
        with pytest.raises(Closed) as refused:
            await writer.put(b"c", b"3")
        assert not refused.value.maybe_stored, "this row was never sent"

    for wait_first in (False, True):
        run(scenario(wait_first))


def test_a_row_whose_slot_was_emptied_and_filled_again_is_not_called_lost() -> None:
    """Its create landed, its answer was lost; before it looked, its slot was compacted, collected, and filled by a
    fence that had been on its way for long. The row is in a file."""

    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store)
        watched = Watched(store)
        table = await open_table_on(watched)
        writer = await table.writer(flush_interval_s=0.0, max_parallel_writes=1).start()
        await writer.acquire()
        sleeper = await open_core(store)
        stray = await sleeper.wal.encode(0, 2, None, epoch=2, fences=1)

        async def interfere(verb: str, path: str) -> None:
            if verb == "create" and path == wal_path(0, 2):
                watched.after = None
                await compact(store)
                await collect(store)
                assert await sleeper.wal.create(0, 2, stray.data) is None
                raise StoreUnavailable("the answer is lost")

        watched.after = interfere
        done = await writer.put(b"a", b"1")
        with pytest.raises(Fenced):
            await soon(writer.flush())
        error = done.exception()
        assert isinstance(error, Fenced)
        assert error.maybe_stored
        assert await (await open_table_on(store)).get(b"a") == b"1"

    run(scenario())


def test_closing_right_after_the_last_row_was_acknowledged_does_not_hang() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store)
        watched = Watched(store)
        table = await open_table_on(watched)
        for _ in range(20):
            writer = await table.writer(flush_interval_s=0.05, max_parallel_writes=1).start()
            first = await writer.put(b"a", b"1")
            await first
            second = await writer.put(b"b", b"2")
            third = await writer.put(b"c", b"3")
            writer.engine._send_due(writer.engine._partitions[0])
            await second
            await third
            await soon(writer.close())

    run(scenario())


def test_a_cancelled_close_leaves_nobody_waiting_and_can_be_repeated() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store)
        watched = Watched(store)
        writer = await (await open_table_on(watched)).writer(flush_interval_s=0.0).start()
        await writer.acquire()
        gate = asyncio.Event()

        async def hold(verb: str, path: str) -> None:
            if verb == "create" and "/wal/" in path:
                await gate.wait()

        watched.before = hold
        done = await writer.put(b"a", b"1")
        while not writer.engine._partitions[0].flights:
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.close(flush=False), 0.05)
        gate.set()
        await soon(done)
        await soon(writer.close())
        report = await (await open_table_on(store)).inspect()
        assert report.partitions[0].state.startswith("sealed")

    run(scenario())


def test_an_unexpected_error_while_acquiring_is_told_to_every_row() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store)
        watched = Watched(store)
        writer = await (await open_table_on(watched)).writer(flush_interval_s=0.0).start()

        async def break_(verb: str, path: str) -> None:
            if verb == "create":
                raise ValueError("a driver's own error")

        watched.before = break_
        done = await writer.put(b"a", b"1")
        with pytest.raises(HedgerowError, match="driver's own"):
            await soon(writer.flush())
        assert isinstance(done.exception(), HedgerowError)
        watched.before = None
        with pytest.raises(HedgerowError):
            await soon(writer.close())

    run(scenario())


def test_a_put_that_waits_for_room_is_told_when_the_writer_closes() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store)
        writer = await (await open_table_on(store)).writer(flush_interval_s=60, buffer_bytes=10, timeout_s=60).start()
        await writer.acquire()
        await writer.put(b"a", b"1")
        writer.engine._urgent.set = lambda: None  # type: ignore[method-assign]  # nothing is sent
        waiting = asyncio.ensure_future(writer.put(b"b", b"2"))
        await asyncio.sleep(0)
        await soon(writer.close(flush=False))
        with pytest.raises(Closed):
            await soon(waiting)

    run(scenario())


def test_a_put_in_a_callback_is_refused_instead_of_stalling_everybody() -> None:
    table = hg.create(f"memory://callback-room-{os.urandom(4).hex()}")
    caught: list[BaseException] = []
    with table.writer(buffer_bytes=1, timeout_s=30, flush_interval_s=0.0) as writer:

        def callback(_: Any) -> None:
            try:
                writer.put(b"b", b"2")
                writer.put(b"c", b"3")
            except hg.BufferFull as error:
                caught.append(error)

        writer.put(b"a", b"1").add_done_callback(callback)
        writer.flush()
        while not caught:
            pass
    assert "own thread" in str(caught[0])


def test_many_puts_share_few_objects() -> None:
    """Group commit: what gathers while a slot is under way goes into the next one together."""

    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store)
        writer = await (await open_table_on(store)).writer(flush_interval_s=0.01).start()
        futures = [await writer.put(b"%d" % i, b"x") for i in range(1_000)]
        await writer.flush()
        assert all(future.done() for future in futures)
        assert len([path for path in store.paths() if "/wal/" in path]) < 10
        await writer.close()

    run(scenario())


def test_get_many_answers_from_one_view() -> None:
    """Rows that are only ever written together must be read together, whatever is refreshed meanwhile."""

    async def scenario() -> None:
        store = MemoryStore()
        core = await make_core(store)
        table = AsyncTable(core)
        reader = core.reader
        real = reader._search

        async def write(value: bytes) -> None:
            async with (await open_table_on(store)).writer() as writer:
                await writer.write(pa.table({"key": [b"a", b"b"], "value": [value, value]}))

        await write(b"1")
        await table.refresh()
        await table.get_many([b"a", b"b"])
        await write(b"2")
        newer = await open_core(store)
        await newer.reader.load_all([0])
        swapped = False

        def search(view: Any, key: bytes) -> Any:
            nonlocal swapped
            found = real(view, key)
            if not swapped:
                swapped = True
                reader.view = newer.reader.view
            return found

        reader._search = search  # type: ignore[method-assign]
        places = [core.schema.locate(key) for key in (b"a", b"b")]
        values = [row["value"] for row in reader.get_cached_many(places)]  # type: ignore[index]
        assert swapped
        assert values == [b"1", b"1"]

    run(scenario())


def test_what_a_caller_does_to_a_row_is_no_write() -> None:
    schema = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])
    table = hg.create(f"memory://aliasing-{os.urandom(4).hex()}", schema=schema, key="id", partitions=1)
    with table.writer(flush_interval_s=60) as writer:
        tags = ["a"]
        writer.put({"id": 1, "tags": tags})
        tags.append("after the put")
        writer.get(1)["tags"].append("into the buffer")
        row = writer.get(1)
        row["id"] = 99
        assert writer.get(1) == {"id": 1, "tags": ["a"]}
    table.refresh()
    table.get(1)["tags"].append("into the cache")
    assert table.get(1) == {"id": 1, "tags": ["a"]}


def test_a_writer_that_reads_does_not_keep_what_has_been_compacted() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store)
        table = await open_table_on(store)
        writer = await table.writer(flush_interval_s=0.0).start()
        await writer.get(b"x")
        for i in range(30):
            await writer.put(b"%d" % i, b"x")
            await writer.flush()
        await compact(store)
        await table.refresh()  # the writer shares the table's manifests
        await writer.put(b"last", b"x")
        await writer.flush()
        view = writer.engine._partitions[0].view
        assert view is not None
        assert sum(kept.rows.num_rows for kept in view.tail) == 1
        assert await writer.get(b"7") == b"x"
        await writer.engine._catch_up()
        assert await writer.get(b"7") == b"x"
        await writer.close()

    run(scenario())


def test_a_cancelled_read_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store)
        watched = Watched(store)
        table = await open_table_on(watched)
        writer = await table.writer(flush_interval_s=0.0).start()
        await writer.put(b"a", b"1")
        await writer.flush()

        async def hold(verb: str, path: str) -> None:
            if verb == "get" and "/wal/" in path:
                await asyncio.sleep(60)

        watched.before = hold
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.get(b"z"), 0.05)
        assert writer.engine._partitions[0].late is None
        watched.before = None
        assert await soon(writer.get(b"a")) == b"1"
        await writer.close()

    run(scenario())


def test_an_older_manifest_never_takes_a_writers_own_view_back() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        core = await make_core(store)
        before = core.manifests.current
        table = await open_table_on(store)
        writer = await table.writer(flush_interval_s=0.0).start()
        await writer.put(b"a", b"1")
        await writer.get(b"a")
        await writer.flush()
        assert writer.engine._own_view(0, before) is writer.engine._partitions[0].view
        assert writer.engine._partitions[0].failure is None
        assert await writer.get(b"a") == b"1"
        await writer.close()

    run(scenario())


def test_runs_are_not_merged_beyond_what_a_column_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = sst_schema(pa.schema([("key", pa.binary()), ("value", pa.binary())]))
    monkeypatch.setattr("hedgerow.engine.view._MERGED_BYTES_MAX", 4_000)
    tail: tuple[Run, ...] = ()
    for slot in range(1, 60):
        row = {"_key": b"%d" % slot, "_op": 0, "_seq": 0, "key": b"k", "value": bytes(500)}
        tail = compacted_tail((Run(pa.Table.from_pylist([row], schema=schema), slot, slot), *tail), ())
    assert max(run_.rows.nbytes for run_ in tail) <= 4_000
    assert _MERGED_BYTES_MAX < 1 << 31
    assert sum(run_.rows.num_rows for run_ in tail) == 59


def test_one_round_of_collection_reads_every_entry_once() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        core = await make_core(store)
        for _ in range(100):
            await core.manifests.update(lambda manifest: manifest)
        watched = Watched(store)
        from hedgerow.engine.collector import Collector

        other = await open_core(watched)
        watched.asked.clear()
        await Collector(other.manifests, keep_entries=64).collect()
        assert watched.asked["get"] <= 150

    run(scenario())


def test_bringing_partitions_into_view_one_by_one_lists_each_once() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store, partitions=32)
        writer = await (await open_table_on(store)).writer().start()
        await writer.acquire()
        watched = Watched(store)
        core = await open_core(watched)
        watched.asked.clear()
        for index in range(32):
            await core.reader.load(index)
        assert watched.asked["list"] <= 2 * 32
        await writer.close()

    run(scenario())


def test_a_lost_manifest_entry_is_called_corrupt() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        core = await make_core(store)
        for _ in range(5):
            await core.manifests.update(lambda manifest: manifest)
        await store.delete([core.manifests.path(3)])
        with pytest.raises(Corrupt, match="lost or deleted"):
            await open_core(store)

    run(scenario())


def test_a_founder_that_slept_is_told_that_the_table_exists() -> None:
    """Its first entry lands in the hole where another table's first entry was collected."""

    async def scenario() -> None:
        store = MemoryStore()
        core = await make_core(store)
        first = core.manifests.current
        for _ in range(5):
            await core.manifests.update(lambda manifest: manifest)
        await collect(store)
        from hedgerow.engine.manifests import Manifests

        late = Manifests(store, core.environment, POLICY)
        with pytest.raises(TableExists):
            await late.create(pa_replace(first))
        assert (await open_core(store)).manifests.current.table_id == first.table_id

    run(scenario())


def pa_replace(manifest: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(manifest, table_id=b"o" * 16)


def test_an_append_that_was_collected_and_replaced_is_still_known() -> None:
    """Its answer was lost, its entry collected, and a stray put in its place before we looked."""

    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store)
        watched = Watched(store)
        mine = await open_core(watched)
        other = await open_core(store)

        async def interfere(verb: str, path: str) -> None:
            if verb == "create" and path.startswith("manifest/"):
                watched.after = None
                for _ in range(3):
                    await other.manifests.update(lambda manifest: manifest)
                await collect(store)
                await store.put(path, b"a stray")
                raise StoreUnavailable("the answer is lost")

        watched.after = interfere
        calls = 0

        def count(manifest: Any) -> Any:
            nonlocal calls
            calls += 1
            return manifest

        after = await mine.manifests.update(count)
        assert calls == 1, "it was part of history, and must not be done twice"
        assert after.number == 2

    run(scenario())


def test_unknown_outcomes_of_appends_are_reported_as_such() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await make_core(store)
        watched = Watched(store)
        core = await open_core(watched)

        async def away(verb: str, path: str) -> None:
            if core.manifests.current is not None and started:
                raise StoreUnavailable("away")

        started = False
        watched.before = away

        def transition(manifest: Any) -> Any:
            nonlocal started
            started = True
            return manifest

        with pytest.raises(OutcomeUnknown) as caught:
            await core.manifests.update(transition)
        assert caught.value.maybe_stored

    run(scenario())
