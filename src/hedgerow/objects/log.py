"""The numbered log: an append-only history on an object store, shared by any number of clients.

Theory of operation
-------------------
Entries are objects named by number: ``00000000000000000042.manifest``. An entry is created once and never changed.
Appending is creating the next number; of two clients that try, one wins and the other looks again. Nothing else is
asked of the store: create-if-absent, get, list, delete.

Old entries are collected, and that is where a naive log breaks: a client that slept sees the number after the last one
it knows *free* (it was collected) and creates there, starting a second history that it alone believes in. Hence:

* **The newest entry is the highest number of a listing**, never "the next number that is free".
* **The highest entry is never deleted**, so a listing always shows the true end.
* Every entry carries the **floor**: nothing at or above it was ever deleted. It only rises, and it is raised by an
  append *before* anything is deleted.
* **After a create, the log is listed again.** Ours is the highest: it is part of history. Something higher stands:
  its floor decides. A floor at or below our number means that our slot was never emptied, so our create was the first
  and only one: success. A floor above our number means that we may have created into a hole: *unknown*.
* Every entry names the write id of the one before it, so a chain that is read is checked link by link.

An entry is either *whole* (its payload says everything) or a *change* to the one before; each names its **base**, the
last whole entry. Reading the log is reading the base and the changes after it. The base of the highest entry is never
below the floor.

Bytes of an entry, little-endian::

    magic "HEDGELOG" | version u16 | zero u16 | zero u32 | log id 16 | number u64 | write id 16 | previous write id 16
    | floor u64 | base u64 | payload length u64 | payload | XXH3-64 of everything before it u64
"""

from __future__ import annotations

import asyncio
import itertools
import re
import struct
from collections.abc import Sequence

import msgspec
import xxhash

from hedgerow.errors import Conflict, Corrupt, InvalidInput, ObjectNotFound, OutcomeUnknown, UnsupportedFormat
from hedgerow.objects.create import RetryPolicy, create_or_read, with_retries
from hedgerow.objects.environment import Environment
from hedgerow.objects.store import ObjectStore

__all__ = ["Entry", "LogConflict", "NumberedLog", "decode_entry", "encode_entry"]

FORMAT_VERSION = 1
_MAGIC = b"HEDGELOG"
_HEADER = struct.Struct("<8sHHI16sQ16s16sQQQ")
_CHECKSUM = struct.Struct("<Q")
_NOBODY = bytes(16)
_READS_AT_ONCE = 32
_RELOADS_MAX = 100


class LogConflict(Conflict):
    """Another client appended first. Load what is new, decide again, append again."""


class Entry(msgspec.Struct, frozen=True):
    """One entry of a log.

    >>> Entry(log_id=bytes(16), number=7, write_id=bytes(16), previous=bytes(16), floor=1, base=7, payload=b"").whole
    True
    """

    log_id: bytes
    number: int
    write_id: bytes
    previous: bytes
    floor: int
    base: int
    payload: bytes

    @property
    def whole(self) -> bool:
        """Whether the payload says everything, rather than what changed."""
        return self.base == self.number


def encode_entry(entry: Entry) -> bytes:
    """The bytes of an entry."""
    _check(entry)
    head = _HEADER.pack(
        _MAGIC, FORMAT_VERSION, 0, 0, entry.log_id, entry.number, entry.write_id, entry.previous,
        entry.floor, entry.base, len(entry.payload),
    )  # fmt: skip
    body = head + entry.payload
    return body + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(body))


