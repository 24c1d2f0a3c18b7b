"""How far a long command is: a bar on a terminal, a line now and then elsewhere, nothing with ``--quiet``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from hedgerow.cli.report import size_text
from hedgerow.cli.session import console_of

__all__ = ["LoadProgress"]

LINE_INTERVAL_S = 5.0


class LoadProgress:
    """Rows and bytes so far, out of a known number of bytes."""

    def __init__(
        self,
        total_bytes: int,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total_bytes = total_bytes
        self.rows = 0
        self.read_bytes = 0
        self._stream = stream or sys.stderr
        self._clock = clock
        self._began_s = self._line_s = clock()
        self._quiet = quiet
        self._bar: Progress | None = None
        if not quiet and self._stream.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%  {task.fields[facts]}"),
                TimeElapsedColumn(),
                console=console_of(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task("loading", total=max(1, total_bytes), facts="")

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning, never zero."""
        return max(1e-9, self._clock() - self._began_s)

    @property
    def rows_per_s(self) -> float:
        """The rate from the beginning until now."""
        return self.rows / self.elapsed_s

    def advance(self, rows: int, read_bytes: int, what: str) -> None:
        """So many more rows were taken; so many bytes of all files were read."""
        self.rows += rows
        self.read_bytes = min(self.total_bytes, max(self.read_bytes, read_bytes))
        if self._bar is not None:
            self._bar.update(self._task, completed=self.read_bytes, description=what, facts=self._facts())
        elif not self._quiet and self._clock() - self._line_s >= LINE_INTERVAL_S:
            self._line_s = self._clock()
            print(f"{what}: {self._facts()}", file=self._stream, flush=True)

    def __enter__(self) -> LoadProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _facts(self) -> str:
        sizes = f"{size_text(self.read_bytes)} of {size_text(self.total_bytes)}"
        return f"{self.rows:,} rows, {self.rows_per_s:,.0f} rows/s, {sizes}"
