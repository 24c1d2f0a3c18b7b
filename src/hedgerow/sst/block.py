"""A decoded block: sorted rows in memory, made to be searched by key.

Searching and handing out single rows is fastest on plain Python lists; building them costs once per block and column.
So a block starts as Arrow columns and turns into lists when it is first asked for a row.
"""

from __future__ import annotations

import bisect
import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from hedgerow.sst.format import DELETE, INTERNAL_COLUMNS

__all__ = ["Block", "Run"]

_ROWS_PER_BLOCK = 8_192
# What a Python object in a list costs beyond its bytes in Arrow, roughly: used only to bound caches.
_OBJECT_BYTES = 56


class Block:
    """Rows sorted by ``_key``, each key once."""

    __slots__ = ("_columns", "_keys", "_names", "_nested", "_ops", "rows")

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self._keys: list[bytes] | None = None
        self._ops: list[int] | None = None
        self._columns: list[list[Any]] | None = None
        fields = list(rows.schema)[len(INTERNAL_COLUMNS) :]
        self._names = [field.name for field in fields]
        self._nested = [field.name for field in fields if pa.types.is_nested(field.type)]

    def find(self, key: bytes) -> int:
        """The row of a key, or -1."""
        keys = self._keys
        if keys is None:
            keys = self._keys = self.rows.column("_key").to_pylist()
        at = bisect.bisect_left(keys, key)
        return at if at < len(keys) and keys[at] == key else -1

    def row(self, at: int) -> dict[str, Any] | None:
        """A row as a dictionary; None where it is a delete."""
        columns = self._columns
        if columns is None:
            self._ops = self.rows.column("_op").to_pylist()
            columns = self._columns = [python_values(self.rows.column(name)) for name in self._names]
        if self._ops[at] == DELETE:  # type: ignore[index]
            return None
        row = {name: column[at] for name, column in zip(self._names, columns, strict=True)}
        for name in self._nested:
            row[name] = copy.deepcopy(row[name])  # the caller's to change; the block is everybody's
        return row

    @property
    def size_bytes(self) -> int:
        """Roughly what this block costs in memory once its lists are built."""
        return int(self.rows.nbytes) + int(self.rows.num_rows) * _OBJECT_BYTES * (len(self._names) + 1)


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """A column as Python values; what no ``datetime`` can hold (nanoseconds, the year 10,000) as NumPy's, row by row."""
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError):
        return [_python_value(value) for value in column]


def _python_value(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        dtype, types = value.type, pa.types
        if types.is_struct(dtype):
            return {field.name: _python_value(value[at]) for at, field in enumerate(dtype)}
        if types.is_map(dtype):
            return [(_python_value(pair[0]), _python_value(pair[1])) for pair in value.values]
        if types.is_nested(dtype):
            return [_python_value(item) for item in value.values]
        unit: Any = "D" if types.is_date32(dtype) else "ms" if types.is_date64(dtype) else dtype.unit
        moment = types.is_timestamp(dtype) or types.is_date(dtype)
        return np.datetime64(value.value, unit) if moment else np.timedelta64(value.value, unit)


class Run:
    """Sorted rows of any number in memory, searched block by block: a WAL SST, or several merged."""

    __slots__ = ("_blocks", "_firsts", "newest", "oldest", "rows")

    def __init__(self, rows: pa.Table, oldest: int = 0, newest: int = 0) -> None:
        """``oldest`` and ``newest``: the WAL slots that the rows come from."""
        self.rows = rows.combine_chunks() if rows.column(0).num_chunks > 1 else rows
        self.oldest = oldest
        self.newest = newest
        self._firsts: list[bytes] | None = None
        self._blocks: list[Block | None] = []

    def find(self, key: bytes) -> tuple[Block, int] | None:
        """Block and row of a key."""
        firsts = self._firsts
        if firsts is None:
            keys = self.rows.column("_key")
            count = self.rows.num_rows
            self._blocks = [None] * -(-count // _ROWS_PER_BLOCK)
            firsts = [keys[at].as_py() for at in range(0, count, _ROWS_PER_BLOCK)]
            self._firsts = firsts
        number = bisect.bisect_right(firsts, key) - 1
        if number < 0:
            return None
        block = self._blocks[number]
        if block is None:
            block = Block(self.rows.slice(number * _ROWS_PER_BLOCK, _ROWS_PER_BLOCK))
            self._blocks[number] = block
        at = block.find(key)
        return None if at < 0 else (block, at)

    @property
    def keys(self) -> Sequence[bytes]:
        """Every key, in order."""
        return self.rows.column("_key").to_pylist()  # type: ignore[no-any-return]
