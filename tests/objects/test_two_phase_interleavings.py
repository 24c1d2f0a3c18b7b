"""Two-phase writes, step by step in every order: what somebody who is late can do to what others wrote.

Each call that a process makes to the plain store or the record store is one step, and a scheduler decides whose step
is next. All schedules with a few switches away from a process that could have gone on are run: enough for "it slept
here, everything else happened, then it woke up", at every step of every process.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque

import pytest
from test_two_phase import POLICY, Failing, Plain

from hedgerow.errors import ObjectExists, ObjectNotFound, StoreUnavailable
from hedgerow.objects import Environment, MemoryStore
from hedgerow.objects.records import MemoryRecords
from hedgerow.objects.twophase import TwoPhaseStore
from hedgerow.testing import simulate
from hedgerow.testing.linearizability import History, check_linearizable

PATH = "log/7"


class Crash(BaseException):
    """The process is gone: no ``except Exception`` sees this."""


class WatchedStore(MemoryStore):
    """Notes whenever the bytes of an object are replaced by others."""

    def __init__(self):
        super().__init__()
        self.overwritten = []

    async def put(self, path, data):
        if path in self._objects and self._objects[path][0] != data:
            self.overwritten.append((path, self._objects[path][0], data))
        await super().put(path, data)


class Steps:
    """A store of either kind, each call of which waits for ``step()``."""

    def __init__(self, inner, step):
        self._inner, self._step = inner, step

    def __getattr__(self, name):
        call = getattr(self._inner, name)
        if name in ("url", "close"):
            return call

        async def stepping(*arguments, **options):
            await self._step()
            return await call(*arguments, **options)

        return stepping


class Schedule:
    """One run: who took each step, and who else could have."""

    def __init__(self, choices):
        self._choices = choices
        self._waiting = {}
        self.taken = []

    async def run(self, bodies):
        self._waiting = {name: deque() for name in bodies}
        tasks = {name: asyncio.ensure_future(body(lambda n=name: self._turn(n))) for name, body in bodies.items()}
        current = None
        while True:
            while any(not task.done() and not self._waiting[name] for name, task in tasks.items()):
                await asyncio.sleep(0)
            ready = [name for name in tasks if self._waiting[name]]
            if not ready:
                break
            usual = current if current in ready else ready[0]
            chosen = self._choices[len(self.taken)] if len(self.taken) < len(self._choices) else usual
            self.taken.append((chosen, ready, current in ready and chosen != current))
            self._waiting[chosen].popleft().set_result(None)
            await asyncio.sleep(0)
            current = chosen
        for task in tasks.values():
            task.result()

    def _turn(self, name):
        future = asyncio.get_running_loop().create_future()
        self._waiting[name].append(future)
        return future


def explore(scenario, switches_max):
    """Run every schedule with at most that many switches; how many there were."""
    todo, count = [[]], 0
    while todo:
        choices = todo.pop()
        schedule = Schedule(choices)
        try:
            simulate(lambda schedule=schedule: scenario(schedule))
        except AssertionError as error:
            raise AssertionError(f"{error}\nschedule: {[name for name, _, _ in schedule.taken]}") from None
        count += 1
        names = [name for name, _, _ in schedule.taken]
        switches = 0
        for position, (chosen, ready, switched) in enumerate(schedule.taken):
            before = schedule.taken[position - 1][0] if position else None
            if position >= len(choices):
                for other in ready:
                    cost = before in ready and other != before
                    if other != chosen and switches + cost <= switches_max:
                        todo.append([*names[:position], other])
            switches += switched
    return count


class Table:
    """The stores, what clients saw, and the judgement at the end."""

    def __init__(self):
        self.plain, self.records, self.history = WatchedStore(), MemoryRecords(), History()
        self._clock = itertools.count()

    def client(self, name, step=None):
        return Client(self, name, step)

    async def judge(self):
        """Afterwards: recovered, and one story that explains every answer."""
        last = self.client("last")
        await last.store.recover()
        found = await last.get()
        assert await last.list() == (found is not None), "a get and a listing disagree"
        assert await self.records.unfinished("") == []
        assert self.plain.overwritten == []
        operations = self.history.operations
        winners = [operation for operation in operations if operation.kind == "put" and operation.outcome == "ok"]
        assert len(winners) <= 1 + sum(operation.kind == "delete" for operation in operations), winners
        violation = check_linearizable(operations)
        assert violation is None, str(violation)

    def now(self):
        return next(self._clock)


class Client:
    def __init__(self, table, name, step=None):
        self._table, self._name = table, name
        plain, records = Plain(table.plain), table.records
        if step is not None:
            plain, records = Steps(plain, step), Steps(records, step)
        self.store = TwoPhaseStore(plain, records, Environment(), POLICY)

    async def create(self, value):
        return await self._note("put", value, self.store.create(PATH, value))

    async def delete(self):
        return await self._note("delete", None, self.store.delete([PATH]))

    async def get(self):
        async def ask():
            try:
                return await self.store.get(PATH)
            except ObjectNotFound:
                return None

        return await self._note("get", None, ask())

    async def list(self):
        """Whether a listing shows the object; as an answer about the key it counts where it says no."""
        history, token = self._table.history, None
        at = self._table.now()
        shown = bool(await self.store.list("log/"))
        if not shown:
            token = history.invoke(self._name, "get", PATH, None, at=at)
            history.complete(token, at=self._table.now(), outcome="ok", value=None)
        return shown

    async def _note(self, kind, value, call):
        history = self._table.history
        token = history.invoke(self._name, kind, PATH, value, at=self._table.now())
        outcome, result = "ok", None
        try:
            result = await call
        except ObjectExists:
            outcome = "failed"
        except StoreUnavailable:
            outcome = "unknown"
        history.complete(token, at=self._table.now(), outcome=outcome, value=result)
        return result


def crash_after(calls):
    """A step that lets so many calls pass and then ends the process, for good."""
    left = itertools.count(calls, -1)

    async def step():
        if next(left) <= 0:
            raise Crash

    return step


async def crashed(table, calls, act):
    """Somebody's operation that got as far as so many calls."""
    try:
        await act(table.client("crashed", crash_after(calls)))
    except Crash:
        return
    raise AssertionError("that operation has fewer calls")


