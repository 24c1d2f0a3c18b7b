"""Tables for asyncio: every call that may wait is a coroutine.

::

    import hedgerow as hg

    async with await hg.aio.open("s3://bucket/orders") as table:
        row = await table.get(17)
        async with table.writer() as writer:
            done = await writer.put({"order_id": 17, "status": "paid", "amount": 9.5})
            await done                     # durable
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from hedgerow.engine.writer import Writer as EngineWriter
from hedgerow.errors import Closed, HedgerowError, InvalidInput
from hedgerow.sst import DELETE, PUT
from hedgerow.table.core import TableCore, create_table, open_table, settings_of
from hedgerow.table.inspect import TableReport, report

__all__ = ["CACHE_BYTES", "PARTITIONS", "AsyncTable", "AsyncWriter", "create", "open"]

PARTITIONS = 8
CACHE_BYTES = 512 << 20


async def create(
    url: str | Path,
    *,
    schema: pa.Schema | None = None,
    key: Sequence[str] | str | None = None,
    partitions: int = PARTITIONS,
    options: Mapping[str, Any] | None = None,
    records: str | None = None,
    cache_bytes: int = CACHE_BYTES,
) -> AsyncTable:
    """Create a table; ``TableExists`` where there is one. See ``hedgerow.create``.

    >>> table = asyncio.run(create("memory://aio-example"))
    >>> table.key
    ('key',)
    """
    core = await create_table(
        url, schema=schema, key=key, partitions=partitions, options=options, records=records, cache_bytes=cache_bytes
    )
    return AsyncTable(core)


async def open(
    url: str | Path,
    *,
    options: Mapping[str, Any] | None = None,
    records: str | None = None,
    cache_bytes: int = CACHE_BYTES,
) -> AsyncTable:
    """Open a table; ``TableNotFound`` where there is none. See ``hedgerow.open``."""
    return AsyncTable(await open_table(url, options=options, records=records, cache_bytes=cache_bytes))


class AsyncTable:
    """A table, for asyncio."""

    def __init__(self, core: TableCore) -> None:
        self._core = core

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return self._core.schema.columns

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return self._core.schema.key

    @property
    def partitions(self) -> int:
        """How many partitions the keys are spread over."""
        return self._core.schema.partitions

    @property
    def key_value(self) -> bool:
        """Whether the table was made without a schema, and maps bytes to bytes."""
        return self._core.schema.key_value

    @property
    def url(self) -> str:
        """Where the table is."""
        return self._core.store.url

    async def get(self, key: Any) -> Any:
        """The row with this key as a dictionary (of a table without schema: the value), or None."""
        index, encoded = self._core.schema.locate(key)
        return self._plain(await self._core.reader.get(index, encoded))

    async def get_many(self, keys: Iterable[Any]) -> list[Any]:
        """The rows with these keys, in the keys' order; None where there is none."""
        return await self.get_located([self._core.schema.locate(key) for key in keys])

    async def get_located(self, places: Sequence[tuple[int, bytes]]) -> list[Any]:
        """The same for keys whose partitions and encodings are known."""
        return [self._plain(row) for row in await self._core.reader.get_many(places)]

    async def scan(
        self, *, start: Any = None, end: Any = None, columns: Sequence[str] | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        """Rows with ``start <= key < end`` in key order, as record batches. A bound may be a prefix of a composite key."""
        schema = self._core.schema
        wanted = schema.check_columns(columns)
        low, high = schema.bound(start), schema.bound(end)
        everything = range(schema.partitions)
        async for rows in self._core.reader.scan(everything, low, high, wanted):
            for batch in _visible(rows, self.scan_schema(columns)):
                yield batch

    def scan_schema(self, columns: Sequence[str] | None) -> pa.Schema:
        """The columns of a scan's batches."""
        schema = self._core.schema.columns
        return schema if columns is None else pa.schema([schema.field(name) for name in columns])

    async def to_arrow(self, *, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows, in key order."""
        batches = [batch async for batch in self.scan(columns=columns)]
        return pa.Table.from_batches(batches, self.scan_schema(columns))

    async def refresh(self) -> None:
        """See everything that was durable before this call."""
        await self._core.reader.refresh()

    async def inspect(self) -> TableReport:
        """What the table is made of: partitions, owners, epochs, files."""
        return await report(self._core)

    def writer(self, *, name: str | None = None, **settings: Any) -> AsyncWriter:
        """A writer, to be used with ``async with``. It owns each partition that it touches, at a new epoch."""
        return AsyncWriter(self._core, name, settings)

    async def close(self) -> None:
        """Release connections."""
        await self._core.store.close()

    async def __aenter__(self) -> AsyncTable:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _plain(self, row: dict[str, Any] | None) -> Any:
        return row["value"] if row is not None and self._core.schema.key_value else row


class AsyncWriter:
    """Writes rows, for asyncio."""

    def __init__(self, core: TableCore, name: str | None, settings: Mapping[str, Any]) -> None:
        self._core = core
        self._name = name
        self._settings = settings_of(settings)
        self._engine: EngineWriter | None = None

    async def put(self, row: Any, value: Any = None) -> asyncio.Future[None]:
        """Add or replace a row; of a table without schema, ``put(key, value)``. The future completes when it is durable.

        Waits while ``buffer_bytes`` are under way, and raises ``BufferFull`` after ``timeout_s``.
        """
        engine = self._running()
        if self._core.schema.key_value:
            row = {"key": row, "value": value}
        index, key, checked, size_bytes = self._core.schema.row(row)
        await engine.wait_for_room()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(_seen)
        engine.put_row(index, key, PUT, checked, size_bytes, done)
        return done

    async def delete(self, key: Any) -> asyncio.Future[None]:
        """Delete the row with this key, whether there is one or not. The future completes when that is durable."""
        engine = self._running()
        index, encoded = self._core.schema.locate(key)
        await engine.wait_for_room()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.add_done_callback(_seen)
        engine.put_row(index, encoded, DELETE, self._core.schema.key_columns(encoded), 64 + len(encoded), done)
        return done

    async def write(self, rows: pa.Table | pa.RecordBatch | pa.RecordBatchReader) -> None:
        """Upsert many rows at once; of several with one key the last one stays. Durable after ``flush``."""
        for table in tables_of(rows):
            await self._add(await self._core.environment.offload(self._core.schema.rows, table))

    async def delete_many(self, keys: Any) -> None:
        """Delete many rows: an iterable of keys, or Arrow rows with the key's columns. Durable after ``flush``."""
        await self._add(self._core.schema.deletes(keys))

    async def _add(self, parts: list[tuple[int, pa.Table]]) -> None:
        engine = self._running()
        for index, rows in parts:
            await engine.wait_for_room()
            engine.put_rows(index, rows, None)

    async def flush(self) -> None:
        """Everything added before is durable when this returns."""
        await self._running().flush()

    async def get(self, key: Any) -> Any:
        """The row with this key, this writer's own writes included."""
        index, encoded = self._core.schema.locate(key)
        row = await self._running().get(index, encoded)
        return row["value"] if row is not None and self._core.schema.key_value else row

    async def scan(
        self, *, start: Any = None, end: Any = None, columns: Sequence[str] | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        """Rows in key order, this writer's own writes included. Acquires every partition."""
        schema = self._core.schema
        wanted = schema.check_columns(columns)
        shown = schema.columns if wanted is None else pa.schema([schema.columns.field(name) for name in wanted])
        everything = range(schema.partitions)
        async for rows in self._running().scan(everything, schema.bound(start), schema.bound(end), wanted):
            for batch in _visible(rows, shown):
                yield batch

    async def acquire(self, partitions: Iterable[int] | None = None) -> None:
        """Own partitions now (None: all), in one step, instead of when they are first written."""
        count = self._core.schema.partitions
        wanted = list(range(count) if partitions is None else partitions)
        if any(not isinstance(index, int) or not 0 <= index < count for index in wanted):
            raise InvalidInput(f"The table has the partitions 0 to {count - 1}.")
        await self._running().acquire(wanted)

    async def validate(self) -> None:
        """Ask whether every partition is still this writer's, without writing anything; else ``Fenced``."""
        await self._running().validate()

    async def close(self, *, flush: bool = True) -> None:
        """Flush, and give the partitions up in an orderly way. ``flush=False`` drops what is not sent."""
        if self._engine is not None:
            await self._engine.close(flush=flush)

    async def start(self) -> AsyncWriter:
        """Begin, without ``async with``."""
        if self._engine is None:
            self._engine = self._core.start_writer(self._name, self._settings)
        return self

    async def __aenter__(self) -> AsyncWriter:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.close(flush=error is None)
        except HedgerowError:
            if error is None:
                raise

    @property
    def engine(self) -> EngineWriter:
        """What does the work, once it has begun."""
        return self._running()

    def _running(self) -> EngineWriter:
        if self._engine is None:
            raise Closed("This writer has not begun. Use it with 'async with', or await its start().")
        return self._engine


def tables_of(rows: Any) -> Iterable[pa.Table]:
    """Arrow rows of any kind, as tables of bounded size."""
    if isinstance(rows, pa.Table):
        return _bounded(rows)
    if isinstance(rows, pa.RecordBatch):
        return _bounded(pa.Table.from_batches([rows]))
    if isinstance(rows, pa.RecordBatchReader):
        return (table for batch in rows for table in _bounded(pa.Table.from_batches([batch])))
    raise InvalidInput(
        f"write() takes a pyarrow Table, RecordBatch or RecordBatchReader, not {type(rows).__name__}. "
        "For rows as dictionaries use put(), or pyarrow.Table.from_pylist()."
    )


_CHUNK_BYTES = 64 << 20
_BATCH_ROWS = 65_536


def _bounded(table: pa.Table) -> Iterable[pa.Table]:
    """Pieces that stay clear of Arrow's limit of 2 GiB of text in one column."""
    if table.nbytes <= _CHUNK_BYTES or table.num_rows <= 1:
        yield table
        return
    step = max(1, table.num_rows * _CHUNK_BYTES // table.nbytes)
    for at in range(0, table.num_rows, step):
        yield table.slice(at, step)


def _visible(rows: pa.Table, schema: pa.Schema) -> Iterable[pa.RecordBatch]:
    """Only the columns that were asked for, in the types that were declared."""
    return [
        pa.RecordBatch.from_arrays([column.cast(field.type) if column.type != field.type else column
                                    for column, field in zip(batch.columns, schema, strict=True)], schema=schema)
        for batch in rows.select(schema.names).to_batches(max_chunksize=_BATCH_ROWS)
        if batch.num_rows
    ]  # fmt: skip


def _seen(future: asyncio.Future[None]) -> None:
    """A caller that never looks at its future has chosen not to know; flush() will tell it."""
    if not future.cancelled():
        future.exception()
