"""Interaction scripts: races between writers, written down step by step and replayed against the real engine.

A script is text. Every line is one step, and every step says what must come of it::

    parallel 1
    writer 1 opens at epoch 1
    slot 1  writer 1  fence  created
    slot 2  writer 1  a=1    created
    acknowledged a=1
    writer 2 opens at epoch 2
    slot 3  writer 2  fence  created
    slot 3  writer 1  b=1    taken by epoch 2
    refused b=1
    reader a=1

A ``slot`` line lets exactly one create of that writer reach the store. All others wait until the script names them, so
the order of the lines is the order in which the store sees them. Rows that a ``slot`` line names are put at that
moment; ``writer 1 puts b=1`` puts them earlier, so that several can be in flight. Text after ``#`` is a comment.

=====================================  ==========================================================================
``parallel K``                         writers opened from here on may have K slots in flight
``writer N opens at epoch E``          starts acquiring; its manifest entry is created, its fences wait for their lines
``writer N puts k=v ...``              adds rows to its buffer, and has them sent
``slot S writer N fence|k=v OUTCOME``  one create reaches the store: ``created``, or ``taken by epoch E``
``writer N owns``                      its fences stand
``writer N is fenced by epoch E``      it was told so, when acquiring or when writing
``acknowledged k=v ...``               the futures of these rows are done
``refused k=v ...``                    they failed, and the rows are known not to be stored
``uncertain k=v ...``                  they failed, and the rows may be stored or not
``waiting k=v ...``                    they are not decided
``compacted through S``                a compactor moves the WAL into a sorted run, up to this slot
``collected S ...``                    a collector whose clock is years ahead deletes exactly these WAL slots
``reader k=v ...``                     a fresh reader sees exactly these rows
=====================================  ==========================================================================
"""

from __future__ import annotations

import asyncio
import random
import re
from typing import Any

from hedgerow.engine.collector import Collector
from hedgerow.engine.compactor import Compactor
from hedgerow.engine.layout import parse_wal
from hedgerow.errors import Fenced, HedgerowError, ObjectExists
from hedgerow.objects import ObjectStore, RetryPolicy
from hedgerow.sst import read_meta
from hedgerow.table.aio import AsyncTable, AsyncWriter
from hedgerow.table.core import TableCore, create_table, open_table
from hedgerow.testing.faults import FaultPlan, Process, World
from hedgerow.testing.scheduler import simulate

__all__ = ["ScriptError", "run_script"]


class ScriptError(AssertionError):
    """A step did not come out as the script says."""


def run_script(text: str) -> int:
    """Replay a script; the number of steps. ``ScriptError`` names the line that did not hold.

    >>> run_script('''
    ... writer 1 opens at epoch 1
    ... slot 1  writer 1  fence  created
    ... slot 2  writer 1  a=1    created
    ... acknowledged a=1
    ... ''')
    4
    """
    return simulate(lambda: _Player().play(text))


class _Gate:
    """A process's store, whose creates of WAL slots wait to be let through one by one."""

    def __init__(self, process: Process) -> None:
        self._store: ObjectStore = process.store
        self.waiting: dict[int, asyncio.Future[None]] = {}
        self.outcomes: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, path: str, data: bytes) -> None:
        parsed = parse_wal(path)
        if parsed is None:
            await self._store.create(path, data)
            return
        slot = parsed[1]
        turn = self.waiting[slot] = asyncio.get_running_loop().create_future()
        await turn
        try:
            await self._store.create(path, data)
            self.outcomes[slot] = "created"
        except ObjectExists:
            self.outcomes[slot] = f"taken by epoch {read_meta(await self._store.get(path), path).epoch}"
            raise


