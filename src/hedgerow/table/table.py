"""Tables for everybody: the synchronous API.

Coroutines run on one background loop per process. What needs no I/O does not go there: a warm ``get`` is a few dictionary
and list look-ups in the caller's own thread, and ``put`` only adds to a buffer.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from hedgerow.engine.reader import MISS
from hedgerow.engine.writer import Writer as EngineWriter
from hedgerow.errors import HedgerowError
from hedgerow.sst import DELETE, PUT
from hedgerow.table.aio import CACHE_BYTES, PARTITIONS, AsyncTable, AsyncWriter, tables_of
from hedgerow.table.core import TableCore, create_table, open_table
from hedgerow.table.inspect import TableReport
from hedgerow.table.loop import Background, background, forked

__all__ = ["Table", "Writer", "create", "open"]

REFRESH_INTERVAL_S = 1.0
_PREFETCHED_BATCHES = 4


def create(
    url: str | Path,
    *,
    schema: pa.Schema | None = None,
    key: Sequence[str] | str | None = None,
    partitions: int = PARTITIONS,
    options: Mapping[str, Any] | None = None,
    records: str | None = None,
    cache_bytes: int = CACHE_BYTES,
    refresh_interval_s: float | None = REFRESH_INTERVAL_S,
) -> Table:
    """Create a table at an address: ``memory://``, ``file://``, ``s3://``, ``gs://`` or ``az://``.

    ``schema`` and ``key`` name the columns, and those among them that identify a row; without both, the table maps bytes
    to bytes. ``partitions`` is how many owners can write at the same time. ``options`` are the store's (endpoint,
    credentials, ...); what is not given comes from the environment. ``records`` is for a store without conditional
    writes: a database that says who created what (``sqlite:///file``, ``postgresql://...``, ``dynamodb://table``);
    it belongs to the table for good. ``TableExists`` where there is a table already.

    >>> table = create("memory://doc-create", schema=pa.schema([("id", pa.int64()), ("name", pa.string())]), key="id")
    >>> with table.writer() as writer:
    ...     done = writer.put({"id": 1, "name": "hawthorn"})
    >>> table.refresh(); table.get(1)
    {'id': 1, 'name': 'hawthorn'}
    """
    loop = background()
    core = loop.run(
        create_table(
            url,
            schema=schema,
            key=key,
            partitions=partitions,
            options=options,
            records=records,
            cache_bytes=cache_bytes,
        )
    )
    return Table(core, loop, refresh_interval_s)


def open(
    url: str | Path,
    *,
    options: Mapping[str, Any] | None = None,
    records: str | None = None,
    cache_bytes: int = CACHE_BYTES,
    refresh_interval_s: float | None = REFRESH_INTERVAL_S,
) -> Table:
    """Open a table. ``TableNotFound`` where there is none.

    A read that finds the view older than ``refresh_interval_s`` starts a refresh in the background and answers at once
    from what it has; None leaves refreshing to you. A table that nobody reads asks the store for nothing.

    >>> _ = create("memory://doc-open")
    >>> open("memory://doc-open").get(b"missing") is None
    True
    """
    loop = background()
    return Table(
        loop.run(open_table(url, options=options, records=records, cache_bytes=cache_bytes)), loop, refresh_interval_s
    )


class Table:
    """A table. Safe to share between threads; not across a fork."""

    def __init__(self, core: TableCore, loop: Background, refresh_interval_s: float | None) -> None:
        self._core = core
        self._loop = loop
        self._twin = AsyncTable(core)
        self._schema = core.schema
        self._reader = core.reader
        self._key_value = core.schema.key_value
        self._interval_s = refresh_interval_s if refresh_interval_s is not None else float("inf")
        self._refreshed_s = time.monotonic()
        self._refreshing = threading.Lock()

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return self._schema.columns

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return self._schema.key

    @property
    def partitions(self) -> int:
        """How many partitions the keys are spread over."""
        return self._schema.partitions

    @property
    def key_value(self) -> bool:
        """Whether the table was made without a schema, and maps bytes to bytes."""
        return self._key_value

    @property
    def url(self) -> str:
        """Where the table is."""
        return self._core.store.url

    def get(self, key: Any) -> Any:
        """The row with this key as a dictionary (of a table without schema: the value), or None.

        >>> _ = create("memory://doc-get")
        >>> table = open("memory://doc-get")
        >>> table.get(b"nothing here") is None
        True
        """
        self._look()
        index, encoded = self._schema.locate(key)
        row: Any = self._reader.get_cached(index, encoded)
        if row is MISS:
            row = self._loop.run(self._reader.get(index, encoded))
        return row["value"] if self._key_value and row is not None else row

    def get_many(self, keys: Iterable[Any]) -> list[Any]:
        """The rows with these keys, in the keys' order; None where there is none."""
        self._look()
        locate = self._schema.locate
        places = [locate(key) for key in keys]
        rows: list[Any] = self._reader.get_cached_many(places)
        if any(row is MISS for row in rows):
            return self._loop.run(self._twin.get_located(places))
        return [row["value"] if row is not None else None for row in rows] if self._key_value else rows

    def scan(self, *, start: Any = None, end: Any = None, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """Rows with ``start <= key < end`` in key order, as a stream of record batches.

        A bound of a composite key may leave out its last columns: ``scan(start=("de",), end=("df",))``.
        """
        self._look()
        self._schema.check_columns(columns)
        self._schema.bound(start), self._schema.bound(end)
        batches = self._twin.scan(start=start, end=end, columns=columns)
        return pa.RecordBatchReader.from_batches(self._twin.scan_schema(columns), _stream(batches, self._loop))

    def to_arrow(self, *, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows, in key order."""
        return self.scan(columns=columns).read_all()

    def refresh(self) -> None:
        """See everything that was durable before this call."""
        self._check()
        self._loop.run(self._reader.refresh())
        self._refreshed_s = time.monotonic()

    def inspect(self) -> TableReport:
        """What the table is made of: partitions, owners, epochs, files."""
        self._check()
        return self._loop.run(self._twin.inspect())

    def writer(self, *, name: str | None = None, **settings: Any) -> Writer:
        """A writer; use it with ``with``. It owns each partition that it touches, at a new epoch.

        Settings: ``flush_interval_s``, ``flush_bytes``, ``buffer_bytes``, ``timeout_s``, ``max_parallel_writes``.
        """
        self._check()
        return Writer(self._loop, AsyncWriter(self._core, name, settings), self._core)

    def close(self) -> None:
        """Release connections."""
        if self._loop.usable:
            self._loop.run(self._twin.close())

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<hedgerow.Table {self.url} key={', '.join(self.key)} partitions={self.partitions}>"

    def _check(self) -> None:
        if not self._loop.usable:
            raise forked()

    def _look(self) -> None:
        """Cheap, before every read: has the process forked, is the view old?"""
        self._check()
        if time.monotonic() - self._refreshed_s > self._interval_s:
            self._refresh_soon()

    def _refresh_soon(self) -> None:
        if not self._refreshing.acquire(blocking=False):
            return
        self._refreshed_s = time.monotonic()

        async def refresh() -> None:
            try:
                await self._reader.refresh()
            except HedgerowError:
                return  # the store is away: reads go on from what there is, and the next one tries again
            finally:
                self._refreshing.release()

        self._loop.start(refresh())


class Writer:
    """Writes rows. Safe to share between threads; not across a fork."""

    def __init__(self, loop: Background, twin: AsyncWriter, core: TableCore) -> None:
        self._loop = loop
        self._twin = twin
        self._core = core
        self._schema = core.schema
        self._engine_or_none: EngineWriter | None = None

    def put(self, row: Any, value: Any = None) -> concurrent.futures.Future[None]:
        """Add or replace a row; of a table without schema, ``put(key, value)``. The future completes when it is durable.

        Blocks while ``buffer_bytes`` are under way, and raises ``BufferFull`` after ``timeout_s``.
        """
        engine = self._engine
        if self._schema.key_value:
            row = {"key": row, "value": value}
        index, key, checked, size_bytes = self._schema.row(row)
        if not engine.has_room:
            engine.wait_for_room_blocking()
        done: concurrent.futures.Future[None] = concurrent.futures.Future()
        engine.put_row(index, key, PUT, checked, size_bytes, done)
        return done

    def delete(self, key: Any) -> concurrent.futures.Future[None]:
        """Delete the row with this key, whether there is one or not. The future completes when that is durable."""
        engine = self._engine
        index, encoded = self._schema.locate(key)
        if not engine.has_room:
            engine.wait_for_room_blocking()
        done: concurrent.futures.Future[None] = concurrent.futures.Future()
        engine.put_row(index, encoded, DELETE, self._schema.key_columns(encoded), 64 + len(encoded), done)
        return done

    def write(self, rows: pa.Table | pa.RecordBatch | pa.RecordBatchReader) -> None:
        """Upsert many rows at once; of several with one key the last one stays. Durable after ``flush``."""
        for table in tables_of(rows):
            self._add(self._schema.rows(table))

    def delete_many(self, keys: Any) -> None:
        """Delete many rows: an iterable of keys, or Arrow rows with the key's columns. Durable after ``flush``."""
        self._add(self._schema.deletes(keys))

    def _add(self, parts: list[tuple[int, pa.Table]]) -> None:
        engine = self._engine
        for index, rows in parts:
            engine.wait_for_room_blocking()
            engine.put_rows(index, rows, None)

    def flush(self) -> None:
        """Everything added before is durable when this returns."""
        self._loop.run(self._engine.flush())

    def get(self, key: Any) -> Any:
        """The row with this key, this writer's own writes included."""
        engine = self._engine
        index, encoded = self._schema.locate(key)
        row = engine.get_cached(index, encoded)
        if row is MISS:
            row = self._loop.run(engine.get(index, encoded))
        return row["value"] if self._schema.key_value and row is not None else row

    def scan(self, *, start: Any = None, end: Any = None, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """Rows in key order, this writer's own writes included. Acquires every partition."""
        names = self._schema.check_columns(columns)
        schema = self._schema.columns
        shown = schema if names is None else pa.schema([schema.field(name) for name in names])
        batches = self._twin.scan(start=start, end=end, columns=columns)
        return pa.RecordBatchReader.from_batches(shown, _stream(batches, self._loop))

    def acquire(self, partitions: Iterable[int] | None = None) -> None:
        """Own partitions now (None: all), in one step, instead of when they are first written."""
        _ = self._engine
        self._loop.run(self._twin.acquire(partitions))

    def validate(self) -> None:
        """Ask whether every partition is still this writer's, without writing anything; else ``Fenced``."""
        self._loop.run(self._engine.validate())

    def close(self, *, flush: bool = True) -> None:
        """Flush, and give the partitions up in an orderly way. ``flush=False`` drops what is not sent."""
        if self._engine_or_none is not None and self._loop.usable:
            self._loop.run(self._twin.close(flush=flush))

    def __enter__(self) -> Writer:
        _ = self._engine
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close(flush=error is None)
        except HedgerowError:
            if error is None:
                raise

    @property
    def _engine(self) -> EngineWriter:
        engine = self._engine_or_none
        if engine is not None and self._loop.usable:
            return engine
        if not self._loop.usable:
            raise forked()
        self._loop.run(self._twin.start())
        self._engine_or_none = self._twin.engine
        return self._twin.engine


def _stream(batches: AsyncIterator[pa.RecordBatch], loop: Background) -> Iterator[pa.RecordBatch]:
    """Batches of a coroutine on the background loop, for a loop of the caller's."""

    async def some() -> list[pa.RecordBatch]:
        taken: list[pa.RecordBatch] = []
        async for batch in batches:
            taken.append(batch)
            if len(taken) == _PREFETCHED_BATCHES:
                break
        return taken

    while taken := loop.run(some()):
        yield from taken