def decode_entry(data: bytes, name: str) -> Entry:
    """The entry that ``data`` holds; ``name`` is the object's, for messages."""
    if len(data) < 10 or data[:8] != _MAGIC:
        raise Corrupt(f"{name} is not an entry of a log: it does not begin with {_MAGIC.decode()}.")
    version = int.from_bytes(data[8:10], "little")
    if version > FORMAT_VERSION:
        raise UnsupportedFormat(
            f"{name} has log format {version}; this Hedgerow reads up to {FORMAT_VERSION}. Upgrade Hedgerow."
        )
    if len(data) < _HEADER.size + _CHECKSUM.size:
        raise Corrupt(f"{name} is cut off after {len(data)} bytes.")
    (expected,) = _CHECKSUM.unpack_from(data, len(data) - _CHECKSUM.size)
    if xxhash.xxh3_64_intdigest(data[: -_CHECKSUM.size]) != expected:
        raise Corrupt(f"{name} is damaged: its checksum does not match. Restore it from a copy of the bucket.")
    _, _, _, _, log_id, number, write_id, previous, floor, base, length = _HEADER.unpack_from(data)
    payload = data[_HEADER.size : -_CHECKSUM.size]
    if len(payload) != length:
        raise Corrupt(f"{name} holds {len(payload)} bytes of payload where {length} are announced.")
    return Entry(log_id, number, write_id, previous, floor, base, payload)


