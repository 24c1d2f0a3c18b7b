"""A simulated object store shared by simulated processes, with everything that can go wrong on the way to it.

A ``World`` holds the objects. A ``Process`` is one client of it: it can crash (nothing it waits for ever comes; what it
has sent may still arrive), be paused and wake up days later, and have a clock that is wrong. Its ``store`` is an
``ObjectStore`` like any other, so production code cannot tell the difference.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from hedgerow.errors import ObjectExists, StoreUnavailable
from hedgerow.objects import MemoryStore, ObjectMeta
from hedgerow.testing.scheduler import SimulatedEnvironment

__all__ = ["FAULTS", "FaultPlan", "Process", "SimulatedStore", "World"]

T = TypeVar("T")


class FaultPlan(msgspec.Struct, frozen=True):
    """How often each thing goes wrong, per request.

    >>> FaultPlan.none().crash_before
    0
    """

    lost_response: float = 0.02
    """Carried out, but the client is told of a timeout."""
    lands_later: float = 0.01
    """The client is told of a timeout; the request is carried out much later."""
    server_error: float = 0.02
    """Not carried out, and the client is told so."""
    false_conflict: float = 0.01
    """Not carried out, and the client is told that the object exists."""
    own_conflict: float = 0.02
    """Carried out, and the client is told that the object exists, because a library retried."""
    crash_before: float = 0.003
    """The process dies before the request is carried out."""
    crash_after: float = 0.003
    """The process dies after the request is carried out, before it hears of it."""
    pause_before: float = 0.004
    """The process stops before the request is carried out, and wakes up much later."""
    pause_after: float = 0.004
    """The process stops after the request is carried out, and wakes up much later."""

    @classmethod
    def none(cls) -> FaultPlan:
        """Nothing goes wrong."""
        return cls(0, 0, 0, 0, 0, 0, 0, 0, 0)


FAULTS = FaultPlan.__struct_fields__
_ONLY_WRITES = {"lands_later", "own_conflict"}
_ONLY_CREATES = {"false_conflict", "own_conflict"}


class World:
    """The objects, and what happened to them."""

    def __init__(self, rng: random.Random, plan: FaultPlan | None = None, *, page_objects: int = 3) -> None:
        self.rng = rng
        self.plan = plan or FaultPlan()
        self.page_objects = page_objects
        self.objects = MemoryStore()
        self.objects.now_ms = lambda: 1_700_000_000_000 + int(asyncio.get_running_loop().time() * 1000)  # type: ignore[method-assign]
        self.happened: Counter[str] = Counter()
        self.requests = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self.trace: list[str] | None = None
        self._late: set[asyncio.Task[None]] = set()
        self.kept: list[object] = []
        """What a crashed or forgotten process holds: nothing of it is collected before the run is over."""

    def process(self, name: str, *, clock_skew_ms: int = 0) -> Process:
        """A new client process."""
        return Process(self, name, clock_skew_ms)

    def note(self, line: str) -> None:
        """Add to the trace: two runs of a seed must agree on every line."""
        self._digest.update(line.encode() + b"\n")
        if self.trace is not None:
            self.trace.append(f"{asyncio.get_running_loop().time():12.4f} {line}")

    @property
    def digest(self) -> str:
        """A hash of everything that happened so far."""
        return self._digest.hexdigest()

    def later(self, delay_s: float, effect: Callable[[], None]) -> None:
        """Carry out a request that was given up on long ago."""

        async def land() -> None:
            await asyncio.sleep(delay_s)
            effect()

        task = asyncio.get_running_loop().create_task(land())
        self._late.add(task)
        task.add_done_callback(self._late.discard)


class Process:
    """One simulated client process."""

    def __init__(self, world: World, name: str, clock_skew_ms: int = 0) -> None:
        self.world = world
        self.name = name
        self.rng = random.Random(world.rng.getrandbits(64))
        self.environment = SimulatedEnvironment(random.Random(world.rng.getrandbits(64)), clock_skew_ms=clock_skew_ms)
        self.store = SimulatedStore(self)
        self.crashed = False
        self.faults_enabled = True
        self.crash_at_step: int | None = None
        self.steps = 0
        self._awake_at_s = 0.0
        self.on_crash: list[Callable[[], None]] = []

    def crash(self) -> None:
        """Die at once: nothing this process waits for will ever come."""
        if not self.crashed:
            self.crashed = True
            self.world.note(f"{self.name} crashes")
            for callback in self.on_crash:
                callback()

    def pause(self, seconds: float) -> None:
        """Stop, as with SIGSTOP, for a while of virtual time."""
        self._awake_at_s = max(self._awake_at_s, asyncio.get_running_loop().time() + seconds)
        self.world.note(f"{self.name} pauses {seconds:.1f}")

    async def alive(self) -> None:
        """Wait while paused; never return once crashed."""
        while True:
            if self.crashed:
                never = asyncio.get_running_loop().create_future()
                self.world.kept.append(never)
                await never
            wait_s = self._awake_at_s - asyncio.get_running_loop().time()
            if wait_s <= 0:
                return
            await asyncio.sleep(wait_s)

    async def step(self) -> None:
        """One point at which an enumerated crash can happen."""
        self.steps += 1
        if self.crash_at_step is not None and self.steps == self.crash_at_step:
            self.crash()
        await self.alive()


class SimulatedStore:
    """The world's objects as one process reaches them."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world

    @property
    def url(self) -> str:
        """Where this is."""
        return "sim://world"

    async def create(self, path: str, data: bytes) -> None:
        """Store an object if there is none."""
        await self.request("create", path, lambda: _run(self._world.objects.create(path, data)))

    async def put(self, path: str, data: bytes) -> None:
        """Store an object, whatever was there."""
        await self.request("put", path, lambda: _run(self._world.objects.put(path, data)))

    async def get(self, path: str) -> bytes:
        """The whole object."""
        return await self.request("get", path, lambda: _run(self._world.objects.get(path)))

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        """Part of an object."""
        return await self.request("get", path, lambda: _run(self._world.objects.get_range(path, start, length)))

    async def list(self, prefix: str, *, after: str = "") -> Sequence[ObjectMeta]:
        """Every object under the prefix, page by page: each page is its own moment."""
        lines: list[ObjectMeta] = []
        while True:
            start = lines[-1].path if lines else after
            page = await self.request(
                "list",
                prefix,
                lambda start=start: self._world.objects.page(prefix, start, self._world.page_objects),  # type: ignore[misc]
            )
            lines.extend(page)
            if len(page) < self._world.page_objects:
                return lines

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, one request each, so that a crash can fall between them."""
        for path in paths:
            await self.request("delete", path, lambda path=path: _run(self._world.objects.delete([path])))  # type: ignore[misc]

    async def copy(self, source: str, destination: str) -> None:
        """Copy an object."""
        await self.request("copy", destination, lambda: _run(self._world.objects.copy(source, destination)))

    async def close(self) -> None:
        """Nothing to release."""

    async def request(self, verb: str, path: str, effect: Callable[[], T]) -> T:
        """Send something and hear of it, or not: whatever can go wrong goes wrong here."""
        process, world = self._process, self._world
        await process.step()
        fault = self._fault(verb)
        world.requests += 1
        if fault == "crash_before":
            process.crash()
            if process.rng.random() < 0.3:  # already on the wire
                world.later(process.rng.uniform(0.0, 300.0), lambda: self._apply_late(verb, path, effect))
        elif fault == "pause_before":
            process.pause(_long(process.rng))
        await process.alive()
        await asyncio.sleep(process.rng.uniform(0.001, 0.03))
        if fault == "server_error":
            raise StoreUnavailable(f"sim: 503 on {verb} {path}")
        if fault == "false_conflict":
            raise ObjectExists(f"sim: 409 on {verb} {path}")
        if fault == "lands_later":
            world.later(_long(process.rng), lambda: self._apply_late(verb, path, effect))
            await asyncio.sleep(process.rng.uniform(1.0, 30.0))
            await process.alive()
            raise StoreUnavailable(f"sim: timeout on {verb} {path}")
        result = self._apply(verb, path, effect)
        if fault == "crash_after":
            process.crash()
        elif fault == "pause_after":
            process.pause(_long(process.rng))
        await asyncio.sleep(process.rng.uniform(0.001, 0.03))
        await process.step()
        if fault == "lost_response":
            raise StoreUnavailable(f"sim: timeout on {verb} {path}")
        if fault == "own_conflict":
            raise ObjectExists(f"sim: exists on {verb} {path}, after a retry by the client library")
        if isinstance(result, Exception):
            raise result
        return result

    def _apply(self, verb: str, path: str, effect: Callable[[], T]) -> T | Exception:
        try:
            result: T | Exception = effect()
            outcome = "ok"
        except Exception as error:
            result, outcome = error, type(error).__name__
        self._world.note(f"{self._process.name} {verb} {path} {outcome}")
        return result

    def _apply_late(self, verb: str, path: str, effect: Callable[[], T]) -> None:
        self._world.happened["landed"] += 1
        self._apply(f"late {verb}", path, effect)

    def _fault(self, verb: str) -> str | None:
        if not self._process.faults_enabled:
            return None
        roll = self._process.rng.random()
        for name in FAULTS:
            chance = getattr(self._world.plan, name)
            if roll < chance:
                if name in _ONLY_WRITES and verb in ("get", "list"):
                    return None
                if name in _ONLY_CREATES and verb != "create":
                    return None
                self._world.happened[name] += 1
                return name
            roll -= chance
        return None


def _run(coroutine: object) -> T:  # type: ignore[type-var]
    """The result of one of the memory store's coroutines, which never wait."""
    try:
        coroutine.send(None)  # type: ignore[attr-defined]
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("the memory store waited")


def _long(rng: random.Random) -> float:
    """Seconds of a long wait: long enough for others to take over, sometimes days."""
    return rng.choice((rng.uniform(0.2, 5), rng.uniform(1, 30), rng.uniform(30, 4_000), rng.uniform(4_000, 400_000)))
