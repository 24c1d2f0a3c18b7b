"""Two-phase writes among many simulated processes, while everything fails that can: requests to either store are lost,
carried out days later or refused, processes die and sleep. Every answer that anybody got must fit into one story.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter

import pytest
import test_log
from test_two_phase_interleavings import WatchedStore

from hedgerow.errors import ObjectExists, ObjectNotFound, StoreUnavailable
from hedgerow.objects import RetryPolicy
from hedgerow.objects.records import MemoryRecords
from hedgerow.objects.twophase import ORPHAN_AGE_MIN_MS, TwoPhaseStore
from hedgerow.testing import FaultPlan, World, simulate
from hedgerow.testing.linearizability import History, check_linearizable
from hedgerow.testing.records import SimulatedRecords

POLICY = RetryPolicy(give_up_after_s=20.0)


class TwoPhaseWorld(World):
    """A world whose store has no create-if-absent: processes get theirs from records."""

    def __init__(self, rng, plan=None, **options):
        super().__init__(rng, plan, **options)
        clock, self.objects = self.objects.now_ms, WatchedStore()
        self.objects.now_ms = clock
        self.records = MemoryRecords()

    def process(self, name, *, clock_skew_ms=0):
        process = super().process(name, clock_skew_ms=clock_skew_ms)
        process.plain, records = process.store, SimulatedRecords(process, self.records)
        process.store = TwoPhaseStore(process.plain, records, process.environment, POLICY)
        return process


def plan_of(seed):
    """Every other seed, hardly anything works."""
    plan = FaultPlan()
    if seed % 2:
        plan = FaultPlan(*(5 * getattr(plan, name) for name in FaultPlan.__struct_fields__))
    return plan


def now():
    return asyncio.get_running_loop().time()


class Client:
    """Does things with one of a few names, and notes what it was told."""

    def __init__(self, process, history, paths, weights):
        self.process, self._history, self._paths, self._weights = process, history, paths, weights
        self._count = 0

    async def work(self, operations):
        for _ in range(operations):
            rng = self.process.rng
            path = rng.choice(self._paths)
            act = rng.choices(list(self._weights), weights=list(self._weights.values()))[0]
            await getattr(self, act)(path)
            await asyncio.sleep(rng.uniform(0.0, 0.2))

    async def create(self, path):
        self._count += 1
        value = f"{self.process.name}.{self._count}".encode()
        await self._note("put", path, value, self.process.store.create(path, value))

    async def get(self, path):
        async def ask():
            try:
                return await self.process.store.get(path)
            except ObjectNotFound:
                return None

        await self._note("get", path, None, ask())

    async def list(self, path):
        """A listing is an answer about every name that it does not show."""
        invoked = now()
        with contextlib.suppress(StoreUnavailable):
            shown = {line.path for line in await self.process.store.list("")}
            assert shown <= set(self._paths), shown
            for other in set(self._paths) - shown:
                token = self._history.invoke(self.process.name, "get", other, None, at=invoked)
                self._history.complete(token, at=now(), outcome="ok", value=None)

    async def delete(self, path):
        await self._note("delete", path, None, self.process.store.delete([path]))

    async def recover(self, path):
        with contextlib.suppress(StoreUnavailable):
            await self.process.store.recover()

    async def collect(self, path):
        with contextlib.suppress(StoreUnavailable):
            orphans = await self.process.store.orphans("", ORPHAN_AGE_MIN_MS)
            await self.process.store.delete([line.path for line in orphans])

    async def _note(self, kind, path, value, call):
        token = self._history.invoke(self.process.name, kind, path, value, at=now())
        outcome, result = "ok", None
        try:
            result = await call
        except ObjectExists:
            outcome = "failed"
        except StoreUnavailable:
            outcome = "unknown"
        self._history.complete(token, at=now(), outcome=outcome, value=result)


async def racing_world(seed, *, clients, operations, paths, weights, plan=None):
    world = TwoPhaseWorld(random.Random(seed), plan or plan_of(seed))
    history = History()
    everybody = [Client(world.process(f"p{i}"), history, paths, weights) for i in range(clients)]
    tasks = []
    for client in everybody:
        dead = asyncio.get_running_loop().create_future()
        client.process.on_crash.append(lambda dead=dead: dead.done() or dead.set_result(None))
        tasks.append((asyncio.ensure_future(client.work(operations)), dead))
    for task, dead in tasks:
        await asyncio.wait({task, dead}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    await asyncio.sleep(1e6)  # whatever was to land late has landed
    last = Client(world.process("last"), history, paths, weights)
    last.process.faults_enabled = False
    await last.process.store.recover()
    for path in paths:
        await last.get(path)
    await last.list("")
    assert await world.records.unfinished("") == []
    return world, history


def judge(world, history):
    assert world.objects.overwritten == []
    violation = check_linearizable(history.operations)
    assert violation is None, str(violation)


def tally(history):
    return Counter(f"{operation.kind} {operation.outcome}" for operation in history.operations)


@pytest.mark.parametrize("block", range(4))
def test_of_many_creators_of_one_name_exactly_one_wins_whatever_fails(block):
    weights = {"create": 4, "get": 2, "list": 1, "recover": 1, "collect": 1}
    happened: Counter = Counter()
    for seed in range(block * 50, block * 50 + 50):
        world, history = simulate(
            lambda seed=seed: racing_world(seed, clients=6, operations=5, paths=["slot"], weights=weights)
        )
        judge(world, history)
        values = {operation.value for operation in history.operations if operation.kind == "get"} - {None}
        winners = {
            operation.value for operation in history.operations if operation.kind == "put" and operation.outcome == "ok"
        }
        assert len(values) <= 1, values
        assert winners <= values, (winners, values)
        happened.update(world.happened)
        happened["won"] += len(values)
    assert happened["won"] == 50
    assert {"lost_response", "lands_later", "server_error", "landed", "pause_before", "crash_after"} <= set(happened)


@pytest.mark.parametrize("block", range(6))
def test_creates_reads_deletes_and_recoveries_are_linearizable_whatever_fails(block):
    weights = {"create": 5, "get": 4, "list": 1, "delete": 3, "recover": 1, "collect": 1}
    seen: Counter = Counter()
    for seed in range(block * 50, block * 50 + 50):
        world, history = simulate(
            lambda seed=seed: racing_world(seed, clients=5, operations=14, paths=["a", "b", "c"], weights=weights)
        )
        judge(world, history)
        seen.update(tally(history))
        seen["names used again"] += sum(
            count > 1
            for count in Counter(
                operation.key
                for operation in history.operations
                if operation.kind == "put" and operation.outcome == "ok"
            ).values()
        )
    assert seen["names used again"] > 20, seen
    assert {"put ok", "put failed", "put unknown", "delete ok", "delete unknown", "get ok"} <= set(seen)


def test_the_simulation_replays_exactly():
    weights = {"create": 5, "get": 4, "list": 1, "delete": 3, "recover": 1, "collect": 1}
    digests = {
        simulate(lambda: racing_world(5, clients=4, operations=10, paths=["a", "b"], weights=weights))[0].digest
        for _ in range(2)
    }
    assert len(digests) == 1


# --- the numbered log on top ---------------------------------------------------------------------------------


@pytest.mark.parametrize("block", range(4))
def test_appends_to_a_log_on_two_phase_writes_are_linearizable_whatever_fails(block, monkeypatch):
    monkeypatch.setattr(test_log, "World", TwoPhaseWorld)
    happened: Counter = Counter()
    for seed in range(block * 25, block * 25 + 25):
        history, results, world = simulate(lambda seed=seed: test_log.appending_world(seed))
        test_log.judge(history, results)
        assert world.objects.overwritten == []
        happened.update(world.happened)
        happened["appended"] += len(history)
    assert happened["appended"] > 500
    assert {"lost_response", "lands_later", "server_error", "landed"} <= set(happened)


def test_a_log_collects_its_entries_and_their_records_too():
    """What is deleted without trouble leaves nothing behind: neither objects nor records."""

    async def scenario():
        world = TwoPhaseWorld(random.Random(1), FaultPlan.none())
        log_world = await _append(world)
        return (
            log_world,
            sorted(world.records._records),
            [line.path for line in world.objects.page("", "", None)],
        )

    numbers, records, objects = simulate(scenario)
    assert numbers == [9, 10]
    assert records == objects
    assert len(objects) == 2


async def _append(world):
    from hedgerow.objects import NumberedLog

    process = world.process("only")
    log = NumberedLog(process.store, "log", ".entry", process.environment)
    head = None
    for number in range(1, 11):
        head = await log.append(head, b"%d" % number, whole=True, floor=max(1, number - 1))
    await process.store.delete([log.path(number) for number in range(1, 9)])
    return await log.numbers()
