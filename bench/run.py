"""Measure, in one run, and write docs/benchmarks.md. Every figure is a ratio to something measured beside it, or a cost."""

from __future__ import annotations

import asyncio
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

import hedgerow as hg
from hedgerow.engine import codec
from hedgerow.engine.manifest import Manifest, Partition, Snapshot, SstInfo, TableLayout, key_limit
from hedgerow.engine.manifests import Manifests
from hedgerow.objects import Environment, FileStore
from hedgerow.ownership import PartitionGuard, PartitionGuardSet

OUTPUT = Path(__file__).parent.parent / "docs" / "benchmarks.md"


class Rows:
    """A table of results."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, str]] = []

    def add(self, what: str, result: str, beside: str) -> None:
        self.lines.append((what, result, beside))
        print(f"{what:60} {result:24} {beside}", flush=True)


def best_of(work: Callable[[], Any], times: int = 5) -> float:
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def manifests(rows: Rows, folder: Path) -> None:
    """A read-modify-write of a manifest with 100,000 files and 1,000 snapshots, on a local disk."""
    rng = random.Random(1)

    def sst() -> SstInfo:
        size = rng.randrange(60_000_000, 64_000_000)
        return SstInfo(
            rng.randbytes(16), rng.randrange(10**6), rng.randrange(7), rng.randbytes(32), key_limit(rng.randbytes(32)),
            size, rng.randrange(10**6, 2 * 10**6), size + 2 * 10**6, rng.randrange(20_000, 60_000),
            rng.randrange(500_000, 600_000), rng.randrange(10**6), rng.randrange(10**6), rng.randrange(50),
            rng.getrandbits(64),
        )  # fmt: skip

    schema = pa.schema([("k", pa.binary())]).serialize().to_pybytes()
    parts = tuple(
        Partition(writer_epoch=3, ssts=codec.in_order([sst() for _ in range(100_000 // 64)])) for _ in range(64)
    )
    pins = tuple(Snapshot(rng.randbytes(16), rng.randrange(10**6), rng.randrange(10**13), "job") for _ in range(1_000))
    layout = TableLayout(schema, ("k",), 64, (1,))
    manifest = Manifest(b"t" * 16, 1, b"w" * 16, 1, layout, parts, snapshots=pins)
    files = sum(len(part.ssts) for part in parts)

    async def scenario() -> tuple[float, float, float, int]:
        store = FileStore(folder / "manifest")
        await Manifests(store, Environment()).create(manifest)
        size = len(await store.get("manifest/00000000000000000001.manifest"))

        async def cold() -> float:
            started = time.perf_counter()
            fresh = Manifests(store, Environment())
            await fresh.update(lambda m: msgspec.structs.replace(m, compactor_epoch=m.compactor_epoch + 1))
            return time.perf_counter() - started

        cold_s = min([await cold() for _ in range(5)])
        warm = Manifests(store, Environment())
        await warm.refresh()
        warm_s = []
        for _ in range(20):
            started = time.perf_counter()
            await warm.update(lambda m: msgspec.structs.replace(m, compactor_epoch=m.compactor_epoch + 1))
            warm_s.append(time.perf_counter() - started)
        started = time.perf_counter()
        codec.encode_whole(warm.current)
        return cold_s, statistics.median(warm_s), time.perf_counter() - started, size

    cold_s, warm_s, whole_s, size = asyncio.run(scenario())
    floor_s = best_of(lambda: asyncio.run(_create(folder)), 9)
    rows.add("manifest, 100,000 files and 1,000 snapshots", f"{size / files:.1f} bytes a file", "limit: 100")
    rows.add("its read-modify-write by a client that knows nothing", f"{cold_s * 1e3:.0f} ms", "limit: 500 ms")
    rows.add(
        "the same by a client that has it open", f"{warm_s * 1e3:.1f} ms", f"one fsynced create: {floor_s * 1e3:.1f} ms"
    )
    rows.add("encoding it whole (once in 64 entries)", f"{whole_s * 1e3:.0f} ms", "")


_number = iter(range(10**9))


async def _create(folder: Path) -> None:
    await FileStore(folder / "floor").create(f"x{next(_number)}", b"x" * 600)


def guards(rows: Rows) -> None:
    class Empty:
        def check(self) -> None:
            return

    class Lookup:
        def __init__(self) -> None:
            self._values = dict.fromkeys(range(1_000))

        def check(self, key: int) -> None:
            self._values[key]

    def ns(statement: str, **names: Any) -> float:
        return min(timeit.repeat(statement, globals=names, number=200_000, repeat=15)) / 200_000 * 1e9

    guard = PartitionGuard(3, 7, 4)
    guard_set = PartitionGuardSet(4)
    for index in range(1_000):
        guard_set.insert(PartitionGuard(index, 7, 4))
    empty, lookup = ns("e.check()", e=Empty()), ns("e.check(500)", e=Lookup())
    check, set_check = ns("g.check()", g=guard), ns("g.check(500)", g=guard_set)
    batch = np.random.default_rng(1).integers(0, 1_000, 1_000_000, dtype=np.int32)
    per_row = best_of(lambda: guard_set.check_many(batch), 9) / len(batch) * 1e9
    rows.add("guard.check()", f"{check / empty:.2f}x", f"an empty method call ({empty:.0f} ns)")
    rows.add("guard_set.check()", f"{set_check / lookup:.2f}x", f"a dictionary lookup in a method ({lookup:.0f} ns)")
    rows.add("guard_set.check_many(), 1,000,000 rows", f"{per_row:.2f} ns a row", "limit: 10 ns")


def tables(rows: Rows, folder: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("status", pa.string()), ("amount", pa.float64())])
    table = hg.create(f"file://{folder}/table", schema=schema, key="id", partitions=8)
    count = 100_000
    ids = [f"order-{i * 7919 % 10_000_000:012d}" for i in range(count)]
    data = pa.table({"id": ids, "status": ["new"] * count, "amount": np.arange(count) * 0.5}, schema=schema)
    with table.writer() as writer:
        acquire_s = best_of(writer.acquire, 1)

        def upsert() -> None:
            writer.write(data)
            writer.flush()

        upsert_s = best_of(upsert, 3)
        rows.add(
            "upsert of 100,000 rows, durable",
            f"{count / upsert_s / 1e6:.2f} M rows/s",
            f"acquiring 8 partitions: {acquire_s * 1e3:.0f} ms",
        )
        started = time.perf_counter()
        for i in range(20_000):
            writer.put({"id": ids[i], "status": "paid", "amount": 1.0})
        writer.flush()
        rows.add("single puts through futures", f"{20_000 / (time.perf_counter() - started):,.0f} rows/s", "")
    reader = hg.open(f"file://{folder}/table", refresh_interval_s=None)
    reader.get_many(ids)
    sample = ids[:10_000]
    get_s = best_of(lambda: [reader.get(key) for key in sample], 5) / len(sample)
    many_s = best_of(lambda: reader.get_many(sample), 5) / len(sample)
    rows.add("get, warm", f"{get_s * 1e6:.1f} us", f"get_many of 10,000: {many_s * 1e6:.1f} us a key")
    scan_s = best_of(reader.to_arrow, 3)
    rows.add("full scan in key order", f"{count / scan_s / 1e6:.2f} M rows/s", "")


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="hedgerow-bench-"))
    rows = Rows()
    try:
        manifests(rows, folder)
        guards(rows)
        tables(rows, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench` in one run: every figure was measured beside what stands next to it.",
        "",
        f"Python {platform.python_version()}, pyarrow {pa.__version__}, Linux, 2 cores, local disk with fsync.",
        "",
        "| what | result | beside it |",
        "|---|---|---|",
        *(f"| {what} | {result} | {beside} |" for what, result, beside in rows.lines),
        "",
    ]
    OUTPUT.write_text("\n".join(lines))
    print(f"\nwritten to {OUTPUT.relative_to(Path.cwd()) if OUTPUT.is_relative_to(Path.cwd()) else OUTPUT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
