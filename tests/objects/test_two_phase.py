"""Two-phase writes, one process at a time: what a table sees of a store that has no create-if-absent of its own."""

from __future__ import annotations

import asyncio

import pytest

from hedgerow.errors import InvalidInput, ObjectExists, ObjectNotFound, StoreUnavailable, UnsafeStore
from hedgerow.objects import Environment, MemoryStore, ObjectStore, PlainStore, RetryPolicy, self_test
from hedgerow.objects.records import MemoryRecords, Record
from hedgerow.objects.twophase import ORPHAN_AGE_MIN_MS, TwoPhaseStore

POLICY = RetryPolicy(first_pause_s=0.0, longest_pause_s=0.0, give_up_after_s=0.0)


class Plain:
    """A store of which only the verbs of a plain one can be used."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        assert name in ("url", "put", "get", "get_range", "list", "delete", "copy", "close"), name
        return getattr(self._store, name)


class Overwriting(Plain):
    """What a proxy makes of a store that drops the condition of a create."""

    async def create(self, path, data):
        await self._store.put(path, data)


class Failing:
    """Raises what it is told to at one verb; ``after`` the verb was carried out, or instead of it."""

    def __init__(self, inner, verb, error, *, after=False, times=1):
        self._inner, self._verb, self._error, self._after, self._times = inner, verb, error, after, times

    def __getattr__(self, name):
        call = getattr(self._inner, name)
        if name != self._verb:
            return call

        async def failing(*arguments, **options):
            if self._times <= 0:
                return await call(*arguments, **options)
            self._times -= 1
            if self._after:
                await call(*arguments, **options)
            raise self._error

        return failing


class LaterEnvironment(Environment):
    """A clock that is ahead."""

    def __init__(self, ahead_ms=0):
        super().__init__()
        self.ahead_ms = ahead_ms

    def now_ms(self):
        return super().now_ms() + self.ahead_ms


def run(coroutine):
    return asyncio.run(coroutine)


def make(plain=None, records=None, environment=None):
    plain = plain if plain is not None else MemoryStore()
    return TwoPhaseStore(Plain(plain), records or MemoryRecords(), environment or Environment(), POLICY)


async def names(store, prefix="", **options):
    return [line.path for line in await store.list(prefix, **options)]


def gone(text="sim: 503"):
    return StoreUnavailable(text)


def test_it_is_an_object_store():
    assert isinstance(make(), ObjectStore)
    assert isinstance(make(), PlainStore)


def test_only_the_plain_verbs_of_the_store_below_are_used_and_nothing_is_left_over():
    async def scenario():
        plain, records = MemoryStore(), MemoryRecords()
        store = make(plain, records)
        await store.create("wal/1", b"row")
        assert await names(plain) == ["wal/1"]
        assert (await records.get("wal/1")).state == "committed"
        await store.delete(["wal/1", "wal/1", "wal/2"])
        assert await names(plain) == []
        assert await records.get("wal/1") is None
        await store.create("wal/1", b"again")
        return await store.get("wal/1")

    assert run(scenario()) == b"again"


def test_the_self_test_passes_and_refuses_the_bare_store():
    run(self_test(make(), Environment()))
    with pytest.raises(UnsafeStore, match="overwrites"):
        run(self_test(Overwriting(MemoryStore()), Environment(), POLICY))


def test_an_object_that_was_there_before_records_were_kept_is_not_overwritten():
    async def scenario():
        plain = MemoryStore()
        await plain.put("a", b"old")
        with pytest.raises(ObjectExists):
            await make(plain).create("a", b"new")
        return await plain.get("a")

    assert run(scenario()) == b"old"


def test_names_like_temporaries_are_refused_because_no_listing_would_show_them():
    name = f"a.{'0' * 32}.{'0' * 16}"
    for call in (make().create(name, b""), make().put(name, b""), make().copy("a", name)):
        with pytest.raises(InvalidInput, match="temporary"):
            run(call)


def test_puts_and_copies_are_plain_and_cost_no_record():
    async def scenario():
        store = make(records=(records := MemoryRecords()))
        await store.put("levels/1", b"sst")
        await store.copy("levels/1", "levels/2")
        assert await names(store, "levels/") == ["levels/1", "levels/2"]
        assert await names(store, "levels/", after="levels/1") == ["levels/2"]
        assert await store.get_range("levels/2", 1, 9) == b"st"
        await store.delete(["levels/1", "levels/2"])
        assert await names(store) == []
        assert await records.get("levels/1") is None

    run(scenario())


@pytest.mark.parametrize("verb", ["copy", "mark", "delete"])
@pytest.mark.parametrize("after", [False, True])
def test_a_create_succeeds_when_only_what_follows_the_record_fails(verb, after):
    async def scenario():
        plain, records = MemoryStore(), MemoryRecords()
        failing = Failing(records if verb == "mark" else plain, verb, gone(), after=after)
        await make(*((plain, failing) if verb == "mark" else (failing, records))).create("a", b"bytes")
        other = make(plain, records)
        assert await names(other) == ["a"]
        assert await other.get("a") == b"bytes"
        with pytest.raises(ObjectExists):
            await other.create("a", b"other")

    run(scenario())


@pytest.mark.parametrize("read", ["get", "get_range", "list"])
def test_every_way_of_reading_finishes_a_create_that_was_left_behind(read):
    async def scenario():
        plain, records = MemoryStore(), MemoryRecords()
        await make(Failing(plain, "copy", gone()), records).create("a", b"bytes")
        with pytest.raises(ObjectNotFound):
            await plain.get("a")
        store = make(plain, records)
        if read == "get":
            assert await store.get("a") == b"bytes"
        elif read == "get_range":
            assert await store.get_range("a", 2, 2) == b"te"
        else:
            assert await names(store) == ["a"]
        assert await names(plain) == ["a"]
        assert await store.recover() == 0

    run(scenario())


def test_a_listing_that_cannot_recover_fails_instead_of_leaving_something_out():
    async def scenario():
        plain, records = MemoryStore(), MemoryRecords()
        await make(Failing(plain, "copy", gone()), records).create("log/7", b"bytes")
        store = make(Failing(plain, "copy", gone()), records)
        with pytest.raises(StoreUnavailable):
            await store.list("log/")
        assert await names(store, "log/", after="log/7") == []

    run(scenario())


@pytest.mark.parametrize("after", [False, True])
def test_an_insert_whose_answer_is_lost_is_recognised_as_ours(after):
    async def scenario():
        plain, records = MemoryStore(), MemoryRecords()
        await make(plain, Failing(records, "insert", gone(), after=after)).create("a", b"bytes")
        return await make(plain, records).get("a")

    assert run(scenario()) == b"bytes"


def test_an_insert_that_nobody_can_tell_about_keeps_its_temporary_for_it_may_arrive_yet():
    async def scenario():
        plain, records = MemoryStore(), MemoryRecords()
        with pytest.raises(StoreUnavailable):
            await make(plain, Failing(records, "insert", gone(), times=99)).create("a", b"bytes")
        (temporary,) = await names(plain)
        await records.insert(Record("a", temporary, ""))
        return await make(plain, records).get("a")

    assert run(scenario()) == b"bytes"


def test_a_loser_whose_earlier_insert_may_arrive_yet_takes_its_source_away_first():
    async def scenario():
        plain, records = MemoryStore(), MemoryRecords()

        class Beaten(MemoryRecords):
            tried = None

            async def insert(self, record):
                if self.tried is None:
                    self.tried = record
                    raise gone()
                return Record("a", "another's", "", "committed")

        with pytest.raises(StoreUnavailable):
            await make(plain, beaten := Beaten()).create("a", b"bytes")
        assert await names(plain) == []
        await records.insert(beaten.tried)  # late
        with pytest.raises(ObjectNotFound):
            await make(plain, records).get("a")
        await make(plain, records).create("a", b"other")
        return await make(plain, records).get("a")

    assert run(scenario()) == b"other"


def test_an_object_that_was_deleted_while_its_creator_asked_again_does_not_come_back():
    async def scenario():
        plain = MemoryStore()

        class Interrupted(MemoryRecords):
            inserts = 0

            async def insert(self, record):
                self.inserts += 1
                holder = await super().insert(record)
                if self.inserts == 1:
                    assert await make(plain, self).get("a") == b"bytes"
                    await make(plain, self).delete(["a"])
                    raise gone()
                return holder

        with pytest.raises(StoreUnavailable):
            await make(plain, records := Interrupted()).create("a", b"bytes")
        with pytest.raises(ObjectNotFound):
            await make(plain, records).get("a")
        assert await names(plain) == []
        assert await records.get("a") is None

    run(scenario())


def test_a_loser_leaves_nothing_behind():
    async def scenario():
        plain, records = MemoryStore(), MemoryRecords()
        await make(Failing(plain, "copy", gone()), records).create("a", b"first")
        with pytest.raises(ObjectExists):
            await make(plain, records).create("a", b"second")
        assert len(await names(plain)) == 1
        assert await make(plain, records).get("a") == b"first"

    run(scenario())


def test_the_policy_bounds_how_long_an_insert_is_asked_for():
    async def scenario():
        records = Failing(MemoryRecords(), "insert", gone(), times=10_000)
        with pytest.raises(StoreUnavailable):
            await TwoPhaseStore(Plain(MemoryStore()), records, Environment(), POLICY).create("a", b"")
        return 10_000 - records._times

    assert run(scenario()) < 10


# --- temporaries: who may take them away ---------------------------------------------------------------------


def test_a_temporary_that_was_collected_before_its_copy_costs_another_attempt_and_no_data():
    async def scenario():
        plain = MemoryStore()

        class Collected(MemoryRecords):
            collections = 2

            async def insert(self, record):
                if self.collections:
                    self.collections -= 1
                    await plain.delete([record.source])
                return await super().insert(record)

        await make(plain, records := Collected()).create("a", b"bytes")
        assert await names(plain) == ["a"]
        assert (await records.get("a")).state == "committed"
        assert await plain.get("a") == b"bytes"

    run(scenario())


def test_a_slot_whose_source_is_gone_for_good_is_free_again():
    async def scenario():
        plain, records = MemoryStore(), MemoryRecords()
        await records.insert(Record("a", f"a.{'0' * 32}.{'0' * 16}", ""))
        store = make(plain, records)
        assert await names(store) == []
        assert await records.get("a") is None
        await store.create("a", b"bytes")
        return await store.get("a")

    assert run(scenario()) == b"bytes"


def test_orphans_are_old_and_needed_by_no_pending_record():
    async def scenario():
        plain, records = MemoryStore(), MemoryRecords()
        clock = LaterEnvironment()
        store = make(plain, records, clock)
        await make(Failing(plain, "copy", gone()), records).create("pending", b"1")
        await make(Failing(plain, "delete", gone()), records).create("committed", b"2")
        with pytest.raises(StoreUnavailable):
            await make(plain, Failing(records, "insert", gone(), times=99)).create("never", b"3")
        assert await store.orphans("", ORPHAN_AGE_MIN_MS) == []
        clock.ahead_ms = ORPHAN_AGE_MIN_MS + 1_000
        orphans = [line.path for line in await store.orphans("", ORPHAN_AGE_MIN_MS)]
        assert [path.split(".")[0] for path in orphans] == ["committed", "never"]
        await store.delete(orphans)
        assert await store.get("pending") == b"1"
        assert await store.get("committed") == b"2"
        assert await names(plain) == ["committed", "pending"]
        with pytest.raises(InvalidInput):
            await store.orphans("", ORPHAN_AGE_MIN_MS - 1)

    run(scenario())


def test_a_create_is_not_answered_from_its_temporary_alone_once_that_may_be_taken_for_an_orphan():
    """The process slept between its put and its insert; a collector may have looked in between."""

    async def scenario():
        plain, clock = MemoryStore(), LaterEnvironment()

        class Sleeping(MemoryRecords):
            async def insert(self, record):
                clock.ahead_ms += ORPHAN_AGE_MIN_MS
                self.orphans = await make(plain, self, clock).orphans("", ORPHAN_AGE_MIN_MS)
                return await super().insert(record)

        records = Sleeping()
        with pytest.raises(StoreUnavailable):
            await make(Failing(plain, "copy", gone()), records, clock).create("a", b"bytes")
        assert len(records.orphans) == 1

    run(scenario())


# --- deleting ------------------------------------------------------------------------------------------------


def test_an_object_that_is_being_deleted_is_there_for_get_and_list_alike_until_it_is_not():
    async def scenario():
        plain, records = MemoryStore(), MemoryRecords()
        store = make(plain, records)
        await store.create("a", b"bytes")
        with pytest.raises(StoreUnavailable):
            await make(Failing(plain, "delete", gone()), records).delete(["a"])
        assert (await records.get("a")).state == "deleting"
        assert (await names(store), await store.get("a")) == (["a"], b"bytes")
        assert await store.recover() == 1
        assert await names(store) == []
        with pytest.raises(ObjectNotFound):
            await store.get("a")

    run(scenario())


def test_a_name_whose_delete_went_wrong_stays_taken_until_an_operator_says_otherwise():
    async def scenario():
        plain, records = MemoryStore(), MemoryRecords()
        store = make(plain, records)
        await store.create("a", b"bytes")
        with pytest.raises(StoreUnavailable):
            await make(Failing(plain, "delete", gone()), records).delete(["a"])
        await store.delete(["a"])
        assert (await records.get("a")).state == "spent"
        with pytest.raises(ObjectExists, match="stays taken"):
            await store.create("a", b"again")
        assert await names(plain) == []
        assert await store.recover() == 0
        assert await store.forget("b") == 0
        assert await store.forget("a") == 1
        await store.create("a", b"again")
        return await store.get("a")

    assert run(scenario()) == b"again"


def test_no_create_comes_between_a_delete_and_an_object_that_was_put():
    """Else the delete would take away the object and leave its record, and a late copy could bring it back."""

    async def scenario():
        refused = []

        class Slow(MemoryStore):
            async def delete(self, paths):
                await super().delete(paths)
                if "levels/1" in paths:
                    with pytest.raises(ObjectExists, match="being deleted"):
                        await make(self, records).create("levels/1", b"new")
                    refused.append(paths)

        plain, records = Slow(), MemoryRecords()
        store = make(plain, records)
        await store.put("levels/1", b"sst")
        await store.delete(["levels/1", "levels/2"])
        assert refused == [["levels/1"]]
        assert await records.get("levels/1") is None
        assert await records.get("levels/2") is None
        assert await names(plain) == []

    run(scenario())


def test_many_deletes_share_their_requests():
    async def scenario():
        calls = []

        class Counted(MemoryStore):
            async def delete(self, paths):
                calls.append(len(paths))
                await super().delete(paths)

        store = make(plain := Counted())
        paths = [f"wal/{number}" for number in range(100)]
        for path in paths:
            await store.create(path, b"row")
        await store.put("levels/1", b"sst")
        calls.clear()
        await store.delete([*paths, "levels/1"])
        assert calls == [101, 101]  # the temporaries, and the objects
        assert await names(plain) == []

    run(scenario())


def test_closing_closes_both_stores():
    closed = []

    class Plainly(MemoryStore):
        async def close(self):
            closed.append("plain")
            raise gone()

    class Recorded(MemoryRecords):
        async def close(self):
            closed.append("records")

    with pytest.raises(StoreUnavailable):
        run(make(Plainly(), Recorded()).close())
    assert closed == ["plain", "records"]
