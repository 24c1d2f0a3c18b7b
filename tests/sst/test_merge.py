"""Merging: of every key the newest row, in key order, without holding more than a block of each source."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sst_files import META, numbered, sst_rows

from hedgerow.sst import (
    DELETE,
    PUT,
    SstTail,
    encode_sst,
    merge,
    newest_wins,
    sst_schema,
    unique_by_key,
    without_deletes,
)

SCHEMA = sst_schema(pa.schema([("source", pa.int64())]))
SMALL_KEYS = st.integers(0, 25)


def table(keys: list[int], source: int, deletes: frozenset[int] = frozenset()) -> pa.Table:
    """Rows that remember where they come from."""
    return pa.table(
        {
            "_key": pa.array([key.to_bytes(4, "big") for key in keys], pa.binary()),
            "_op": pa.array([DELETE if key in deletes else PUT for key in keys], pa.int8()),
            "_seq": pa.array(range(len(keys)), pa.int64()),
            "source": pa.array([source] * len(keys), pa.int64()),
        },
        schema=SCHEMA,
    )


def sources(rows: pa.Table) -> dict[int, int]:
    """Key to source, and a check that every key stands once, in order."""
    keys = [int.from_bytes(key, "big") for key in rows.column("_key").to_pylist()]
    assert keys == sorted(set(keys))
    return dict(zip(keys, rows.column("source").to_pylist(), strict=True))


# --- in memory ------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(SMALL_KEYS, unique=True).map(sorted), min_size=1, max_size=6))
def test_the_newest_row_of_every_key_wins(tables: list[list[int]]) -> None:
    model: dict[int, int] = {}
    for age, keys in reversed(list(enumerate(tables))):
        model |= dict.fromkeys(keys, age)
    merged = newest_wins([table(keys, age) for age, keys in enumerate(tables)])
    assert merged.schema == SCHEMA
    assert sources(merged) == model


def test_tables_without_rows_make_a_table_without_rows() -> None:
    for count in (1, 3):
        merged = newest_wins([table([], 0)] * count)
        assert (merged.num_rows, merged.schema) == (0, SCHEMA)


@settings(max_examples=200, deadline=None)
@given(st.lists(SMALL_KEYS, max_size=60), st.lists(st.integers(0, 60)), st.sampled_from(["first", "last"]))
def test_of_several_rows_with_one_key_the_first_or_the_last_stays(keys: list[int], cuts: list[int], keep: str) -> None:
    rows = table(keys, 0)
    edges = [0, *sorted(min(cut, len(keys)) for cut in cuts), len(keys)]
    pieces = pa.concat_tables([rows.slice(a, b - a) for a, b in itertools.pairwise(edges)])
    model: dict[int, int] = {}
    for row, key in enumerate(keys):
        if keep == "last" or key not in model:
            model[key] = row
    unique = unique_by_key(pieces, keep=keep)
    found = zip(unique.column("_key").to_pylist(), unique.column("_seq").to_pylist(), strict=True)
    assert list(found) == [(key.to_bytes(4, "big"), row) for key, row in sorted(model.items())]


@pytest.mark.parametrize("keep", ["first", "last"])
@pytest.mark.parametrize("distinct", [1, 2, 1_000, 150_000, 1 << 40])
def test_in_a_large_write_the_right_row_of_every_key_stays(distinct: int, keep: str) -> None:
    """The sort must not change the order of rows with one key, also where it takes another path for large inputs."""
    count = 200_000
    numbers = np.random.default_rng(3).integers(0, distinct, count)
    data = np.ascontiguousarray(numbers.astype(">i8"))
    keys = pa.Array.from_buffers(pa.binary(8), count, [None, pa.py_buffer(data)]).cast(pa.binary())
    arrays = [keys, pa.array(np.zeros(count, np.int8)), pa.array(np.arange(count)), pa.array(np.zeros(count, np.int64))]
    rows = pa.Table.from_arrays(arrays, schema=SCHEMA)
    unique = unique_by_key(rows, keep=keep)
    if keep == "first":
        expected_keys, expected_rows = np.unique(numbers, return_index=True)
    else:
        expected_keys, backwards = np.unique(numbers[::-1], return_index=True)
        expected_rows = count - 1 - backwards
    assert unique.column("_seq").to_numpy().tolist() == expected_rows.tolist()
    assert unique.column("_key").to_pylist() == [int(number).to_bytes(8, "big") for number in expected_keys]


def test_large_tables_merge_to_the_newest_rows() -> None:
    rng = np.random.default_rng(4)
    tables = []
    model: dict[int, int] = {}
    for age in (2, 1, 0):
        keys = np.unique(rng.integers(0, 120_000, 80_000)).tolist()
        model |= dict.fromkeys(keys, age)
        tables.insert(0, table(keys, age))
    assert sum(rows.num_rows for rows in tables) > 100_000
    assert sources(newest_wins(tables)) == model


@given(st.lists(SMALL_KEYS, unique=True).map(sorted), st.frozensets(SMALL_KEYS))
def test_deleted_rows_are_left_out_and_others_are_not(keys: list[int], deletes: frozenset[int]) -> None:
    assert list(sources(without_deletes(table(keys, 0, deletes)))) == [key for key in keys if key not in deletes]


# --- streaming ------------------------------------------------------------------------------------------------


class BlocksCursor:
    """A source that hands out its blocks one at a time, and counts."""

    def __init__(self, blocks: list[pa.Table]) -> None:
        self.blocks = blocks
        self.handed_out = 0

    async def next_block(self) -> pa.Table | None:
        await asyncio.sleep(0)
        if self.handed_out == len(self.blocks):
            return None
        self.handed_out += 1
        return self.blocks[self.handed_out - 1]


class Source(NamedTuple):
    keys: list[int]
    cuts: list[int]
    deletes: frozenset[int]

    def blocks(self, age: int) -> list[pa.Table]:
        rows = table(self.keys, age, self.deletes)
        edges = sorted({0, len(self.keys), *(cut for cut in self.cuts if cut < len(self.keys))})
        return [rows.slice(a, b - a) for a, b in itertools.pairwise(edges)]


async def merged(cursors: list[BlocksCursor]) -> list[pa.Table]:
    """Every round's rows; after every round, no source may have been read further than its next block."""
    rounds = []
    async for rows in merge(cursors):
        assert rows.num_rows
        held = sum(cursor.blocks[cursor.handed_out - 1].num_rows for cursor in cursors if cursor.handed_out)
        largest = sum(max((block.num_rows for block in cursor.blocks), default=0) for cursor in cursors)
        assert rows.num_rows <= largest
        assert held <= largest
        reached = rows.column("_key")[-1].as_py()
        for cursor in cursors:
            used = sum(block.column("_key")[-1].as_py() <= reached for block in cursor.blocks)
            assert cursor.handed_out <= used + 1
        rounds.append(rows)
    assert all(cursor.handed_out == len(cursor.blocks) for cursor in cursors)
    assert len(rounds) <= max(1, sum(len(cursor.blocks) for cursor in cursors))
    return rounds


