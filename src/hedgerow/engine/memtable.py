"""Rows that wait to be written: a partition's buffer, searchable while it fills.

Single rows gather in a dictionary, tables arrive sorted and stay as they are. Chunks are kept in the order they came, so
that the newest row of a key is found by looking at the newest chunk first.
"""

from __future__ import annotations

import copy
from typing import Any, Final, Protocol

import pyarrow as pa

from hedgerow.errors import HedgerowError
from hedgerow.sst import DELETE, Run, newest_wins

__all__ = ["ABSENT", "Acknowledgement", "Memtable"]


class Acknowledgement(Protocol):
    """What is told when rows are durable, or are not going to be: a future of either kind."""

    def set_result(self, result: None, /) -> None:
        """The rows are durable."""
        ...

    def set_exception(self, exception: HedgerowError, /) -> None:
        """They are not, or nobody knows."""
        ...


class _Absent:
    """Stands for "not in here": a delete is a finding, too."""


ABSENT: Final = _Absent()
_Rows = dict[bytes, tuple[int, int, dict[str, Any]]]


class Memtable:
    """What one WAL SST will hold."""

    __slots__ = ("_chunks", "_next_seq", "_run", "acknowledgements", "rows", "size_bytes")

    def __init__(self) -> None:
        self._chunks: list[_Rows | Run] = []
        self._next_seq = 0
        self._run: Run | None = None
        self.acknowledgements: list[Acknowledgement] = []
        self.rows = 0
        self.size_bytes = 0

    def put_row(self, key: bytes, operation: int, row: dict[str, Any], size_bytes: int) -> None:
        """One row; of a delete, ``row`` holds only the key's columns."""
        if self._chunks and isinstance(self._chunks[-1], dict):
            chunk = self._chunks[-1]
        else:
            chunk = {}
            self._chunks.append(chunk)
        chunk[key] = (self._next_seq, operation, row)
        self._next_seq += 1
        self.rows += 1
        self.size_bytes += size_bytes

    def put_rows(self, rows: pa.Table) -> None:
        """Sorted rows with unique keys, with the columns of an SST."""
        self._chunks.append(Run(rows))
        self._next_seq += rows.num_rows
        self.rows += rows.num_rows
        self.size_bytes += rows.nbytes

    def find(self, key: bytes) -> dict[str, Any] | _Absent | None:
        """The newest row of a key: a row, None for a delete, ``ABSENT`` where this buffer has nothing to say."""
        for chunk in reversed(self._chunks):
            if isinstance(chunk, dict):
                found = chunk.get(key)
                if found is not None:
                    return None if found[1] == DELETE else copy.deepcopy(found[2])
            else:
                place = chunk.find(key)
                if place is not None:
                    return place[0].row(place[1])
        return ABSENT

    def merged(self, schema: pa.Schema) -> pa.Table:
        """All rows sorted, of every key the newest, while the buffer may go on filling."""
        tables = [_table(chunk, schema) if isinstance(chunk, dict) else chunk.rows for chunk in self._chunks]
        return newest_wins(tables[::-1]) if tables else schema.empty_table()

    def to_run(self, schema: pa.Schema) -> Run:
        """The same, once the buffer is frozen. Kept, because it is asked for more than once."""
        if self._run is None:
            self._run = Run(self.merged(schema))
        return self._run

    def __bool__(self) -> bool:
        return bool(self._chunks)


def _table(rows: _Rows, schema: pa.Schema) -> pa.Table:
    ordered = sorted(rows.items())
    values = [item[1] for item in ordered]
    arrays = [
        pa.array([key for key, _ in ordered], pa.binary()),
        pa.array([operation for _, operation, _ in values], pa.int8()),
        pa.array([seq for seq, _, _ in values], pa.int64()),
    ]
    arrays += [pa.array([row.get(field.name) for _, _, row in values], field.type) for field in list(schema)[3:]]
    return pa.Table.from_arrays(arrays, schema=schema)
