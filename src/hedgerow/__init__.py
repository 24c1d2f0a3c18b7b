"""Hedgerow: fenced, keyed tables on object storage.

>>> import hedgerow as hg, pyarrow as pa
>>> table = hg.create("memory://hedge", schema=pa.schema([("id", pa.int64()), ("name", pa.string())]), key=["id"])
>>> with table.writer() as writer:
...     done = writer.put({"id": 1, "name": "hawthorn"})
>>> table.refresh()
>>> table.get(1)
{'id': 1, 'name': 'hawthorn'}
"""

from hedgerow.errors import (
    BufferFull,
    Closed,
    Conflict,
    Corrupt,
    Fenced,
    Forked,
    HedgerowError,
    InvalidInput,
    OutcomeUnknown,
    ReadExpired,
    StoreUnavailable,
    TableExists,
    TableNotFound,
    Unauthorized,
    UnsafeStore,
    UnsupportedFormat,
)
from hedgerow.table import aio
from hedgerow.table.table import Table, Writer, create, open

__version__ = "0.1.0"

__all__ = [
    "BufferFull",
    "Closed",
    "Conflict",
    "Corrupt",
    "Fenced",
    "Forked",
    "HedgerowError",
    "InvalidInput",
    "OutcomeUnknown",
    "ReadExpired",
    "StoreUnavailable",
    "Table",
    "TableExists",
    "TableNotFound",
    "Unauthorized",
    "UnsafeStore",
    "UnsupportedFormat",
    "Writer",
    "aio",
    "create",
    "open",
]
