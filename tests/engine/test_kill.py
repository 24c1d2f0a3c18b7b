"""Real processes on a real disk: killed at every step, paused through a takeover. What was acknowledged is there."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from processes import doomed, drain, records_url, run_child

import hedgerow as hg
from hedgerow.engine.collector import Collector
from hedgerow.engine.compactor import Compactor
from hedgerow.table.aio import AsyncTable
from hedgerow.table.core import create_table, open_table

ON_BOTH_KINDS = True
KEYS = [b"a", b"b", b"c", b"d"]


async def write_rounds(told: Any, root: str, die_at: int, kind: str) -> None:
    """A writer's whole life: take over, write in two rounds, read, close. It tells what was acknowledged."""
    doomed_store, store = doomed(root, die_at, kind)
    table = AsyncTable(await open_table(store, options=None, cache_bytes=1 << 20))
    writer = await table.writer(name="doomed", max_parallel_writes=2, flush_interval_s=0.0).start()
    for round_number in (b"1", b"2"):
        for key in KEYS:
            done = await writer.put(key, round_number)
            done.add_done_callback(lambda f, k=key, r=round_number: f.exception() or told.send(("acknowledged", k, r)))
        await writer.flush()
        assert await writer.get(KEYS[0]) == round_number
    await writer.close()
    told.send(("finished", doomed_store.points, None))


async def maintain(told: Any, root: str, die_at: int, kind: str) -> None:
    """A compactor's and a collector's whole life."""
    doomed_store, store = doomed(root, die_at, kind)
    core = await open_table(store, options=None, cache_bytes=1 << 20)
    compactor = Compactor(core.manifests, core.wal)
    await compactor.start()
    await compactor.flush_wal()
    await Collector(core.manifests, keep_entries=0, staging_entries=0).collect()
    told.send(("finished", doomed_store.points, None))


async def found(told: Any, root: str, die_at: int, kind: str) -> None:
    """Creating a table, self-test included."""
    doomed_store, store = doomed(root, die_at, kind)
    await create_table(store, schema=None, key=None, partitions=2, options=None, cache_bytes=1 << 20)
    told.send(("finished", doomed_store.points, None))


LIVES = {"write": write_rounds, "maintain": maintain, "create": found}


def one_death(life: str, root: Path, die_at: int, kind: str) -> bool:
    """Run a life until it kills itself at this point, then judge what it left. False: it lived to its end."""
    acknowledged: dict[bytes, bytes] = {}
    where: dict[str, Any] = {"url": f"file://{root}"}
    if kind == "two-phase":
        where["records"] = records_url(str(root))
    if life != "create":
        hg.create(**where, partitions=2)
    if life == "maintain":
        with hg.open(**where).writer() as writer:
            for key in KEYS:
                writer.put(key, b"0")
        acknowledged = dict.fromkeys(KEYS, b"0")
    process, connection = run_child(LIVES[life], str(root), die_at, kind)
    told = drain(connection)
    process.join()
    finished = [line for line in told if line[0] == "finished"]
    assert finished or process.exitcode == -signal.SIGKILL, process.exitcode
    acknowledged.update({key: value for what, key, value in told if what == "acknowledged"})
    try:
        table = hg.open(**where)
    except hg.TableNotFound:
        assert life == "create"
        table = hg.create(**where, partitions=2)
    seen = dict(zip(KEYS, table.get_many(KEYS), strict=True))
    for key, value in acknowledged.items():
        assert seen[key] is not None and seen[key] >= value, (die_at, key, seen, acknowledged)
    with table.writer(name="next", flush_interval_s=0.0) as writer:
        for key in KEYS:
            assert writer.get(key) == seen[key]
            writer.put(key, b"9")
    table.refresh()
    assert table.get_many(KEYS) == [b"9"] * len(KEYS)
    return not finished


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.slow
def test_sigkill_at_every_step_loses_nothing_acknowledged(life: str, kind_of_store: str, tmp_path: Path) -> None:
    # Every point; of the many more on a two-phase store, every eighth, at an offset of this run's own (all in a soak).
    step = 1 if kind_of_store == "create-if-absent" or "HEDGEROW_SOAK" in os.environ else 8
    die_at = 1 + int(os.environ.get("HEDGEROW_SEED", "0")) % step
    while one_death(life, tmp_path / str(die_at), die_at, kind_of_store):
        die_at += step
    assert die_at > {"write": 40, "maintain": 30, "create": 15}[life], die_at


# --- paused, not killed -------------------------------------------------------------------------------------


async def obey(told: Any, root: str) -> None:
    """A writer that does one thing at a time, as it is told."""
    table = await hg.aio.open(f"file://{root}")
    writer = await table.writer(name="first", flush_interval_s=0.0).start()
    loop = asyncio.get_running_loop()
    while True:
        order = await loop.run_in_executor(None, told.recv)
        try:
            if order[0] == "put":
                done = await writer.put(order[1], order[2])
                await writer.flush()
                await done
            elif order[0] == "close":
                await writer.close()
            told.send("ok")
        except hg.Fenced as error:
            told.send(("fenced", error.epoch, error.current_epoch, str(error)))
        if order[0] == "close":
            return


@pytest.mark.parametrize("kind_of_store", ["create-if-absent"], indirect=True)
def test_a_writer_that_was_stopped_through_a_takeover_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "table"
    table = hg.create(f"file://{root}", partitions=1)
    process, connection = run_child(obey, str(root))
    connection.send(("put", b"a", b"first"))
    assert connection.recv() == "ok"
    os.kill(process.pid, signal.SIGSTOP)
    with table.writer(name="second") as second:
        second.put(b"a", b"second")
        second.flush()
        core = table._core
        table._loop.run(_compact_and_collect(core))
        os.kill(process.pid, signal.SIGCONT)
        connection.send(("put", b"a", b"zombie"))
        what, epoch, current_epoch, message = connection.recv()
        assert (what, epoch, current_epoch) == ("fenced", 1, 2)
        assert "epoch 2" in message and "new writer" in message
        second.put(b"b", b"second")
    connection.send(("close",))
    connection.recv()
    process.join()
    table.refresh()
    assert table.get_many([b"a", b"b"]) == [b"second", b"second"]


async def _compact_and_collect(core: Any) -> None:
    compactor = Compactor(core.manifests, core.wal)
    await compactor.start()
    await compactor.flush_wal()
    await Collector(core.manifests, keep_entries=0, staging_entries=0).collect()


@pytest.mark.parametrize("kind_of_store", ["create-if-absent"], indirect=True)
def test_a_pause_between_sending_and_hearing_is_no_double_write(tmp_path: Path) -> None:
    """The order to put is given while the process is stopped: it wakes up after the takeover and must not be heard."""
    root = tmp_path / "table"
    table = hg.create(f"file://{root}", partitions=1)
    process, connection = run_child(obey, str(root))
    connection.send(("put", b"a", b"first"))
    assert connection.recv() == "ok"
    os.kill(process.pid, signal.SIGSTOP)
    connection.send(("put", b"a", b"zombie"))
    with table.writer(name="second") as second:
        assert second.get(b"a") == b"first"
        second.put(b"a", b"second")
    os.kill(process.pid, signal.SIGCONT)
    assert connection.recv()[0] == "fenced"
    connection.send(("close",))
    connection.recv()
    process.join()
    table.refresh()
    assert table.get(b"a") == b"second"