async def left_pending(table):
    """Created, and answered, when no copy could be made."""
    founder = table.client("founder")
    founder.store._plain = Failing(founder.store._plain, "copy", StoreUnavailable("sim: 503"))
    await founder.create(b"first")


async def left_committed_with_its_source(table):
    founder = table.client("founder")
    founder.store._plain = Failing(founder.store._plain, "delete", StoreUnavailable("sim: 503"))
    await founder.create(b"first")


async def created(table):
    await table.client("founder").create(b"first")


async def left_deleting(table):
    await created(table)
    await crashed(table, 2, lambda client: client.delete())  # looked up, marked


async def nothing(table):
    return


def body(table, name, *acts):
    async def run(step):
        client = table.client(name, step)
        for act in acts:
            await act(client)

    return run


def create(value):
    return lambda client: client.create(value)


def get(client):
    return client.get()


def listing(client):
    return client.list()


def delete(client):
    return client.delete()


def recover(client):
    return client.store.recover()


async def recover_but_die_after_the_commit(client):
    """Leaves a committed record and its source behind."""
    inner = client._table.client("dying", client.store._plain._step)
    inner.store._plain = Steps(inner.store._plain, dying := crash_after(4))
    inner.store._records = Steps(inner.store._records, dying)
    try:
        await inner.store.recover()
    except Crash:
        return


async def collect_temporaries(client):
    """A collector that asks nobody."""
    lines = await client.store._plain.list("")
    await client.store._plain.delete([line.path for line in lines if line.path != PATH])


SCENARIOS = {
    "creators and a reader": (nothing, 2, [[create(b"a"), get], [create(b"b"), get], [get, get]]),
    "creators and a lister": (nothing, 2, [[create(b"a")], [create(b"b"), listing], [listing]]),
    "creators of the same bytes": (nothing, 3, [[create(b"a")], [create(b"a")]]),
    "a late recovery": (left_pending, 2, [[recover], [get, delete, create(b"second"), get, get]]),
    "a late recovery, and a source that was left": (
        left_pending,
        3,
        [[recover], [recover_but_die_after_the_commit, delete, get]],
    ),
    "recoveries": (left_pending, 2, [[recover], [recover], [get, listing]]),
    "a get while others recover and delete": (left_pending, 3, [[get], [recover, delete]]),
    "a listing while others recover and delete": (left_pending, 3, [[listing], [recover, delete, get]]),
    "a delete of what is not copied yet": (left_pending, 3, [[delete], [recover], [get, get]]),
    "a create that is deleted at once": (nothing, 3, [[create(b"a")], [delete, get]]),
    "a late delete": (created, 3, [[delete], [delete, create(b"second"), get]]),
    "a recovery that is late with a delete": (created, 3, [[recover], [delete, create(b"second"), get, get]]),
    "late recoveries of a delete": (
        left_deleting,
        2,
        [[recover], [recover], [create(b"second"), get, delete, create(b"third"), get]],
    ),
    "a reader of what is being deleted": (
        left_committed_with_its_source,
        3,
        [[get, listing, get], [delete, create(b"second")]],
    ),
    "an over-eager collector": (nothing, 3, [[create(b"a"), get], [collect_temporaries], [get]]),
    "an over-eager collector, and a second creator": (
        nothing,
        3,
        [[create(b"a")], [collect_temporaries, get, create(b"second"), get, get]],
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_whoever_is_late_changes_nothing(name):
    before, switches_max, processes = SCENARIOS[name]

    async def scenario(schedule):
        table = Table()
        await before(table)
        await schedule.run({f"p{i}": body(table, f"p{i}", *acts) for i, acts in enumerate(processes)})
        await table.judge()

    assert explore(scenario, switches_max) > 20
