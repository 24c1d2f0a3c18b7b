"""A whole table in a simulated world: writers that take over from one another, readers, compactors and collectors, each
in a process that may crash, stall or lose its answers; and a judge of what they saw.

One seed is one run. The same seed is the same run, to the last request. The code under test is the production code: its
coroutines cannot tell this world from the real one.

What is checked: every acknowledged put and delete, every read after a refresh and every read of a writer that proves to
have been the owner is part of one linearizable history per key; what was reported as not stored is never seen; rows that
were written together are seen together; nothing is ever corrupt; and when all is quiet, a new owner finds it all.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pyarrow as pa

from hedgerow.engine.collector import Collector
from hedgerow.engine.compactor import Compactor
from hedgerow.errors import (
    BufferFull,
    Closed,
    Conflict,
    Fenced,
    HedgerowError,
    OutcomeUnknown,
    ReadExpired,
    StoreUnavailable,
)
from hedgerow.objects import ObjectStore, RetryPolicy
from hedgerow.objects.records import MemoryRecords
from hedgerow.objects.twophase import TwoPhaseStore
from hedgerow.table.aio import AsyncTable, AsyncWriter
from hedgerow.table.core import create_table, open_table
from hedgerow.testing.faults import FaultPlan, Process, World
from hedgerow.testing.linearizability import History, Violation, check_linearizable
from hedgerow.testing.records import SimulatedRecords
from hedgerow.testing.scheduler import simulate

__all__ = ["Outcome", "Plan", "run_seed"]

_EXPECTED = (Fenced, OutcomeUnknown, StoreUnavailable, Conflict, Closed, ReadExpired, BufferFull)
_COLUMNS = pa.schema([("id", pa.int64()), ("value", pa.int64())])


class Plan(msgspec.Struct, frozen=True):
    """The shape of a run.

    >>> Plan().operations
    200
    """

    operations: int = 200
    partitions: int = 2
    keys: int = 8
    writers: int = 2
    readers: int = 1
    compactors: int = 1
    collectors: int = 1
    faults: FaultPlan = FaultPlan()
    two_phase: bool = False
    """On a store without create-if-absent, with records in a transactional store that fails like the rest."""


class Outcome(msgspec.Struct, frozen=True):
    """What a run came to."""

    seed: int
    operations: int
    acknowledged: int
    fenced: int
    reads: int
    takeovers: int
    happened: dict[str, int]
    digest: str
    violation: str | None


def run_seed(seed: int, plan: Plan | None = None, *, trace: list[str] | None = None) -> Outcome:
    """Run one seed to its end and judge it.

    >>> run_seed(1, Plan(operations=20)).violation is None
    True
    """
    return simulate(lambda: _Simulation(seed, plan or Plan(), trace).run())


class _Simulation:
    def __init__(self, seed: int, plan: Plan, trace: list[str] | None) -> None:
        self.seed = seed
        self.plan = plan
        self.rng = random.Random(seed)
        self.world = World(self.rng, plan.faults, page_objects=self.rng.choice((2, 3, 5, 100)))
        self.world.trace = trace
        self.history = History()
        self.policy = RetryPolicy(give_up_after_s=20.0)
        self.left = plan.operations
        self.next_value = 0
        self.counts: Counter[str] = Counter()
        self.problem: str | None = None
        self.finished = asyncio.Event()
        self.records = MemoryRecords()

    def _noticed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A task that died of something unexpected, and that nobody asked."""
        error = context.get("exception")
        if error is not None and not isinstance(error, HedgerowError):
            self._fail(f"a task died: {type(error).__name__}: {error}")

    async def run(self) -> Outcome:
        asyncio.get_running_loop().set_exception_handler(self._noticed)
        founder = self._quiet("founder")
        await create_table(
            self._store(founder), schema=_COLUMNS, key="id", partitions=self.plan.partitions, options=None, cache_bytes=1 << 20,
            environment=founder.environment, policy=self.policy,
        )  # fmt: skip
        roles: list[tuple[str, Callable[[Process], Awaitable[None]]]] = []
        roles += [(f"writer{i}", self._write) for i in range(self.plan.writers)]
        roles += [(f"reader{i}", self._read) for i in range(self.plan.readers)]
        roles += [(f"compactor{i}", self._compact) for i in range(self.plan.compactors)]
        roles += [(f"collector{i}", self._collect) for i in range(self.plan.collectors)]
        tasks = [asyncio.ensure_future(self._keep_running(name, role)) for name, role in roles]
        await self.finished.wait()
        if self.problem is None:
            await asyncio.gather(*tasks)  # who sleeps now wakes up when all is over, and goes on
        if self.problem is None:
            await asyncio.sleep(1e6)  # whatever was on its way has arrived
            await self._look_at_the_end()
        violation = self.problem or _text(check_linearizable(self.history.operations))
        return Outcome(
            seed=self.seed,
            operations=self.plan.operations - max(self.left, 0),
            acknowledged=self.counts["acknowledged"],
            fenced=self.counts["fenced"],
            reads=self.counts["reads"],
            takeovers=self.counts["takeovers"],
            happened=dict(self.world.happened),
            digest=self.world.digest,
            violation=violation,
        )

    # --- processes ------------------------------------------------------------------------------------------

    def _quiet(self, name: str) -> Process:
        process = self.world.process(name)
        process.faults_enabled = False
        return process

    def _store(self, process: Process) -> ObjectStore:
        if not self.plan.two_phase:
            return process.store
        records = SimulatedRecords(process, self.records)
        return TwoPhaseStore(process.store, records, process.environment, self.policy)

    async def _keep_running(self, name: str, role: Callable[[Process], Awaitable[None]]) -> None:
        """Start a process; when it ends or dies, start the next."""
        generation = 0
        while not self.finished.is_set():
            skew_ms = self.rng.choice((0, 0, -3_600_000, 3_600_000))
            process = self.world.process(f"{name}.{generation}", clock_skew_ms=skew_ms)
            generation += 1
            died = asyncio.get_running_loop().create_future()
            process.on_crash.append(lambda died=died: died.done() or died.set_result(None))  # type: ignore[misc]
            task = asyncio.ensure_future(role(process))
            task.add_done_callback(
                lambda ended: ended.cancelled() or ended.exception()
            )  # of a dead process: nobody asks
            await asyncio.wait([task, died], return_when=asyncio.FIRST_COMPLETED)
            error = task.exception() if task.done() and not task.cancelled() else None
            if error is not None and not isinstance(error, _EXPECTED):
                self._fail(f"{process.name}: {type(error).__name__}: {error}")
                return
            await asyncio.sleep(self.rng.uniform(0, 5))

    def _fail(self, problem: str) -> None:
        self.problem = self.problem or problem
        self.finished.set()

    def _operation(self) -> bool:
        """Take one of the run's operations; False when there are none left."""
        self.left -= 1
        if self.left <= 0:
            self.finished.set()
        return self.left > 0

    async def _open(self, process: Process) -> AsyncTable:
        core = await open_table(
            self._store(process), options=None, cache_bytes=process.rng.choice((0, 1 << 20)),
            environment=process.environment, policy=self.policy,
        )  # fmt: skip
        return AsyncTable(core)

    # --- roles ----------------------------------------------------------------------------------------------

    async def _write(self, process: Process) -> None:
        table = await self._open(process)
        rng = process.rng
        settings = {
            "max_parallel_writes": rng.choice((1, 2, 3)),
            "flush_interval_s": rng.choice((0.0, 0.05, 0.2)),
            "flush_bytes": 1 << 20,
        }
        writer = await table.writer(name=process.name, **settings).start()
        self.counts["takeovers"] += 1
        session = _Session(self, process, table, writer)
        self.world.kept.append(session)
        stays = rng.randrange(5, 60)
        try:
            for _ in range(stays):
                if not self._operation():
                    return
                await session.act()
                await asyncio.sleep(rng.choice((0.0, rng.uniform(0, 0.2), rng.uniform(0, 2), rng.uniform(0, 10))))
            if rng.random() < 0.7:
                await session.close(flush=rng.random() < 0.9)
        finally:
            session.over = True

    async def _read(self, process: Process) -> None:
        table = await self._open(process)
        rng = process.rng
        for _ in range(rng.randrange(3, 30)):
            started = _now()
            await table.refresh()
            if rng.random() < 0.25:
                await self._read_everything(process, table, started)
            for _ in range(rng.randrange(1, 4)):
                if not self._operation():
                    return
                key = rng.randrange(self.plan.keys)
                row = await table.get(key)
                await process.alive()
                self._saw(process, key, row and row["value"], started)
            await asyncio.sleep(rng.uniform(0, 1))

    async def _read_everything(self, process: Process, table: AsyncTable, started: float) -> None:
        rows: dict[int, int] = {}
        async for batch in table.scan():
            for row in batch.to_pylist():
                if rows and row["id"] <= max(rows):
                    self._fail(f"{process.name}: a scan is not in key order")
                rows[row["id"]] = row["value"]
        await process.alive()
        for key in range(self.plan.keys):
            self._saw(process, key, rows.get(key), started)
        first, second = self._pair(table)
        self._saw(process, first, rows.get(first), started)
        if rows.get(first) != rows.get(second):
            self._fail(f"{process.name}: rows written together are not seen together: {rows}")

    async def _compact(self, process: Process) -> None:
        table = await self._open(process)
        core = table._core
        compactor = Compactor(core.manifests, core.wal, process.name)
        await compactor.start()
        for _ in range(process.rng.randrange(1, 15)):
            await asyncio.sleep(process.rng.uniform(0.2, 4))
            await compactor.flush_wal()

    async def _collect(self, process: Process) -> None:
        table = await self._open(process)
        keep = process.rng.choice((0, 1, 5))
        for _ in range(process.rng.randrange(1, 10)):
            await asyncio.sleep(process.rng.uniform(0.5, 6))
            await Collector(
                table._core.manifests, keep_entries=keep, staging_entries=process.rng.choice((0, 10))
            ).collect()

    # --- the record -----------------------------------------------------------------------------------------

    def _saw(self, process: Process, key: int, value: int | None, started: float) -> None:
        self.counts["reads"] += 1
        token = self.history.invoke(process.name, "get", key, None, started)
        self.history.complete(token, _now(), "ok", value)

    def _pair(self, table: AsyncTable) -> tuple[int, int]:
        """Two keys of one partition that are only ever written together."""
        first = 1_000
        home = table._core.schema.locate(first)[0]
        second = next(key for key in range(1_001, 2_000) if table._core.schema.locate(key)[0] == home)
        return first, second

    async def _look_at_the_end(self) -> None:
        """A new owner and a new reader, when nothing fails any more."""
        try:
            process = self._quiet("last")
            table = await self._open(process)
            started = _now()
            await table.refresh()
            await self._read_everything(process, table, started)
            writer = await table.writer(name="last").start()
            for key in range(self.plan.keys):
                started = _now()
                row = await writer.get(key)
                self._saw(process, key, row and row["value"], started)
            await writer.close()
            started = _now()
            await table.refresh()
            await self._read_everything(process, table, started)
        except HedgerowError as error:
            self._fail(f"at the end: {type(error).__name__}: {error}")


