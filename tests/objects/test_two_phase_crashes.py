"""Two-phase writes, and a crash after every single step: nothing created is lost, nothing half done is seen.

The steps are not listed here. Each operation is run again and again, with a process that dies after its first call to
either store, its second, and so on, until one gets through. Then others look, with and without a recovery first.
"""

from __future__ import annotations

import contextlib
import itertools

import pytest
from test_two_phase import POLICY, Plain, names, run

from hedgerow.errors import ObjectExists, ObjectNotFound
from hedgerow.objects import Environment, FileStore, MemoryStore
from hedgerow.objects.records import MemoryRecords
from hedgerow.objects.records_sqlite import SqliteRecords
from hedgerow.objects.twophase import TwoPhaseStore

PATH, DATA, OTHER = "log/7.entry", b"the bytes", b"somebody else's"
READS = ["get", "get_range", "list", "recover"]


class Crash(BaseException):
    """The process is gone: no ``except Exception`` sees this."""


class Mortal:
    """Both stores of a process that dies after a number of calls, each of which is carried out."""

    def __init__(self, calls_max):
        self._left = calls_max
        self.survived = True

    def wrap(self, inner):
        return _Mortal(inner, self)

    async def call(self, work, arguments, options):
        if self._left <= 0:
            self.survived = False
            raise Crash
        self._left -= 1
        return await work(*arguments, **options)


class _Mortal:
    def __init__(self, inner, mortal):
        self._inner, self._mortal = inner, mortal

    def __getattr__(self, name):
        work = getattr(self._inner, name)
        if name == "url":
            return work
        return lambda *arguments, **options: self._mortal.call(work, arguments, options)


class Ground:
    """Stores that outlive the processes."""

    def __init__(self, folder=None):
        self.plain = MemoryStore() if folder is None else FileStore(folder / "objects")
        self.records = MemoryRecords() if folder is None else SqliteRecords(folder / "records.db")

    def process(self):
        return TwoPhaseStore(Plain(self.plain), self.records, Environment(), POLICY)

    async def mortal(self, calls_max, act):
        """Let a process do something until it dies; whether it survived."""
        mortal = Mortal(calls_max)
        plain, records = mortal.wrap(Plain(self.plain)), mortal.wrap(self.records)
        with contextlib.suppress(Crash):
            await act(TwoPhaseStore(plain, records, Environment(), POLICY))
        return mortal.survived


async def until_survived(grounds, prepare, act, check):
    """Crash after no call, one call, two, ... until the operation gets through; the number of calls it takes."""
    for calls in itertools.count():
        ground = grounds()
        await prepare(ground)
        survived = await ground.mortal(calls, act)
        await check(ground)
        await ground.records.close()
        if survived:
            return calls
    raise AssertionError


def create(store):
    return store.create(PATH, DATA)


def delete(store):
    return store.delete([PATH])


async def read(store, how):
    """The object as one way of reading shows it, or None."""
    if how == "recover":
        await store.recover()
        how = "get"
    if how == "list":
        lines = await store.list("log/")
        assert [line.path for line in lines] in ([], [PATH])
        if lines:
            assert lines[0].size_bytes == len(DATA)
            return await store._plain.get(PATH)
        return None
    try:
        if how == "get":
            return await store.get(PATH)
        return await store.get_range(PATH, 0, 4) + await store.get_range(PATH, 4, 100)
    except ObjectNotFound:
        return None


@pytest.fixture(params=["memory", "files"])
def grounds(request, tmp_path):
    """New stores at each call."""
    if request.param == "memory":
        return Ground
    folders = (tmp_path / str(number) for number in itertools.count())

    def make():
        folder = next(folders)
        folder.mkdir()
        return Ground(folder)

    return make


async def empty(ground):
    return


async def created(ground):
    await create(ground.process())