class _Player:
    def __init__(self) -> None:
        self.world = World(random.Random(1), FaultPlan.none())
        self.parallel = 1
        self.gates: dict[str, _Gate] = {}
        self.writers: dict[str, AsyncWriter] = {}
        self.opening: dict[str, asyncio.Task[None]] = {}
        self.futures: dict[str, asyncio.Future[None]] = {}
        self.put_by: dict[str, str] = {}

    async def play(self, text: str) -> int:
        process = self.world.process("founder")
        await create_table(
            process.store,
            schema=None,
            key=None,
            partitions=1,
            options=None,
            cache_bytes=0,
            environment=process.environment,
        )
        steps = 0
        for number, raw in enumerate(text.splitlines(), 1):
            line = " ".join(raw.split("#")[0].split())
            if not line:
                continue
            try:
                await self._step(line)
            except ScriptError as error:
                raise ScriptError(f"line {number}: {line}: {error}") from None
            steps += 1
        return steps

    async def _step(self, line: str) -> None:
        for pattern, step in (
            (r"parallel (\d+)", self._parallel),
            (r"writer (\w+) opens at epoch (\d+)", self._opens),
            (r"writer (\w+) puts (.+)", self._puts),
            (r"slot (\d+) writer (\w+) (\S+) (created|taken by epoch \d+)", self._slot),
            (r"writer (\w+) owns", self._owns),
            (r"writer (\w+) is fenced by epoch (\d+)", self._is_fenced),
            (r"(acknowledged|refused|uncertain|waiting) (.+)", self._fates),
            (r"compacted through (\d+)", self._compacted),
            (r"collected (.+)", self._collected),
            (r"reader(.*)", self._reader),
        ):
            match = re.fullmatch(pattern, line)
            if match:
                await step(*match.groups())
                return
        raise ScriptError("not a step")

    async def _parallel(self, number: str) -> None:
        self.parallel = int(number)

    async def _opens(self, name: str, epoch: str) -> None:
        process = self.world.process(f"writer {name}")
        gate = self.gates[name] = _Gate(process)
        core = await open_table(
            gate,
            options=None,
            cache_bytes=0,
            environment=process.environment,
            policy=RetryPolicy(),
        )
        writer = AsyncTable(core).writer(name=f"writer {name}", max_parallel_writes=self.parallel, flush_interval_s=0.0)
        self.writers[name] = await writer.start()
        self.opening[name] = asyncio.ensure_future(writer.acquire([0]))
        await _settle()
        minted = core.manifests.current.partitions[0].writer_epoch
        _expect(minted == int(epoch), f"the epoch is {minted}")

    async def _puts(self, name: str, rows: str) -> None:
        for row in rows.split():
            key, value = row.split("=")
            self.futures[row] = await self.writers[name].put(key.encode(), value.encode())
            self.put_by[row] = name
            await _settle()

    async def _slot(self, slot: str, name: str, what: str, outcome: str) -> None:
        gate = self.gates[name]
        if what != "fence" and what not in self.futures:
            await self._puts(name, what)
        turn = gate.waiting.get(int(slot))
        _expect(turn is not None and not turn.done(), f"writer {name} waits for the slots {sorted(gate.waiting)}")
        assert turn is not None
        gate.waiting.pop(int(slot))
        turn.set_result(None)
        await _settle()
        _expect(gate.outcomes[int(slot)] == outcome, f"the slot was {gate.outcomes[int(slot)]}")

    async def _owns(self, name: str) -> None:
        task = self.opening[name]
        _expect(task.done() and task.exception() is None, "it does not, yet")

    async def _is_fenced(self, name: str, epoch: str) -> None:
        task = self.opening[name]
        errors: list[BaseException | None] = [task.exception()] if task.done() else []
        errors += [
            future.exception() for row, future in self.futures.items() if self.put_by[row] == name and future.done()
        ]
        fenced = [error for error in errors if isinstance(error, Fenced)]
        _expect(bool(fenced), "nobody told it")
        _expect(fenced[0].current_epoch == int(epoch), f"by epoch {fenced[0].current_epoch}")

    async def _fates(self, fate: str, rows: str) -> None:
        for row in rows.split():
            future = self.futures[row]
            if not future.done():
                actual = "waiting"
            elif (error := future.exception()) is None:
                actual = "acknowledged"
            else:
                assert isinstance(error, HedgerowError)
                actual = "uncertain" if error.maybe_stored else "refused"
            _expect(actual == fate, f"{row} is {actual}")

    async def _compacted(self, slot: str) -> None:
        core = await self._open("compactor")
        compactor = Compactor(core.manifests, core.wal)
        await compactor.start()
        await compactor.flush_wal()
        through = core.manifests.current.partitions[0].wal_id_last_compacted
        _expect(through == int(slot), f"it came to slot {through}")

    async def _collected(self, slots: str) -> None:
        def standing() -> set[int]:
            return {line[1] for path in self.world.objects.paths() if (line := parse_wal(path)) is not None}

        before = standing()
        core = await self._open("collector", clock_skew_ms=10**11)
        await Collector(core.manifests, keep_entries=0, staging_entries=0).collect()
        gone = sorted(before - standing())
        _expect(gone == [int(slot) for slot in slots.split()], f"it deleted {gone}")

    async def _open(self, name: str, clock_skew_ms: int = 0) -> TableCore:
        process = self.world.process(name, clock_skew_ms=clock_skew_ms)
        return await open_table(process.store, options=None, cache_bytes=0, environment=process.environment)

    async def _reader(self, rows: str) -> None:
        core = await self._open("reader")
        seen = (await AsyncTable(core).to_arrow()).to_pylist()
        text = sorted(f"{row['key'].decode()}={row['value'].decode()}" for row in seen)
        _expect(text == sorted(rows.split()), f"it sees {' '.join(text) or 'nothing'}")


async def _settle() -> None:
    """Let everything run that can run: virtual seconds cost nothing."""
    await asyncio.sleep(5.0)


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ScriptError(otherwise)
