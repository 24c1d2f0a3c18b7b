"""A crash at every single await of every protocol, one after another, in simulated processes."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from hedgerow.engine.collector import Collector
from hedgerow.engine.compactor import Compactor
from hedgerow.errors import TableNotFound
from hedgerow.objects import RetryPolicy
from hedgerow.table.aio import AsyncTable
from hedgerow.table.core import create_table, open_table
from hedgerow.testing import FaultPlan, Process, World, simulate

KEYS = [b"a", b"b", b"c", b"d", b"e"]


async def make(process: Process) -> AsyncTable:
    core = await create_table(
        process.store, schema=None, key=None, partitions=2, options=None, cache_bytes=0,
        environment=process.environment, policy=RetryPolicy(give_up_after_s=5),
    )  # fmt: skip
    return AsyncTable(core)


async def reopen(process: Process) -> AsyncTable:
    core = await open_table(
        process.store,
        options=None,
        cache_bytes=0,
        environment=process.environment,
        policy=RetryPolicy(give_up_after_s=5),
    )
    return AsyncTable(core)


async def write(process: Process, tell: Any) -> None:
    """Two rounds of rows in one writer, with reads of its own, then a proper close."""
    table = await reopen(process)
    writer = await table.writer(name=process.name, max_parallel_writes=2, flush_interval_s=0.0).start()
    for round_number in range(2):
        for key in KEYS:
            value = b"%d" % round_number
            tell("sent", key, value)
            done = await writer.put(key, value)
            done.add_done_callback(lambda f, k=key, v=value: f.exception() or tell("acknowledged", k, v))
        await writer.flush()
        assert await writer.get(KEYS[0]) == b"%d" % round_number
    await writer.close()
    tell("closed", b"", b"")


async def compact(process: Process, tell: Any) -> None:
    table = await reopen(process)
    compactor = Compactor(table._core.manifests, table._core.wal)
    await compactor.start()
    await compactor.flush_wal()
    tell("closed", b"", b"")


async def collect(process: Process, tell: Any) -> None:
    table = await reopen(process)
    await Collector(table._core.manifests, keep_entries=0, staging_entries=0).collect()
    tell("closed", b"", b"")


async def create(process: Process, tell: Any) -> None:
    await make(process)
    tell("closed", b"", b"")


PROTOCOLS = {"create": create, "write": write, "compact": compact, "collect": collect}


async def crash_once(protocol: str, at_step: int) -> bool:
    """Prepare a table, run one protocol until it crashes at this step, recover, and judge. True: it did crash."""
    world = World(random.Random(at_step), FaultPlan.none())
    calm = world.process("calm")
    expected: dict[bytes, bytes] = {}
    if protocol != "create":
        await make(calm)
    if protocol in ("compact", "collect"):
        await write(calm, lambda what, key, value: expected.update({key: value}) if what == "acknowledged" else None)
    if protocol == "collect":
        await compact(calm, lambda *_: None)

    process = world.process("doomed")
    process.crash_at_step = at_step
    acknowledged: dict[bytes, bytes] = {}
    sent: dict[bytes, set[bytes]] = {key: set() for key in KEYS}
    finished = asyncio.Event()

    def tell(what: str, key: bytes, value: bytes) -> None:
        if what == "sent":
            sent[key].add(value)
        elif what == "acknowledged" and not process.crashed:
            acknowledged[key] = value
        elif what == "closed":
            finished.set()

    died = asyncio.Event()
    process.on_crash.append(died.set)
    task = asyncio.ensure_future(PROTOCOLS[protocol](process, tell))
    world.kept.append(task)
    waiters = [asyncio.ensure_future(event.wait()) for event in (finished, died)]
    await asyncio.wait([*waiters, task], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    await asyncio.sleep(100)

    await judge(world, protocol, {**expected, **acknowledged}, sent)
    return process.crashed


async def judge(world: World, protocol: str, acknowledged: dict[bytes, bytes], sent: dict[bytes, set[bytes]]) -> None:
    """A stranger opens the table: acknowledged rows are there, and it can be owned, written and read as before."""
    stranger = world.process("stranger")
    try:
        table = await reopen(stranger)
    except TableNotFound:
        assert protocol == "create"
        table = await make(stranger)
    for key in KEYS:
        seen = await table.get(key)
        if key in acknowledged:
            # A later round may be there although it was not acknowledged, never an earlier one.
            assert seen is not None and seen >= acknowledged[key], (key, seen, acknowledged)
        assert seen is None or seen in sent[key] or seen == acknowledged.get(key)
    before = {row["key"]: row["value"] for row in (await table.to_arrow()).to_pylist()}
    async with table.writer(name="stranger") as writer:
        for key in KEYS:
            assert await writer.get(key) == before.get(key)
            await writer.put(key, b"9")
    await table.refresh()
    assert [await table.get(key) for key in KEYS] == [b"9"] * len(KEYS)
    await compact(stranger, lambda *_: None)
    await collect(stranger, lambda *_: None)
    again = await reopen(world.process("another"))
    assert await again.get_many(KEYS) == [b"9"] * len(KEYS)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_crash_at_any_await_loses_nothing_and_blocks_nobody(protocol: str) -> None:
    step = 1
    while simulate(lambda step=step: crash_once(protocol, step)):
        step += 1
    # The loop ended because the protocol ran to its end: every await before that was crashed at once.
    assert step > {"create": 20, "write": 40, "compact": 10, "collect": 15}[protocol], step