@pytest.mark.parametrize("how", READS)
def test_a_create_that_crashes_is_there_whole_or_never(grounds, how):
    outcomes = []

    async def check(ground):
        inserted = await ground.records.get(PATH) is not None
        outcomes.append(inserted)
        found = await read(ground.process(), how)
        assert found == (DATA if inserted else None)
        if inserted:
            with pytest.raises(ObjectExists):
                await ground.process().create(PATH, OTHER)
        else:
            await ground.process().create(PATH, OTHER)
        for again in READS:
            store = ground.process()
            if again != "list" or inserted:
                assert await read(store, again) == (DATA if inserted else OTHER)
        assert await names(ground.process(), "log/") == [PATH]
        assert await ground.process().recover() == 0

    assert run(until_survived(grounds, empty, create, check)) == 6
    assert set(outcomes) == {False, True}


def test_a_recovery_of_a_create_that_crashes_is_finished_by_the_next():
    """Every crash of the create, and for each of them every crash of whoever finishes it."""

    async def scenario():
        calls = []
        for how, first in itertools.product(READS, range(6)):

            async def prepare(ground, first=first):
                assert not await ground.mortal(first, create)

            async def check(ground):
                inserted = await ground.records.get(PATH) is not None
                for again in READS:
                    assert await read(ground.process(), again) == (DATA if inserted else None)

            calls.append(await until_survived(Ground, prepare, lambda store, how=how: read(store, how), check))
        return calls

    assert max(run(scenario())) >= 7


def test_a_delete_that_crashes_leaves_the_object_whole_or_none(grounds):
    async def check(ground):
        before = await read(ground.process(), "get")
        assert before in (DATA, None)
        assert await names(ground.process()) == ([PATH] if before else [])
        began = (record := await ground.records.get(PATH)) is None or record.state != "committed"
        await ground.process().recover()
        for how in READS:
            assert await read(ground.process(), how) == (None if began else DATA)
        assert await ground.records.unfinished("") == []
        await ground.process().delete([PATH])
        assert await names(ground.plain) == []

    assert run(until_survived(grounds, created, delete, check)) == 5


def test_a_recovery_of_a_delete_that_crashes_is_finished_by_the_next():
    async def scenario():
        calls = []
        for first in range(2, 5):

            async def prepare(ground, first=first):
                await created(ground)
                assert not await ground.mortal(first, delete)

            async def check(ground):
                await ground.process().recover()
                for how in READS:
                    assert await read(ground.process(), how) is None
                assert await names(ground.plain) == []
                assert await ground.records.unfinished("") == []

            calls.append(await until_survived(Ground, prepare, lambda store: store.recover(), check))
        return calls

    assert max(run(scenario())) >= 5


def test_a_delete_of_a_create_that_crashed_crashes_and_is_finished():
    async def scenario():
        for first in range(6):

            async def prepare(ground, first=first):
                assert not await ground.mortal(first, create)

            async def check(ground):
                found = await read(ground.process(), "get")
                assert found in (DATA, None)
                assert (await read(ground.process(), "list")) == found
                await ground.process().delete([PATH])
                await ground.process().recover()
                for how in READS:
                    assert await read(ground.process(), how) is None
                assert PATH not in await names(ground.plain)

            await until_survived(Ground, prepare, delete, check)

    run(scenario())


def test_a_crash_among_many_deletes_loses_none_of_them():
    paths = [f"log/{number}.entry" for number in range(5)]

    async def prepare(ground):
        for path in paths[:3]:
            await ground.process().create(path, DATA)
        await ground.process().put(paths[3], DATA)

    async def check(ground):
        await ground.process().recover()
        left = await names(ground.process())
        assert set(left) <= set(paths)
        await ground.process().delete(paths)
        assert await names(ground.plain) == []
        assert await ground.process().recover() == 0

    assert run(until_survived(Ground, prepare, lambda store: store.delete(paths), check)) > 10


def test_nobody_ever_sees_the_bytes_of_a_create_that_never_got_its_record():
    async def scenario():
        for calls in range(3):
            ground = Ground()
            await ground.mortal(calls, create)
            for _ in range(2):
                await ground.process().create(PATH, OTHER)
                await ground.process().recover()
                assert await ground.process().get(PATH) == OTHER
                await ground.process().delete([PATH])
                for how in READS:
                    assert await read(ground.process(), how) is None

    run(scenario())
