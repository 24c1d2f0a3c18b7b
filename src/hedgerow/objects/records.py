"""Records of a transactional store: who holds a name on an object store that cannot say so itself.

A record is the slot of one destination. Inserting it is the create-if-absent, and its state says how far the copy to
the destination, or its removal, has come. This file holds what a record is, the steps it can take, the protocol of a
store of records, and one in memory. Real ones stand in files of their own: SQLite, PostgreSQL, DynamoDB.

===============  ==============================================================  ==================================
state            meaning                                                         what may follow
===============  ==============================================================  ==================================
(no record)      the name is free                                                insert as ``pending``
``pending``      the object is the source's bytes; the copy may be missing       ``committed``; removal, if void
``committed``    the object was copied                                           ``deleting``
``deleting``     the one process that made this mark deletes the object          removal by it; ``abandoned``
``abandoned``    anybody deletes the object; the record can no longer go away    ``spent``
``spent``        the object is deleted; the name is not to be used again         removal, on an operator's word
===============  ==============================================================  ==================================

Every step names the record's source as well as its destination. A source is a name that one create made up for itself,
so a step that arrives late, after the slot went to somebody else, changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, runtime_checkable
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from hedgerow.errors import InvalidInput

__all__ = [
    "UNFINISHED",
    "MemoryRecords",
    "Record",
    "RecordStore",
    "State",
    "check_removal",
    "check_step",
    "open_records",
    "prefix_end",
]

State: TypeAlias = Literal["pending", "committed", "deleting", "abandoned", "spent"]

UNFINISHED: tuple[State, ...] = ("pending", "deleting", "abandoned")
_STEPS = {
    ("pending", "committed"),
    ("committed", "deleting"),
    ("deleting", "abandoned"),
    ("abandoned", "spent"),
}
_REMOVABLE = ("pending", "deleting", "spent")


class Record(msgspec.Struct, frozen=True):
    """One slot.

    >>> Record("wal/7.sst", source="wal/7.sst.0b1c.9f", checksum="9f").state
    'pending'
    """

    destination: str
    source: str
    checksum: str
    state: State = "pending"


@runtime_checkable
class RecordStore(Protocol):
    """Records, each step of which is atomic and, once answered, durable and seen by everybody.

    A step that fails with ``StoreUnavailable`` may have been carried out, or may be yet. ``Unauthorized`` and
    ``InvalidInput`` are for what trying again will not cure.
    """

    @property
    def url(self) -> str:
        """Where this is, for messages. Never with a password."""
        ...

    async def insert(self, record: Record) -> Record:
        """Insert a record if its destination has none. The record that holds the slot then: this one, or another's."""
        ...

    async def get(self, destination: str) -> Record | None:
        """The record of a destination."""
        ...

    async def unfinished(self, prefix: str) -> Sequence[Record]:
        """The pending, deleting and abandoned records whose destination begins with ``prefix``, in order."""
        ...

    async def spent(self, prefix: str) -> Sequence[Record]:
        """The spent records whose destination begins with ``prefix``, in order. May read every record to find them."""
        ...

    async def mark(self, destination: str, source: str, from_state: State, to_state: State) -> bool:
        """Take one step, if the record has that source and state. Whether this very call took it."""
        ...

    async def delete(self, destination: str, source: str, state: State) -> bool:
        """Remove the record, if it has that source and state. Whether this very call removed it."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


class MemoryRecords:
    """Records in a dictionary: for trying things out, and the ground the simulator stands on.

    >>> import asyncio
    >>> records = MemoryRecords()
    >>> asyncio.run(records.insert(Record("a", "a.1", ""))).source
    'a.1'
    >>> asyncio.run(records.insert(Record("a", "a.2", ""))).source
    'a.1'
    >>> asyncio.run(records.mark("a", "a.2", "pending", "committed"))
    False
    """

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}

    @property
    def url(self) -> str:
        """Where this is."""
        return "memory:"

    async def insert(self, record: Record) -> Record:
        """Insert a record if its destination has none; the one that holds the slot."""
        return self._records.setdefault(record.destination, record)

    async def get(self, destination: str) -> Record | None:
        """The record of a destination."""
        return self._records.get(destination)

    async def unfinished(self, prefix: str) -> Sequence[Record]:
        """The pending, deleting and abandoned records under a prefix."""
        return self._under(prefix, UNFINISHED)

    async def spent(self, prefix: str) -> Sequence[Record]:
        """The spent records under a prefix."""
        return self._under(prefix, ("spent",))

    async def mark(self, destination: str, source: str, from_state: State, to_state: State) -> bool:
        """Take one step, if the record has that source and state."""
        check_step(from_state, to_state)
        if not self._holds(destination, source, from_state):
            return False
        self._records[destination] = msgspec.structs.replace(self._records[destination], state=to_state)
        return True

    async def delete(self, destination: str, source: str, state: State) -> bool:
        """Remove the record, if it has that source and state."""
        check_removal(state)
        if not self._holds(destination, source, state):
            return False
        del self._records[destination]
        return True

    async def close(self) -> None:
        """Nothing to release."""

    def _holds(self, destination: str, source: str, state: State) -> bool:
        record = self._records.get(destination)
        return record is not None and record.source == source and record.state == state

    def _under(self, prefix: str, states: tuple[State, ...]) -> list[Record]:
        return [
            record
            for destination, record in sorted(self._records.items())
            if record.state in states and destination.startswith(prefix)
        ]


def check_step(from_state: State, to_state: State) -> None:
    """Refuse a step that no record can take.

    >>> check_step("deleting", "committed")
    Traceback (most recent call last):
        ...
    hedgerow.errors.InvalidInput: A record cannot go from 'deleting' to 'committed'.
    """
    if (from_state, to_state) not in _STEPS:
        raise InvalidInput(f"A record cannot go from {from_state!r} to {to_state!r}.")


def check_removal(state: State) -> None:
    """Refuse to remove a record in a state that has to be left by another step first.

    >>> check_removal("committed")
    Traceback (most recent call last):
        ...
    hedgerow.errors.InvalidInput: A record that is 'committed' cannot be removed.
    """
    if state not in _REMOVABLE:
        raise InvalidInput(f"A record that is {state!r} cannot be removed.")


def prefix_end(prefix: str) -> str | None:
    """The least text that sorts, by code point, after everything that begins with ``prefix``; None: there is none.

    >>> prefix_end("wal/")
    'wal0'
    >>> prefix_end("") is None
    True
    """
    stem = prefix.rstrip(chr(0x10FFFF))
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if following == 0xD800 else following)  # surrogates are not text


def open_records(url: str) -> RecordStore:
    """The store of records behind an address.

    ==============================================================  ==============================================
    ``sqlite:///data/records.db``                                   one file, for the processes of one machine
    ``postgresql://user@host/database?table=hedgerow_records``      any address that PostgreSQL's own tools take
    ``dynamodb://table?region=eu-west-1&namespace=orders``          also ``endpoint=``, for what speaks its API
    ==============================================================  ==============================================

    >>> open_records("sqlite:///tmp/records.db").url
    'sqlite:///tmp/records.db'
    >>> open_records("mysql://root:secret@host/database")
    Traceback (most recent call last):
        ...
    hedgerow.errors.InvalidInput: mysql://...: unknown kind of record store. Hedgerow knows sqlite, postgresql, dynamodb.
    """
    scheme, separator, _ = url.partition("://") if isinstance(url, str) else ("", "", "")
    scheme = scheme.lower()
    if not separator:
        raise InvalidInput("That is not an address of a record store. Give one like 'sqlite:///data/records.db'.")
    if scheme == "sqlite":
        return _open_sqlite(_split(url))
    if scheme in ("postgresql", "postgres"):
        return _open_postgres(url, _split(url))
    if scheme == "dynamodb":
        return _open_dynamodb(_split(url))
    raise InvalidInput(f"{scheme}://...: unknown kind of record store. Hedgerow knows sqlite, postgresql, dynamodb.")


def _open_sqlite(parts: SplitResult) -> RecordStore:
    from hedgerow.objects.records_sqlite import SqliteRecords

    path = "/" + unquote(parts.path).lstrip("/")
    if parts.netloc or parts.query or parts.fragment or path == "/":
        raise InvalidInput("sqlite://...: an address has three slashes and a file, as in 'sqlite:///data/records.db'.")
    return SqliteRecords(Path(path))


def _open_postgres(url: str, parts: SplitResult) -> RecordStore:
    from hedgerow.objects.records_postgres import PostgresRecords

    tables = [value for name, value in parse_qsl(parts.query, keep_blank_values=True) if name == "table"]
    if not tables:
        return PostgresRecords(url)
    # What is not ours stays as it was written: the rest of the address is for PostgreSQL's own library to read.
    kept = "&".join(part for part in parts.query.split("&") if part.partition("=")[0] != "table")
    return PostgresRecords(parts._replace(query=kept).geturl(), tables[-1])


def _open_dynamodb(parts: SplitResult) -> RecordStore:
    from hedgerow.objects.records_dynamodb import DynamoRecords

    if "@" in parts.netloc:
        raise InvalidInput("dynamodb://...: keep credentials out of the address; give them in the environment.")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(options) - {"region", "endpoint", "namespace"})
    if unknown or parts.path.strip("/") or parts.fragment:
        raise InvalidInput(
            "dynamodb://...: an address is 'dynamodb://table?region=eu-west-1', with endpoint= and namespace= where "
            f"they are needed{'; not ' + ', '.join(unknown) if unknown else ''}."
        )
    return DynamoRecords(
        parts.netloc,
        region=options.get("region"),
        endpoint=options.get("endpoint"),
        namespace=options.get("namespace", "hedgerow"),
    )


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # its text may quote the address, and with it a password
        raise InvalidInput(f"{url.partition('://')[0]}://...: that is not a well-formed address.") from None
