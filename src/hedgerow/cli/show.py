"""Rows on a screen: columns under one another, printed as they come."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from rich.cells import cell_len, set_cell_size

from hedgerow.cli.session import console_of
from hedgerow.cli.values import json_values, text_of

__all__ = ["RowTable", "bytes_text"]

_SAMPLE_ROWS = 200
_CELL_WIDTH_MAX = 48
_GAP = "  "


class RowTable:
    """A table of rows whose end is not known yet: the first rows decide how wide the columns are.

    On a terminal, long values are cut; in a file or a pipe they are whole.
    """

    def __init__(self, schema: pa.Schema, *, binary_as_text: bool = False) -> None:
        self._names = schema.names
        self._right = [pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype)
                       for dtype in schema.types]  # fmt: skip
        self._decode = bytes_text if binary_as_text else None
        self._waiting: list[Sequence[str]] = []
        self._widths: list[int] | None = None
        self._cut = sys.stdout.isatty()

    def add(self, batch: pa.RecordBatch) -> None:
        """Print some rows, or keep them until there are enough to see how wide they are."""
        columns = [_texts(column, self._decode) for column in batch.columns]
        self._waiting.extend(zip(*columns, strict=True))
        if len(self._waiting) >= _SAMPLE_ROWS:
            self._print()

    def finish(self) -> None:
        """Print what is left; the head of the table also where there are no rows."""
        self._print()

    def _print(self) -> None:
        if self._widths is None:
            self._widths = self._measured()
            console = console_of()
            console.print(
                self._line(self._names),
                style="bold",
                markup=False,
                no_wrap=True,
                overflow="ignore",
                crop=False,
            )
            rule = "─" if "utf" in (sys.stdout.encoding or "").lower() else "-"
            sys.stdout.write(_GAP.join(rule * width for width in self._widths) + "\n")
        sys.stdout.writelines(self._line(row) + "\n" for row in self._waiting)
        sys.stdout.flush()
        self._waiting.clear()

    def _measured(self) -> list[int]:
        rows = [self._names, *self._waiting[:_SAMPLE_ROWS]]
        return [min(_CELL_WIDTH_MAX, max(cell_len(row[at]) for row in rows)) for at in range(len(self._names))]

    def _line(self, row: Sequence[str]) -> str:
        assert self._widths is not None
        cells = zip(row, self._widths, self._right, strict=True)
        return _GAP.join(self._cell(text, width, right) for text, width, right in cells).rstrip()

    def _cell(self, text: str, width: int, right: bool) -> str:
        missing = width - (len(text) if text.isascii() else cell_len(text))
        if missing < 0:
            return set_cell_size(text, width - 1) + "…" if self._cut else text
        return " " * missing + text if right else text + " " * missing


def bytes_text(value: bytes) -> str:
    """Bytes that are probably text; what is not shows as escapes.

    >>> bytes_text(b"hedge\\xff")
    'hedge\\\\xff'
    """
    return text_of(value.decode(errors="backslashreplace"))


def _texts(column: pa.Array, decode: Callable[[bytes], str] | None) -> list[str]:
    values: list[Any] = column.to_pylist() if decode and pa.types.is_binary(column.type) else json_values(column)
    return [decode(value) if decode and isinstance(value, bytes) else text_of(value) for value in values]