def check_merge(given_sources: list[Source]) -> None:
    model: dict[int, tuple[int, int]] = {}
    for age, source in reversed(list(enumerate(given_sources))):
        model |= {key: (age, DELETE if key in source.deletes else PUT) for key in source.keys}
    rounds = asyncio.run(merged([BlocksCursor(source.blocks(age)) for age, source in enumerate(given_sources)]))
    whole = pa.concat_tables(rounds) if rounds else SCHEMA.empty_table()
    assert sources(whole) == {key: age for key, (age, _) in model.items()}
    assert whole.column("_op").to_pylist() == [op for _, (_, op) in sorted(model.items())]


SOURCES = st.builds(
    Source,
    st.lists(SMALL_KEYS, unique=True).map(sorted),
    st.lists(st.integers(1, 25)),
    st.frozensets(SMALL_KEYS),
)


@settings(max_examples=250, deadline=None)
@given(st.lists(SOURCES, max_size=7))
def test_a_scan_over_many_sources_gives_the_newest_row_of_every_key_in_order(given_sources: list[Source]) -> None:
    check_merge(given_sources)


@pytest.mark.parametrize("seed", range(8))
def test_a_scan_over_long_sources_gives_the_newest_row_of_every_key_in_order(seed: int) -> None:
    rng = random.Random(seed)
    check_merge(
        [
            Source(
                sorted(rng.sample(range(3_000), rng.randrange(0, 1_500))),
                [rng.randrange(1, 1_500) for _ in range(rng.randrange(0, 40))],
                frozenset(rng.sample(range(3_000), 300)),
            )
            for _ in range(rng.randrange(2, 12))
        ]
    )


EVEN, ODD = list(range(0, 20, 2)), list(range(1, 20, 2))


@pytest.mark.parametrize(
    "given_sources",
    [
        [],
        [Source([], [], frozenset())] * 3,
        [Source(EVEN, [], frozenset())],
        [Source(EVEN, list(range(1, 20)), frozenset())],
        [Source(EVEN, [], frozenset()), Source([], [], frozenset())],
        [Source(EVEN, [5], frozenset())] * 4,
        [Source(EVEN, list(range(1, 20)), frozenset())] * 4,
        [Source(EVEN, [3], frozenset()), Source(ODD, [4], frozenset())],
        [Source([0, 1], [], frozenset()), Source([2, 3], [], frozenset()), Source([4], [], frozenset())],
        [Source([9], [], frozenset({9})), Source(list(range(20)), [10], frozenset())],
        [Source([0, 19], [], frozenset()), Source(list(range(20)), list(range(1, 20)), frozenset())],
    ],
    ids=[
        "no source",
        "sources without rows",
        "one source of one block",
        "one source of many blocks",
        "one of two has no rows",
        "the same range in the same blocks",
        "the same range row by row",
        "interleaved",
        "one after the other",
        "a delete amid an old block",
        "a wide block over many narrow ones",
    ],
)
def test_a_scan_gets_these_right_too(given_sources: list[Source]) -> None:
    check_merge(given_sources)


def test_a_scan_of_files_gives_the_newest_row_of_every_key_in_order() -> None:
    """Rows of files and rows in memory are of the same types, whatever Parquet makes of them."""
    day = pa.array([1, 2, 3, 4], pa.int32()).cast(pa.date32()).cast(pa.date64())
    columns = {"day": day, "at": pa.array([1, 2, 3, 4], pa.timestamp("s")), "pause": pa.array([1] * 4, pa.time32("s"))}
    older = sst_rows(columns, keys=numbered(4))
    newer = sst_rows(columns, keys=numbered(4, step=2))
    sst = encode_sst(older, META, block_rows=3)
    tail = SstTail(sst.data, len(sst.data), "a file")
    blocks = []
    for number in range(tail.blocks):
        start, length = tail.block_range(number)
        blocks.append(tail.decode_block(number, sst.data[start : start + length]))

    async def scan() -> list[pa.Table]:
        return [rows async for rows in merge([BlocksCursor([newer]), BlocksCursor(blocks)])]

    whole = pa.concat_tables(asyncio.run(scan()))
    assert whole.schema == older.schema
    assert whole.column("_key").to_pylist() == sorted({*numbered(4), *numbered(4, step=2)})
    assert whole.column("at").cast(pa.int64()).to_pylist() == [1, 2, 2, 4, 3, 4]
