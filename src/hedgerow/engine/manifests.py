"""The log of manifests: finding the newest, and moving to the next by compare-and-swap.

``update`` is the only way a table ever changes: read the newest manifest, compute the next with a pure transition, and
append it. Whoever loses the race looks again and computes again, so that every transition is checked against the very
manifest it follows. An append whose fate is unknown is looked up by its write id in what is newest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from hedgerow.engine import codec
from hedgerow.engine.layout import MANIFEST_FOLDER, MANIFEST_SUFFIX
from hedgerow.engine.manifest import RECENT_ENTRIES, Manifest
from hedgerow.errors import Conflict, HedgerowError, OutcomeUnknown, TableExists, TableNotFound
from hedgerow.objects import Entry, Environment, LogConflict, NumberedLog, ObjectStore, RetryPolicy

__all__ = ["Manifests"]

WHOLE_EVERY = 64
"""At most this many changes stand between a whole manifest and the newest: what opening a table costs in requests."""
_TRIES_MAX = 1_000
_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5


class Manifests:
    """One client's view of a table's log of manifests."""

    def __init__(self, store: ObjectStore, environment: Environment, policy: RetryPolicy | None = None) -> None:
        self.store = store
        self.environment = environment
        self.policy = policy or RetryPolicy()
        self._log = NumberedLog(store, MANIFEST_FOLDER, MANIFEST_SUFFIX, environment, self.policy)
        self._head: Entry | None = None
        self._current: Manifest | None = None
        self._whole_bytes = 0
        self._change_bytes = 0
        self._refreshing = asyncio.Lock()

    @property
    def current(self) -> Manifest:
        """The newest manifest this client has seen."""
        if self._current is None:
            raise TableNotFound(f"{self.store.url}: no table has been opened here.")
        return self._current

    def name(self, number: int) -> str:
        """An entry's full name, for messages."""
        return f"{self.store.url}/{self._log.path(number)}"

    async def expect_none(self) -> None:
        """``TableExists`` where there is a table."""
        if await self._log.newest_number():
            raise TableExists(f"{self.store.url}: there is a table already. Open it with hedgerow.open().")

    async def create(self, first: Manifest) -> Manifest:
        """Found the table: its first entry. ``TableExists`` where somebody was faster."""
        write_id = self.environment.new_id()
        manifest = msgspec.structs.replace(first, number=1, write_id=write_id)
        self._log.log_id = manifest.table_id
        try:
            entry = await self._log.append(None, codec.encode_whole(manifest), whole=True, write_id=write_id)
        except LogConflict:
            raise TableExists(f"{self.store.url}: somebody else has just created a table here.") from None
        self._move(entry, manifest)
        return manifest

    async def refresh(self) -> Manifest:
        """The newest manifest there is."""
        async with self._refreshing:
            manifest = self._current
            chain = await self._log.load(self._head)
            if not chain and self._head is None:
                raise TableNotFound(f"{self.store.url}: there is no table. Make one with hedgerow.create().")
            for entry in chain:
                manifest = codec.decode(entry, manifest, self.name(entry.number))
                self._move(entry, manifest)
            return self.current

    async def at(self, number: int) -> Manifest:
        """The table as of an older entry. ``ObjectNotFound`` where it was collected."""
        return (await self.chain_at(number))[1][-1]

    async def chain_at(self, number: int) -> tuple[int, list[Manifest]]:
        """The last whole entry at or below an entry, and every manifest from there to it, by one pass."""
        chain: list[Manifest] = []
        for entry in await self._log.load_at(number):
            chain.append(codec.decode(entry, chain[-1] if chain else None, self.name(entry.number)))
        return chain[0].number, chain

    async def numbers(self) -> list[int]:
        """The entries in the folder, strays included."""
        return await self._log.numbers()

    def path(self, number: int) -> str:
        """An entry's path."""
        return self._log.path(number)

    async def update(self, transition: Callable[[Manifest], Manifest]) -> Manifest:
        """Append what ``transition`` makes of the newest manifest, however often that takes.

        An error that the transition raises is the caller's answer: nothing was appended. ``OutcomeUnknown``: the store
        stayed away, or the log moved on too far to tell.
        """
        pause_s = _FIRST_PAUSE_S
        await self.refresh()
        for _ in range(_TRIES_MAX):
            before, head = self.current, self._head
            assert head is not None
            write_id = self.environment.new_id()
            now_ms = self.environment.now_ms()
            after = msgspec.structs.replace(
                transition(before),
                number=before.number + 1,
                write_id=write_id,
                created_ms=max(before.created_ms + 1, now_ms),
                recent=(*before.recent, (before.number, before.write_id))[-RECENT_ENTRIES:],
            )
            try:
                await self._append(head, before, after)
                return after
            except (LogConflict, OutcomeUnknown) as problem:
                # Also after a conflict: ours may have stood in that slot, been collected, and been replaced by a stray.
                if await self._landed(after, problem):
                    return after
            await asyncio.sleep(self.environment.uniform(0, pause_s))
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        raise Conflict(
            f"{self.store.url}: lost {_TRIES_MAX} races for the next manifest; nothing was written. Try again."
        )

    async def _landed(self, after: Manifest, problem: HedgerowError) -> bool:
        """Whether an append is part of history after all; ``OutcomeUnknown`` where nobody can tell any more."""
        try:
            newest = await self.refresh()
        except HedgerowError as error:
            if isinstance(problem, LogConflict):
                raise
            raise problem from error
        if newest.number == after.number:
            return newest.write_id == after.write_id
        landed = newest.fate(after.number, after.write_id)
        if landed is None:
            if isinstance(problem, OutcomeUnknown):
                raise problem
            raise OutcomeUnknown(
                f"{self.store.url}: the log has moved on too far to tell whether entry {after.number} counts."
            )
        return landed

    async def _append(self, head: Entry, before: Manifest, after: Manifest) -> None:
        change = codec.encode_change(before, after)
        whole = (
            after.number - head.base >= WHOLE_EVERY
            or after.floor > head.base
            or self._change_bytes + len(change) > max(self._whole_bytes, 1 << 16)
        )
        payload = codec.encode_whole(after) if whole else change
        entry = await self._log.append(head, payload, whole=whole, floor=after.floor, write_id=after.write_id)
        self._move(entry, after)

    def _move(self, entry: Entry, manifest: Manifest) -> None:
        """Forward only: an append of ours and a refresh may be under way at the same time."""
        if self._head is not None and entry.number <= self._head.number:
            return
        self._head, self._current = entry, manifest
        if entry.whole:
            self._whole_bytes, self._change_bytes = len(entry.payload), 0
        else:
            self._change_bytes += len(entry.payload)
