"""Merging sorted rows: of every key the newest, vectorised.

``newest_wins`` merges tables that are in memory. ``merge`` streams over any number of sorted cursors a block at a time,
holding one block of each: in every round it takes what lies at or below the smallest of the blocks' last keys, which
uses up at least one block, so the work per round is bounded and the rows come out in key order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from hedgerow.sst.format import DELETE

__all__ = ["Cursor", "merge", "newest_wins", "unique_by_key", "without_deletes"]


class Cursor(Protocol):
    """Something sorted that is read a block at a time."""

    async def next_block(self) -> pa.Table | None:
        """The next rows, in key order, each key once; None at the end."""
        ...


def newest_wins(tables: Sequence[pa.Table]) -> pa.Table:
    """One sorted table of tables that are each sorted with unique keys, newest first: of every key the newest row."""
    filled = [table for table in tables if table.num_rows]
    if len(filled) <= 1:
        return filled[0] if filled else tables[0]
    return unique_by_key(pa.concat_tables(filled), keep="first")


def without_deletes(rows: pa.Table) -> pa.Table:
    """The rows that are there, less the marks of those that are not."""
    ops = rows.column("_op")
    if pc.max(ops).as_py() in (None, 0):
        return rows
    return rows.filter(pc.not_equal(ops, DELETE))


def unique_by_key(rows: pa.Table, *, keep: str) -> pa.Table:
    """Rows sorted by ``_key``; of several with one key, the ``first`` or the ``last`` in their present order."""
    keys = rows.column("_key").combine_chunks()
    order = pc.array_sort_indices(keys)  # stable: rows with one key stay in their order
    ordered = keys.take(order)
    if len(ordered) > 1:
        differs = pc.not_equal(ordered.slice(1), ordered.slice(0, len(ordered) - 1))
        if not pc.all(differs).as_py():
            edge = pa.array([True])
            order = order.filter(pa.concat_arrays([edge, differs] if keep == "first" else [differs, edge]))
    return rows.take(order).combine_chunks()


async def merge(cursors: Sequence[Cursor]) -> AsyncIterator[pa.Table]:
    """The rows of all cursors in key order, deletes included; of one key, the row of the earliest cursor wins.

    Cursors go newest first.
    """
    heads: list[pa.Table | None] = [await cursor.next_block() for cursor in cursors]
    while True:
        live = [i for i, head in enumerate(heads) if head is not None]
        if not live:
            return
        if len(live) == 1:
            i = live[0]
            head = heads[i]
            while head is not None:
                yield head
                head = await cursors[i].next_block()
            return
        bound = min(_last_key(heads[i]) for i in live)
        taken = []
        for i in live:
            head = heads[i]
            assert head is not None
            count = _count_up_to(head, bound)
            if count:
                taken.append(head.slice(0, count))
                heads[i] = head.slice(count) if count < head.num_rows else await cursors[i].next_block()
        yield newest_wins(taken)


def _last_key(rows: pa.Table | None) -> bytes:
    assert rows is not None
    return rows.column("_key")[-1].as_py()  # type: ignore[no-any-return]


def _count_up_to(rows: pa.Table, bound: bytes) -> int:
    """How many of the sorted rows have keys at or below ``bound``, by bisection."""
    keys = rows.column("_key")
    low, high = 0, rows.num_rows
    while low < high:
        middle = (low + high) // 2
        if keys[middle].as_py() <= bound:
            low = middle + 1
        else:
            high = middle
    return low
