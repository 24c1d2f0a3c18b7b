"""Two-phase writes: create-if-absent on a store that has none, with the help of a transactional store.

Theory of operation
-------------------
**The record is the slot.** Of all that try, one inserts the record of a destination, and from then on the object *is*
the bytes of that record's source. The copy at the destination, under its usual name, is what readers read; until it is
there, whoever misses it makes it. What is left after a crash at each step:

====  ==================================  =================================================================================
step  create                              a crash right after it
====  ==================================  =================================================================================
1     look: taken? then ``ObjectExists``  nothing happened
2     put the bytes at a temporary name   an orphan, which nobody reads; ``orphans`` lists it
3     insert the record, *pending*        **created**: a get, a list or ``recover`` does the rest
4     copy temporary to destination       created; as above, where the copy is found and not made again
5     mark the record *committed*         created; the temporary is an orphan
6     delete the temporary                done
====  ==================================  =================================================================================

====  ==================================  =================================================================================
step  delete (of a committed record)      a crash right after it
====  ==================================  =================================================================================
1     mark it *deleting*                  the object is still there, for everybody; ``recover`` does the rest
2     delete the temporary, if any        the same
3     delete the object                   **deleted**; ``recover`` does the rest
4     remove the record                   done: the name is free
====  ==================================  =================================================================================

Whoever finishes another's delete marks the record *abandoned* first and *spent* last, and does not remove it.

Anything may be late: a process sleeps for days between two steps, a request that was given up on is carried out next
week. Six rules make that harmless, and each has a test that fails without it.

* **A temporary name is put once.** It holds a fresh id; an attempt with an unknown outcome is never repeated under the
  same name. So a temporary that was deleted stays deleted.
* **The temporary goes before the object, and both before the record.** A copy succeeds only while its source is there,
  so a copy that is late falls into the life of its own record, where it repeats the bytes that stand there already, or
  comes before the object's deletion, which takes it away. It never brings back, and never overwrites, anything.
* **A record is removed only by the one process that deletes the object, after its deletes were answered.** A delete
  says only a name, so one that is late would hit the next object of that name. Where a second process helped, or an
  answer was lost, such a delete may be under way; then the name is *spent*: it stays taken for good. That costs a row
  for each delete that went wrong. ``forget`` removes those rows, on an operator's word that nothing old still runs.
  What was put has no record, and gets one while it is deleted, so that no create comes between.
* **A miss is looked at twice.** After "not found" the record is read, and where there is one the object is read again:
  it may have been copied in between.
* **Listings recover first**, and fail where they cannot: an object that was created and not yet copied is in no page.
* **A void record is removed.** Its source is gone and its copy was never made, because the temporary was taken for an
  orphan (or the insert arrived after everything else). Nobody ever saw its bytes. In the order *copy fails, object
  missing, record still pending* this is certain, for no copy can succeed any more.

*An object whose record says deleting is still there*: it is in listings and a get returns it, until it is deleted. That
one moment ends it for get and list alike. To hide it earlier would take a look at the record for every get, or a list
and a get that contradict each other. Those who delete here delete what nothing points to any more, so nobody minds.

What is taken for granted:

* The store's copy is carried out by the store, in one request, and fails where its source is missing. A copy that is
  read here and written back later would bring back what was deleted meanwhile. Even a store reads first and writes
  after; should a whole delete, all four steps, fit into that moment, the object comes back, as one without a record.
* A put or delete that was answered is over. Where the store's client sends one again by itself after a timeout, the
  first must not be carried out after the second was answered; only such an echo could reach beyond a record's life.
* Temporaries are deleted by nobody but this class, or by a collector that asks ``orphans``. No lifecycle rules for them:
  a create may be answered when only its temporary is there.
* Names that are created are not also ``put`` or copied to.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NoReturn, TypeVar

import msgspec
import xxhash

from hedgerow.errors import InvalidInput, ObjectExists, ObjectNotFound, StoreUnavailable
from hedgerow.objects.create import RetryPolicy, with_retries
from hedgerow.objects.environment import Environment
from hedgerow.objects.records import Record, RecordStore
from hedgerow.objects.store import ObjectMeta, PlainStore

__all__ = ["ORPHAN_AGE_MIN_MS", "TwoPhaseStore"]

ORPHAN_AGE_MIN_MS = 3_600_000
"""A temporary younger than this is never an orphan."""

T = TypeVar("T")
U = TypeVar("U")
_TEMPORARY = re.compile(r"(?P<destination>.+)\.[0-9a-f]{32}\.[0-9a-f]{16}", re.DOTALL)
_AT_ONCE = 16
_STARTS_MAX = 4
_CLAIMS_MAX = 20


class _Fate(enum.Enum):
    """What became of a pending record that somebody tried to finish."""

    DONE = "the object was copied"
    VOID = "it was void, and we removed it"
    GONE = "somebody else removed it, void or deleted"


class TwoPhaseStore:
    """An object store with create-if-absent, made of one without and a store of records.

    >>> from hedgerow.objects.memory import MemoryStore
    >>> from hedgerow.objects.records import MemoryRecords
    >>> store = TwoPhaseStore(MemoryStore(), MemoryRecords(), Environment(), RetryPolicy())
    >>> asyncio.run(store.create("wal/1", b"row"))
    >>> asyncio.run(store.create("wal/1", b"other"))
    Traceback (most recent call last):
        ...
    hedgerow.errors.ObjectExists: memory:///wal/1 exists.
    >>> asyncio.run(store.get("wal/1"))
    b'row'
    """

    two_phase = True
    """What a table notes of its store when it is made: records and no records must never be mixed."""

    def __init__(
        self,
        plain: PlainStore,
        records: RecordStore,
        environment: Environment,
        policy: RetryPolicy | None = None,
    ) -> None:
        self._plain = plain
        self._records = records
        self._environment = environment
        self._policy = policy or RetryPolicy()

    @property
    def url(self) -> str:
        """Where the objects are."""
        return self._plain.url

    async def create(self, path: str, data: bytes) -> None:
        """Store an object if there is none. ``ObjectExists`` means that these bytes are not there and never will be."""
        self._check_name(path)
        for _ in range(_STARTS_MAX):
            if await self._create_once(path, data):
                return
        raise StoreUnavailable(f"{self.url}/{path}: its temporary object is deleted again and again.")

    async def put(self, path: str, data: bytes) -> None:
        """Store an object under a name that nobody creates."""
        self._check_name(path)
        await self._plain.put(path, data)

    async def get(self, path: str) -> bytes:
        """The whole object. A miss costs a look at the record."""
        return await self._read(path, lambda: self._plain.get(path))

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        """Part of an object. A miss costs a look at the record."""
        return await self._read(path, lambda: self._plain.get_range(path, start, length))

    async def list(self, prefix: str, *, after: str = "") -> Sequence[ObjectMeta]:
        """Every object under the prefix, after ``after``, in order; without temporaries."""
        unfinished = await self._records.unfinished(prefix)
        # Complete: everything created before this call is copied before the first page is read.
        await _each(
            self._finish,
            (record for record in unfinished if record.state == "pending" and record.destination > after),
        )
        lines = await self._plain.list(prefix, after=after)
        return [line for line in lines if not _TEMPORARY.fullmatch(line.path)]

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; one that is not there is no error."""
        # Once each: a path that is given twice would have us take over from ourselves.
        paths = list(dict.fromkeys(paths))
        temporaries = [path for path in paths if _TEMPORARY.fullmatch(path)]
        if temporaries:
            await self._plain.delete(temporaries)
        held = await _each(self._held, (path for path in paths if not _TEMPORARY.fullmatch(path)))
        await self._delete_claimed([record for record in held if record is not None])

    async def copy(self, source: str, destination: str) -> None:
        """Copy an object to a name that nobody creates."""
        self._check_name(destination)
        await self._plain.copy(source, destination)

    async def close(self) -> None:
        """Release the connections of both stores."""
        try:
            await self._plain.close()
        finally:
            await self._records.close()

    # --- after a crash --------------------------------------------------------------------------------------

    async def recover(self, prefix: str = "") -> int:
        """Finish every create and delete under the prefix that somebody began; how many there were.

        May run at any time and any number of times, beside writers, deleters and others that recover. A delete that is
        under way is taken over, and its name is spent.
        """
        unfinished = await self._records.unfinished(prefix)
        await _each(self._finish, (record for record in unfinished if record.state == "pending"))
        claimed = await _each(self._claim, (record for record in unfinished if record.state != "pending"))
        await self._delete_claimed([record for record in claimed if record is not None])
        return len(unfinished)

    async def orphans(self, prefix: str, older_than_ms: int) -> Sequence[ObjectMeta]:
        """Temporaries of at least that age that nothing needs: no pending record names them. For a collector."""
        if older_than_ms < ORPHAN_AGE_MIN_MS:
            raise InvalidInput(f"A temporary object is given {ORPHAN_AGE_MIN_MS} ms at least, not {older_than_ms}.")
        latest_ms = self._environment.now_ms() - older_than_ms
        # Objects first, records after: a record that is inserted in between is seen.
        lines = [line for line in await self._plain.list(prefix) if line.modified_ms <= latest_ms]
        named = [(line, match["destination"]) for line in lines if (match := _TEMPORARY.fullmatch(line.path))]
        records = await _each(self._records.get, (destination for _, destination in named))
        return [
            line
            for (line, _), record in zip(named, records, strict=True)
            if record is None or record.state != "pending" or record.source != line.path
        ]

    async def forget(self, prefix: str = "") -> int:
        """Free the names that are spent; how many there were.

        Only when nothing that ran when they were deleted can still run or have a request under way: a delete that is
        late after all would hit the next object of that name.
        """
        spent = await self._records.spent(prefix)
        await _each(lambda record: self._records.delete(record.destination, record.source, "spent"), spent)
        return len(spent)

    # --- create ---------------------------------------------------------------------------------------------

    async def _create_once(self, path: str, data: bytes) -> bool:
        """One attempt under one temporary name; False where that name was collected before it could be copied."""
        if await self._there(path):
            raise ObjectExists(f"{self.url}/{path} exists.")
        age_ms = self._stopwatch_ms()
        record = Record(path, self._temporary(path, data), xxhash.xxh3_64_hexdigest(data))
        await self._plain.put(record.source, data)
        holder, certain = await self._insert(record)
        if holder.source != record.source:
            await self._lose(record, holder, certain)
        if holder.state != "pending":
            return True  # an insert whose answer was lost; somebody has finished it since
        young = age_ms() < ORPHAN_AGE_MIN_MS // 2
        try:
            fate = await self._finish(record, look=False)
        except StoreUnavailable:
            # Durable: the record stands, and others will copy. But not if its source may be taken for an orphan: it
            # was old before a record named it, and a collector may have looked then.
            if young:
                return True
            raise
        if fate is _Fate.DONE:
            return True
        if fate is _Fate.VOID and certain:
            return False
        raise StoreUnavailable(f"{self.url}/{path}: its record was removed; nobody can tell whether it was stored.")

    async def _insert(self, record: Record) -> tuple[Record, bool]:
        """The record that holds the slot, and whether ours was sent only once."""
        try:
            return await self._records.insert(record), True
        except StoreUnavailable:
            insert = self._records.insert
            return await with_retries(lambda: insert(record), self._environment, self._policy), False

    async def _lose(self, record: Record, holder: Record, certain: bool) -> NoReturn:
        """The slot is another's: make sure that ours never takes it, and say so."""
        if not certain:
            # An earlier insert may be carried out yet; without its source it is void.
            await self._plain.delete([record.source])
            raise StoreUnavailable(f"{self.url}/{record.destination}: the record store did not answer in time.")
        with contextlib.suppress(StoreUnavailable):  # else it is an orphan
            await self._plain.delete([record.source])
        reason = {
            "deleting": "is being deleted",
            "abandoned": "is being deleted",
            "spent": "was deleted while others did the same, or by a process that died of it: its name stays taken",
        }.get(holder.state, "exists")
        raise ObjectExists(f"{self.url}/{record.destination} {reason}.")

    async def _finish(self, record: Record, *, look: bool = True) -> _Fate:
        """Bring a pending record to its end. Anybody may, at any time, also long after others did."""
        destination, source = record.destination, record.source
        copied = False
        if not (look and await self._there(destination)):
            try:
                await self._plain.copy(source, destination)
                copied = True
            except ObjectNotFound:
                if not await self._there(destination):
                    return await self._void(record)
        if await self._records.mark(destination, source, "pending", "committed"):
            await self._plain.delete([source])
            return _Fate.DONE
        return _Fate.DONE if copied else await self._outcome(record)

    async def _void(self, record: Record) -> _Fate:
        """Its source is gone and no copy stands: either none was ever made, or it was made and deleted since."""
        if await self._records.delete(record.destination, record.source, "pending"):
            return _Fate.VOID
        return await self._outcome(record)

    async def _outcome(self, record: Record) -> _Fate:
        """Of a record that others took further. The object that stands there may be the next one of that name."""
        current = await self._records.get(record.destination)
        return _Fate.DONE if current is not None and current.source == record.source else _Fate.GONE

    # --- get ------------------------------------------------------------------------------------------------

    async def _read(self, path: str, ask: Callable[[], Awaitable[T]]) -> T:
        try:
            return await ask()
        except ObjectNotFound:
            record = await self._records.get(path)
            if record is None:
                raise
        if record.state == "pending":
            await self._finish(record)
        return await ask()

    async def _there(self, path: str) -> bool:
        try:
            await self._plain.get_range(path, 0, 1)
        except ObjectNotFound:
            return False
        return True

    # --- delete ---------------------------------------------------------------------------------------------

    async def _held(self, path: str) -> Record | None:
        """The record under which we may delete what is at a path; None where nothing is there."""
        record = await self._records.get(path)
        if record is None:
            if not await self._there(path):
                return None
            # It was put, not created. The slot is taken all the same: a create must not come between.
            claim = Record(path, self._temporary(path, b""), "", "deleting")
            record = await self._records.insert(claim)
            if record.source == claim.source:
                return record
        return await self._claim(record)

    async def _delete_claimed(self, claimed: Sequence[Record]) -> None:
        if not claimed:
            return
        # In this order: once the source is gone no copy can bring the object back.
        await self._plain.delete([record.source for record in claimed])
        await self._plain.delete([record.destination for record in claimed])
        await _each(self._release, claimed)

    async def _claim(self, record: Record) -> Record | None:
        """The record in a state in which we may delete its object; None where that has been done.

        ``deleting``: we alone delete. ``abandoned`` or ``spent``: others may too, and the record stays for good.
        """
        source, current = record.source, record
        for _ in range(_CLAIMS_MAX):
            match current.state:
                case "pending":
                    # An object is deleted from where it was copied to; otherwise a late copy could show it again.
                    await self._finish(current)
                case "committed":
                    if await self._records.mark(current.destination, source, "committed", "deleting"):
                        return msgspec.structs.replace(current, state="deleting")
                case "deleting":
                    await self._records.mark(current.destination, source, "deleting", "abandoned")
                case _:
                    return current
            found = await self._records.get(current.destination)
            if found is None or found.source != source:
                return None
            current = found
        raise StoreUnavailable(f"{self.url}/{record.destination}: its record changes again and again.")

    async def _release(self, record: Record) -> None:
        if record.state == "deleting":
            await self._records.delete(record.destination, record.source, "deleting")
        elif record.state == "abandoned":
            await self._records.mark(record.destination, record.source, "abandoned", "spent")

    # --- small things ---------------------------------------------------------------------------------------

    def _stopwatch_ms(self) -> Callable[[], float]:
        """Milliseconds since now, by the clock that says more: one stands still while the machine sleeps."""
        loop, environment = asyncio.get_running_loop(), self._environment
        started_s, started_ms = loop.time(), environment.now_ms()
        return lambda: max((loop.time() - started_s) * 1000, environment.now_ms() - started_ms)

    def _temporary(self, path: str, data: bytes) -> str:
        """A name that nobody has used before."""
        return f"{path}.{self._environment.new_id().hex()}.{xxhash.xxh3_64_hexdigest(data)}"

    def _check_name(self, path: str) -> None:
        if _TEMPORARY.fullmatch(path):
            raise InvalidInput(f"{path!r} looks like a temporary object of a two-phase write. Choose another name.")


async def _each(work: Callable[[T], Awaitable[U]], items: Iterable[T]) -> list[U]:
    """Do something with each item, several at once; all are tried before the first error is raised."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(item: T) -> U:
        async with limit:
            return await work(item)

    results = await asyncio.gather(*(one(item) for item in items), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]
