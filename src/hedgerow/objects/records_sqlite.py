"""Records in one SQLite file, for any number of processes of one machine.

The file is in WAL mode with ``synchronous=FULL``: a commit is answered after it is synced, so a record that was
inserted survives a power failure. The file must lie on a local disk: SQLite's locks and its shared memory do not work
over a network file system, and two machines would each believe they hold the slot.

Calls block, so they run in worker threads, one at a time on one connection. Other processes are waited for.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hedgerow.errors import Corrupt, HedgerowError, InvalidInput, StoreUnavailable, Unauthorized
from hedgerow.objects.records import UNFINISHED, Record, State, check_removal, check_step, prefix_end

__all__ = ["SqliteRecords"]

T = TypeVar("T")
_COLUMNS = "destination, source, checksum, state"
_UNFINISHED = ", ".join(f"'{state}'" for state in UNFINISHED)
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS records (destination TEXT PRIMARY KEY, source TEXT NOT NULL, "
    "checksum TEXT NOT NULL, state TEXT NOT NULL) WITHOUT ROWID",
    f"CREATE INDEX IF NOT EXISTS unfinished ON records (destination) WHERE state IN ({_UNFINISHED})",
)


class SqliteRecords:
    """Records in a file.

    >>> import tempfile
    >>> records = SqliteRecords(Path(tempfile.mkdtemp()) / "records.db")
    >>> asyncio.run(records.insert(Record("a", "a.1", ""))).source
    'a.1'
    >>> asyncio.run(records.insert(Record("a", "a.2", ""))).source
    'a.1'
    >>> asyncio.run(records.close())
    """

    def __init__(self, path: str | Path, *, timeout_s: float = 30.0) -> None:
        """``timeout_s``: how long to wait for other processes that write."""
        self._path = Path(path)
        self._timeout_s = timeout_s
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where this is."""
        return f"sqlite://{self._path.absolute()}"

    async def insert(self, record: Record) -> Record:
        """Insert a record if its destination has none; the one that holds the slot."""
        return await self._in_thread(_insert, record)

    async def get(self, destination: str) -> Record | None:
        """The record of a destination."""
        return await self._in_thread(_get, destination)

    async def unfinished(self, prefix: str) -> Sequence[Record]:
        """The pending, deleting and abandoned records under a prefix; an index of its own keeps this cheap."""
        return await self._in_thread(_under, prefix, f"state IN ({_UNFINISHED})")

    async def spent(self, prefix: str) -> Sequence[Record]:
        """The spent records under a prefix."""
        return await self._in_thread(_under, prefix, "state = 'spent'")

    async def mark(self, destination: str, source: str, from_state: State, to_state: State) -> bool:
        """Take one step, if the record has that source and state."""
        check_step(from_state, to_state)
        statement = "UPDATE records SET state = ? WHERE destination = ? AND source = ? AND state = ?"
        return await self._in_thread(_change, statement, (to_state, destination, source, from_state))

    async def delete(self, destination: str, source: str, state: State) -> bool:
        """Remove the record, if it has that source and state."""
        check_removal(state)
        statement = "DELETE FROM records WHERE destination = ? AND source = ? AND state = ?"
        return await self._in_thread(_change, statement, (destination, source, state))

    async def close(self) -> None:
        """Close the file."""
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    # --- blocking, in a worker thread -----------------------------------------------------------------------

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, self._work, work, arguments)

    def _work(self, work: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._open()
                return work(self._connection, *arguments)
            except (sqlite3.Error, UnicodeError) as error:
                if not getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
                    self._drop()  # after a failure of the disk, say: begin afresh
                raise self._translated(error) from error

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=self._timeout_s, isolation_level=None, check_same_thread=False)
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise InvalidInput(f"{self.url}: SQLite cannot use its write-ahead log here. Choose a local disk.")
            connection.execute("PRAGMA synchronous = FULL")  # durable: a slot that was given away stays given away
            for statement in _SCHEMA:
                connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection

    def _close(self) -> None:
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _translated(self, error: Exception) -> HedgerowError:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
            return Unauthorized(f"{self.url}: {error}. Give this user the right to write the file and its folder.")
        if name.startswith("SQLITE_CANTOPEN"):
            if self._path.parent.is_dir():
                return Unauthorized(f"{self.url}: {error}. Give this user the right to write the file and its folder.")
            return InvalidInput(f"{self.url}: there is no such folder. Create it first.")
        if name == "SQLITE_NOTADB":
            return InvalidInput(f"{self.url}: {error}. Choose another file.")
        if name.startswith("SQLITE_CORRUPT"):
            return Corrupt(f"{self.url}: {error}. Restore it from a copy.")
        if isinstance(error, UnicodeError):
            return InvalidInput(f"{self.url}: a path that is not text cannot be kept: {error}")
        return StoreUnavailable(f"{self.url}: {error}")


def _insert(connection: sqlite3.Connection, record: Record) -> Record:
    connection.execute("BEGIN IMMEDIATE")
    try:
        holder = _get(connection, record.destination)
        if holder is None:
            values = (record.destination, record.source, record.checksum, record.state)
            connection.execute(f"INSERT INTO records ({_COLUMNS}) VALUES (?, ?, ?, ?)", values)
            holder = record
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return holder


def _get(connection: sqlite3.Connection, destination: str) -> Record | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM records WHERE destination = ?", (destination,)).fetchone()
    return None if row is None else Record(*row)


def _under(connection: sqlite3.Connection, prefix: str, condition: str) -> list[Record]:
    # A range, not LIKE: a path may hold '%' and '_', and a range goes through the index.
    statement = f"SELECT {_COLUMNS} FROM records WHERE {condition} AND destination >= ?"
    values = [prefix]
    if (end := prefix_end(prefix)) is not None:
        statement += " AND destination < ?"
        values.append(end)
    return [Record(*row) for row in connection.execute(f"{statement} ORDER BY destination", values)]


def _change(connection: sqlite3.Connection, statement: str, values: tuple[str, ...]) -> bool:
    return connection.execute(statement, values).rowcount == 1