class _Session:
    """One writer's doings, and what it may claim of them."""

    def __init__(self, simulation: _Simulation, process: Process, table: AsyncTable, writer: AsyncWriter) -> None:
        self.simulation = simulation
        self.process = process
        self.table = table
        self.writer = writer
        self.over = False
        self.open_keys: Counter[int] = Counter()
        self.untold: list[Any] = []
        self.unproven: dict[int, list[tuple[int, int | None, float, float]]] = {}

    async def act(self) -> None:
        rng = self.process.rng
        roll = rng.random()
        key = rng.randrange(self.simulation.plan.keys)
        if roll < 0.5:
            await self._put(key)
        elif roll < 0.62:
            await self._delete(key)
        elif roll < 0.85:
            await self._get(key)
        elif roll < 0.93:
            await self._pair()
        else:
            await self._told(self.writer.flush())

    async def _put(self, key: int) -> None:
        simulation = self.simulation
        simulation.next_value += 1
        value = simulation.next_value
        token = simulation.history.invoke(self.process.name, "put", key, value, _now())
        self._watch(await self._sent(token, self.writer.put({"id": key, "value": value})), token, key)

    async def _delete(self, key: int) -> None:
        token = self.simulation.history.invoke(self.process.name, "delete", key, None, _now())
        self._watch(await self._sent(token, self.writer.delete(key)), token, key)

    async def _sent(self, token: Any, sending: Awaitable[asyncio.Future[None]]) -> asyncio.Future[None]:
        """A put that is refused at once is known not to be stored."""
        try:
            return await sending
        except HedgerowError as error:
            if not error.maybe_stored:
                self.simulation.history.complete(token, _now(), "failed")
            raise

    def _watch(self, done: asyncio.Future[None], token: Any, key: int) -> None:
        self.open_keys[key] += 1
        index = self.table._core.schema.locate(key)[0]
        sent = _now()

        def finished(future: asyncio.Future[None]) -> None:
            if self.process.crashed or future.cancelled():
                return
            self.open_keys[key] -= 1
            error = future.exception()
            if error is None:
                self.simulation.counts["acknowledged"] += 1
                self.simulation.history.complete(token, _now(), "ok")
                self._prove(index, sent)
            elif isinstance(error, HedgerowError) and not error.maybe_stored:
                self.simulation.counts["fenced"] += isinstance(error, Fenced)
                self.simulation.history.complete(token, _now(), "failed")
            if error is not None and not isinstance(error, _EXPECTED):
                self.simulation._fail(f"{self.process.name}: {type(error).__name__}: {error}")

        done.add_done_callback(finished)

    async def _get(self, key: int) -> None:
        started = _now()
        if self.open_keys[key]:
            return  # it would see its own write, of which nobody knows yet
        row = await self.writer.get(key)
        await self.process.alive()
        if not self.open_keys[key]:
            index = self.table._core.schema.locate(key)[0]
            self.unproven.setdefault(index, []).append((key, row and row["value"], started, _now()))

    def _prove(self, index: int, sent: float) -> None:
        """A row sent after a read was acknowledged: nobody else had begun to write by then, so the read counts."""
        keep = []
        for key, value, started, ended in self.unproven.get(index, []):
            if ended <= sent:
                self.simulation.counts["reads"] += 1
                token = self.simulation.history.invoke(self.process.name, "get", key, None, started)
                self.simulation.history.complete(token, ended, "ok", value)
            else:
                keep.append((key, value, started, ended))
        self.unproven[index] = keep

    async def _pair(self) -> None:
        simulation = self.simulation
        simulation.next_value += 1
        first, second = simulation._pair(self.table)
        value = simulation.next_value
        token = simulation.history.invoke(self.process.name, "put", first, value, _now())
        self.untold.append(token)
        with contextlib.suppress(*_EXPECTED):
            await self.writer.write(pa.table({"id": [first, second], "value": [value, value]}, schema=_COLUMNS))

    async def close(self, *, flush: bool) -> None:
        if flush:
            await self._told(self.writer.close())
        else:
            await self.writer.close(flush=False)

    async def _told(self, flushing: Awaitable[None]) -> None:
        """Rows without a future of their own: what flush says is all that is known of them."""
        tokens, self.untold = self.untold, []
        try:
            await flushing
        except HedgerowError as error:
            await self.process.alive()
            if not error.maybe_stored:
                for token in tokens:
                    self.simulation.history.complete(token, _now(), "failed")
            raise
        await self.process.alive()
        for token in tokens:
            self.simulation.history.complete(token, _now(), "ok")


def _now() -> float:
    return asyncio.get_running_loop().time()


def _text(violation: Violation | None) -> str | None:
    return None if violation is None else str(violation)
