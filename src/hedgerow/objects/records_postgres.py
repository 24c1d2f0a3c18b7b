"""Records in a PostgreSQL table, for any number of machines.

Each step is one statement, committed by itself, and the server's own unique index decides who gets a slot. A session
that finds ``synchronous_commit`` off turns it on for itself, because a slot that was given away must stay given away
when the server's power fails. For the same reason a standby that takes over must have everything that was committed:
synchronous replication, or storage that both share.

The table is made on first use where it is missing. Destinations are compared by code point (``COLLATE "C"``), so that
a prefix is a range of the primary key, whatever characters it holds and whatever locale the database has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hedgerow.errors import HedgerowError, InvalidInput, StoreUnavailable, Unauthorized
from hedgerow.objects.records import UNFINISHED, Record, State, check_removal, check_step, prefix_end

if TYPE_CHECKING:
    from psycopg import AsyncConnection

__all__ = ["PostgresRecords"]

_NAME_BYTES_MAX = 63
_INSERTS_MAX = 10
_COLUMNS = "destination, source, checksum, state"
_UNFINISHED = ", ".join(f"'{state}'" for state in UNFINISHED)


class PostgresRecords:
    """Records in a table.

    ``url`` is a connection string of PostgreSQL's own kind. ``table`` may begin with a schema, as in
    ``ledger.hedgerow_records``; upper case and other characters are kept as they are.

    >>> PostgresRecords("postgresql://me:secret@db.example/ledger").url
    'postgresql://db.example/ledger?table=hedgerow_records'
    """

    def __init__(self, url: str, table: str = "hedgerow_records", *, timeout_s: float = 30.0) -> None:
        try:
            import psycopg
        except ImportError:
            raise InvalidInput(
                "PostgreSQL records need psycopg. Install it: pip install 'hedgerow[postgres]'"
            ) from None
        self._psycopg = psycopg
        self._url = url
        names = table.split(".")
        if len(names) > 2 or not all(0 < len(name.encode()) <= _NAME_BYTES_MAX and "\0" not in name for name in names):
            raise InvalidInput(f"{table!r} is not a table's name: one, or two with a dot, of up to 63 bytes each.")
        self._table = psycopg.sql.Identifier(*names)
        self._shown = f"{self._described(url)}?table={quote(table)}"
        self._timeout_s = timeout_s
        self._connection: AsyncConnection[Any] | None = None
        self._turn = asyncio.Lock()

    @property
    def url(self) -> str:
        """Where this is, without user and password."""
        return self._shown

    async def insert(self, record: Record) -> Record:
        """Insert a record if its destination has none; the one that holds the slot."""
        values = (record.destination, record.source, record.checksum, record.state)
        statement = (
            f"INSERT INTO {{table}} ({_COLUMNS}) VALUES (%s, %s, %s, %s) "
            f"ON CONFLICT (destination) DO NOTHING RETURNING {_COLUMNS}"
        )
        for _ in range(_INSERTS_MAX):
            if rows := await self._run(statement, values):
                return rows[0]
            if (holder := await self.get(record.destination)) is not None:
                return holder
        raise StoreUnavailable(f"{self.url}: the record of {record.destination!r} comes and goes.")

    async def get(self, destination: str) -> Record | None:
        """The record of a destination."""
        rows = await self._run(f"SELECT {_COLUMNS} FROM {{table}} WHERE destination = %s", (destination,))
        return rows[0] if rows else None

    async def unfinished(self, prefix: str) -> Sequence[Record]:
        """The pending, deleting and abandoned records under a prefix; an index of its own keeps this cheap."""
        return await self._under(prefix, f"state IN ({_UNFINISHED})")

    async def spent(self, prefix: str) -> Sequence[Record]:
        """The spent records under a prefix; reads every record under it."""
        return await self._under(prefix, "state = 'spent'")

    async def mark(self, destination: str, source: str, from_state: State, to_state: State) -> bool:
        """Take one step, if the record has that source and state."""
        check_step(from_state, to_state)
        statement = (
            "UPDATE {table} SET state = %s WHERE destination = %s AND source = %s AND state = %s "
            f"RETURNING {_COLUMNS}"
        )
        return bool(await self._run(statement, (to_state, destination, source, from_state)))

    async def delete(self, destination: str, source: str, state: State) -> bool:
        """Remove the record, if it has that source and state."""
        check_removal(state)
        statement = f"DELETE FROM {{table}} WHERE destination = %s AND source = %s AND state = %s RETURNING {_COLUMNS}"
        return bool(await self._run(statement, (destination, source, state)))

    async def close(self) -> None:
        """Close the connection."""
        async with self._turn:
            await self._drop()

    # --- one connection, one statement at a time ------------------------------------------------------------

    async def _under(self, prefix: str, condition: str) -> list[Record]:
        # A range, not LIKE: a path may hold '%' and '_', and a range goes through the index.
        statement = f"SELECT {_COLUMNS} FROM {{table}} WHERE {condition} AND destination >= %s"
        values = [prefix]
        if (end := prefix_end(prefix)) is not None:
            statement += " AND destination < %s"
            values.append(end)
        return await self._run(f"{statement} ORDER BY destination", values)

    async def _run(self, statement: str, values: Sequence[str]) -> list[Record]:
        async with self._turn:
            try:
                async with asyncio.timeout(self._timeout_s):
                    if self._connection is None:
                        self._connection = await self._connect()
                    query = self._psycopg.sql.SQL(statement).format(table=self._table)
                    cursor = await self._connection.execute(query, values)
                    return [Record(*row) for row in await cursor.fetchall()]
            except (self._psycopg.Error, TimeoutError, UnicodeError) as error:
                await self._drop()
                raise self._translated(error) from None  # a chained error could quote the address
            except BaseException:
                await self._drop()  # cut off in the middle: nobody knows what the connection would say next
                raise

    async def _connect(self) -> AsyncConnection[Any]:
        connection: AsyncConnection[Any] = await self._psycopg.AsyncConnection.connect(
            self._url,
            autocommit=True,
            prepare_threshold=None,  # poolers between here and the server may not keep prepared statements
        )
        try:
            await connection.execute(
                "SELECT set_config('synchronous_commit', 'on', false) "
                "WHERE current_setting('synchronous_commit') = 'off'"
            )
            await self._make_table(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _make_table(self, connection: AsyncConnection[Any]) -> None:
        # Looked for first: a user who may not create tables can still use one that is there.
        name = self._table.as_string(connection)
        found = await (await connection.execute("SELECT to_regclass(%s) IS NOT NULL", (name,))).fetchone()
        if found is not None and found[0]:
            return
        sql = self._psycopg.sql
        columns = (
            'destination text COLLATE "C" PRIMARY KEY, source text NOT NULL, '
            "checksum text NOT NULL, state text NOT NULL"
        )
        errors = self._psycopg.errors
        try:
            async with connection.transaction():
                await connection.execute(sql.SQL(f"CREATE TABLE {{}} ({columns})").format(self._table))
                await connection.execute(
                    sql.SQL(f"CREATE INDEX ON {{}} (destination) WHERE state IN ({_UNFINISHED})").format(self._table)
                )
        except (errors.DuplicateTable, errors.DuplicateObject, errors.UniqueViolation):
            return  # another process made it in the same moment

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    # --- what to say ----------------------------------------------------------------------------------------

    def _described(self, url: str) -> str:
        """Host and database of a connection string; its parser's own complaints may quote a password."""
        try:
            parts = self._psycopg.conninfo.conninfo_to_dict(url)
        except self._psycopg.Error:
            parts = {"port": "?"}
        host, database = str(parts.get("host") or ""), str(parts.get("dbname") or "")
        ports = str(parts.get("port") or "0").split(",")
        if not all(port.isdigit() for port in ports) or "@" in database:
            raise InvalidInput(
                "postgresql://...: PostgreSQL cannot read that address. Characters such as '/', '@', '?' and '%' in a "
                "password are written as %2F, %40, %3F and %25."
            )
        return f"postgresql://{'' if host.startswith('/') else host}/{database}"

    def _translated(self, error: BaseException) -> HedgerowError:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        problem = f"{self.url}: {lines[0]}"
        state = getattr(error, "sqlstate", None) or ""
        if state.startswith("28") or state == "42501" or _refused(lines[0]):
            return Unauthorized(f"{problem}. Check the user, the password, and the right to use the table.")
        if state.startswith(("22", "3D", "3F", "42")) or isinstance(error, self._psycopg.DataError | UnicodeError):
            return InvalidInput(f"{problem}. Check the address, the table and the path.")
        if isinstance(error, self._psycopg.ProgrammingError) and not state:
            return InvalidInput(f"{self._shown}: PostgreSQL cannot read that address.")
        if isinstance(error, TimeoutError):
            return StoreUnavailable(f"{self.url}: no answer within {self._timeout_s:g} s.")
        return StoreUnavailable(problem)


def _refused(text: str) -> bool:
    """Whether a connection failed over who we are. Such errors come without a code, only as text."""
    return any(part in text for part in ("authentication failed", "no pg_hba.conf entry", "no password supplied")) or (
        "FATAL" in text and "role" in text and "does not exist" in text
    )
