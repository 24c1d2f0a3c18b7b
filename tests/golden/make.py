"""Write the golden table of the current format: ``python tests/golden/make.py``. Never over one that is there.

A golden table is written once per format version and then only ever read: it pins what is on disks out there.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import json
import random
import sys
from pathlib import Path

import pyarrow as pa

from hedgerow.engine.compactor import Compactor
from hedgerow.keys import KeyEncoder, partition_of
from hedgerow.objects import FileStore
from hedgerow.table.aio import AsyncTable
from hedgerow.table.core import create_table, open_table
from hedgerow.testing import SimulatedEnvironment

HERE = Path(__file__).parent
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)


def row(i: int, name: str) -> dict:
    return {
        "id": i,
        "name": name,
        "price": decimal.Decimal(i) / 4,
        "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=i),
        "tags": [name, str(i)] if i % 2 else None,
    }


def expected() -> list[dict]:
    first = {i: row(i, "first") for i in range(12)}
    first.update({i: row(i, "second") for i in range(6, 18)})
    del first[3]
    return [first[i] for i in sorted(first)]


async def write_table(folder: Path) -> None:
    environment = SimulatedEnvironment(random.Random(20260101))
    store = FileStore(folder)
    core = await create_table(
        store, schema=SCHEMA, key="id", partitions=3, options=None, cache_bytes=0, environment=environment
    )
    async with AsyncTable(core).writer(name="first", max_parallel_writes=2) as writer:
        await writer.write(pa.Table.from_pylist([row(i, "first") for i in range(12)], schema=SCHEMA))
    compactor = Compactor(core.manifests, core.wal, "golden")
    await compactor.start()
    await compactor.flush_wal()
    other = await open_table(store, options=None, cache_bytes=0, environment=environment)
    second = await AsyncTable(other).writer(name="second", max_parallel_writes=2).start()
    await second.write(pa.Table.from_pylist([row(i, "second") for i in range(6, 18)], schema=SCHEMA))
    await second.delete(3)
    await second.flush()  # left live: its rows are in the WAL of partitions that are not sealed


KEYS = [
    ([("k", pa.int64())], [0, 1, -1, 2**63 - 1, -(2**63)]),
    ([("k", pa.uint32())], [0, 2**32 - 1]),
    ([("k", pa.string())], ["", "hedge", "weißdorn"]),
    ([("k", pa.float64())], [0.0, -0.0, 1.5, -1.5, float("inf")]),
    ([("k", pa.bool_())], [False, True]),
    ([("k", pa.date32())], [dt.date(2026, 1, 1)]),
    ([("k", pa.timestamp("us", "UTC"))], [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]),
    ([("k", pa.decimal128(10, 2))], [decimal.Decimal("-1.50"), decimal.Decimal("12.34")]),
    ([("a", pa.string()), ("b", pa.int64())], [("de", 1), ("d\0e", -1)]),
    ([("a", pa.binary()), ("b", pa.bool_()), ("c", pa.string())], [(b"\0", True, "x")]),
]


def keys() -> list[dict]:
    lines = []
    for columns, values in KEYS:
        encoder = KeyEncoder(columns)
        for value in values:
            encoded = encoder.encode(value)
            types = [str(dtype) for _, dtype in columns]
            lines.append({"types": types, "key": repr(value), "encoded": encoded.hex(),
                          "partition of 271": partition_of(encoded, 271)})  # fmt: skip
    return lines


def main() -> int:
    table, key_file = HERE / "table-1", HERE / "keys-1.json"
    if table.exists() or key_file.exists():
        print("The golden files are there already, and what is on disks out there does not change.")
        return 1
    asyncio.run(write_table(table))
    key_file.write_text(json.dumps(keys(), indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