class NumberedLog:
    """One log in one folder of a store. Keeps no state but the log's id: whoever calls remembers what it has read."""

    def __init__(
        self,
        store: ObjectStore,
        folder: str,
        suffix: str,
        environment: Environment,
        policy: RetryPolicy | None = None,
        log_id: bytes | None = None,
    ) -> None:
        self._store = store
        self._folder = folder.rstrip("/") + "/"
        self._suffix = suffix
        self._name = re.compile(re.escape(self._folder) + r"(\d{20})" + re.escape(suffix))
        self._environment = environment
        self._policy = policy or RetryPolicy()
        self.log_id = log_id

    def path(self, number: int) -> str:
        """The object's path.

        >>> from hedgerow.objects.memory import MemoryStore
        >>> NumberedLog(MemoryStore(), "manifest", ".manifest", Environment()).path(42)
        'manifest/00000000000000000042.manifest'
        """
        return f"{self._folder}{number:020d}{self._suffix}"

    async def newest_number(self, known: int = 0) -> int:
        """The highest number, by a listing that starts after ``known``; ``known`` itself when there is none above."""
        numbers = await self.numbers(known)
        return numbers[-1] if numbers else known

    async def numbers(self, after: int = 0) -> list[int]:
        """The numbers in the folder above ``after``, in order."""
        start = self.path(after) if after else ""
        lines = await with_retries(lambda: self._store.list(self._folder, after=start), self._environment, self._policy)
        return [int(match[1]) for line in lines if (match := self._name.fullmatch(line.path))]

    async def read(self, number: int) -> Entry:
        """One entry, checked. ``ObjectNotFound`` where it was collected."""
        entry = await self._read(number)
        if self.log_id is None:
            self.log_id = entry.log_id
        elif entry.log_id != self.log_id:
            name = f"{self._store.url}/{self.path(number)}"
            raise Corrupt(f"{name} belongs to another table ({entry.log_id.hex()}, not {self.log_id.hex()}).")
        return entry

    async def _read(self, number: int) -> Entry:
        path = self.path(number)
        data = await with_retries(lambda: self._store.get(path), self._environment, self._policy)
        name = f"{self._store.url}/{path}"
        entry = decode_entry(data, name)
        if entry.number != number:
            raise Corrupt(f"{name} holds entry {entry.number}: one object was put in another's place.")
        return entry

    async def load(self, known: Entry | None = None) -> Sequence[Entry]:
        """What is new since ``known``: nothing, the changes after it, or a whole entry and the changes after that."""
        missed = 0
        for _ in range(_RELOADS_MAX):
            start = known.number if known else 0
            newest = await self.newest_number(start)
            if newest == start:
                return []
            try:
                chain = await self._chain(newest, known)
            except ObjectNotFound as error:
                if newest == missed:  # who collects appends first, so there would be something newer
                    raise Corrupt(f"{error} Entry {newest} needs it: it was lost or deleted.") from error
                missed = newest
                continue  # collected while we read
            if chain is not None:
                return chain
            known = None  # what we knew is not part of history: read from the base
        raise Conflict(f"{self._store.url}/{self._folder}: entries vanish faster than they can be read. Try again.")

    async def load_at(self, number: int) -> Sequence[Entry]:
        """The state as of one entry: its base and the changes up to it. ``ObjectNotFound`` where it was collected."""
        chain = await self._chain(number, None)
        assert chain is not None
        return chain

    async def append(
        self,
        head: Entry | None,
        payload: bytes,
        *,
        whole: bool,
        floor: int | None = None,
        write_id: bytes | None = None,
    ) -> Entry:
        """Append after ``head``, the newest entry the caller has seen (None: the log's first entry).

        ``LogConflict``: somebody else was first, nothing was appended. ``OutcomeUnknown``: the entry may be part of
        history or may have fallen into a hole; look for its write id in what is newest.
        """
        if self.log_id is None:
            self.log_id = head.log_id if head else self._environment.new_id()
        number = head.number + 1 if head else 1
        entry = Entry(
            log_id=self.log_id,
            number=number,
            write_id=write_id or self._environment.new_id(),
            previous=head.write_id if head else _NOBODY,
            floor=max(floor or 1, head.floor if head else 1),
            base=number if whole or head is None else head.base,
            payload=payload,
        )
        data = encode_entry(entry)
        path = self.path(number)
        other = await create_or_read(self._store, path, data, self._environment, self._policy)
        if other is not None:
            raise LogConflict(f"{self._store.url}/{path} was appended by another client first.")
        await self._confirm(entry)
        return entry

    async def _confirm(self, entry: Entry) -> None:
        """Durable: nothing is acknowledged on an entry that may lie in a collected hole."""
        for _ in range(_RELOADS_MAX):
            newest = await self.newest_number(entry.number)
            if newest == entry.number:
                return
            try:
                top = await self._read(newest)
            except ObjectNotFound:
                continue
            if top.log_id != entry.log_id:
                raise LogConflict(f"{self._store.url}/{self._folder} holds another log, founded before.")
            if top.floor > entry.number:
                raise OutcomeUnknown(
                    f"{self._store.url}/{self.path(entry.number)} was appended, but the log has moved on to {newest} "
                    f"and collected everything below {top.floor}: the entry may not be part of history."
                )
            return
        raise OutcomeUnknown(f"{self._store.url}/{self.path(entry.number)}: the log moves on too fast to confirm it.")

    async def _chain(self, newest: int, known: Entry | None) -> Sequence[Entry] | None:
        """The entries from the base (or after ``known``) to ``newest``; None where ``known`` is not below ``newest``."""
        last = await self.read(newest)
        after_known = known is not None and last.base <= known.number
        first = known.number + 1 if known is not None and after_known else last.base
        limit = asyncio.Semaphore(_READS_AT_ONCE)

        async def read(number: int) -> Entry:
            async with limit:
                return await self.read(number)

        chain = [*await asyncio.gather(*(read(number) for number in range(first, newest))), last]
        if known is not None and after_known and chain[0].previous != known.write_id:
            return None
        if not after_known and not chain[0].whole:
            raise Corrupt(f"{self._store.url}/{self.path(first)} is named as a whole entry, and is a change.")
        for before, after in itertools.pairwise(chain):
            if after.previous != before.write_id:
                raise Corrupt(
                    f"{self._store.url}/{self.path(after.number)} does not follow from the entry before it: "
                    "an object was replaced."
                )
        return chain


def _check(entry: Entry) -> None:
    if not 1 <= entry.number < 1 << 63:
        raise InvalidInput(f"A log's numbers go from 1 to 2**63, not {entry.number}.")
    if not 1 <= entry.floor <= entry.base <= entry.number:
        raise InvalidInput(f"Entry {entry.number}: floor {entry.floor} <= base {entry.base} <= number does not hold.")
    if not len(entry.log_id) == len(entry.write_id) == len(entry.previous) == 16:
        raise InvalidInput("Ids of a log's entries have 16 bytes.")
