"""A simulated transactional store: the records of a two-phase store, with everything that can go wrong on the way to it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from hedgerow.objects.records import MemoryRecords, Record, State
from hedgerow.testing.faults import Process

__all__ = ["SimulatedRecords"]

T = TypeVar("T")


class SimulatedRecords:
    """Records that all processes of a world share, as one of them reaches them: each call is a request that can fail."""

    def __init__(self, process: Process, records: MemoryRecords) -> None:
        self._request = process.store.request
        self._records = records

    @property
    def url(self) -> str:
        """Where this is."""
        return "sim://records"

    async def insert(self, record: Record) -> Record:
        """The record that holds the slot: ours, or the one that was there."""
        return await self._ask("insert", record.destination, lambda: self._records.insert(record))

    async def get(self, destination: str) -> Record | None:
        """A record."""
        return await self._ask("get", destination, lambda: self._records.get(destination))

    async def unfinished(self, prefix: str) -> Sequence[Record]:
        """Records that somebody has to finish."""
        return await self._ask("list", prefix, lambda: self._records.unfinished(prefix))

    async def spent(self, prefix: str) -> Sequence[Record]:
        """Names that stay taken."""
        return await self._ask("list", prefix, lambda: self._records.spent(prefix))

    async def mark(self, destination: str, source: str, from_state: State, to_state: State) -> bool:
        """Move a record to another state."""
        return await self._ask(
            f"mark {to_state}", destination, lambda: self._records.mark(destination, source, from_state, to_state)
        )

    async def delete(self, destination: str, source: str, state: State) -> bool:
        """Remove a record."""
        return await self._ask("remove", destination, lambda: self._records.delete(destination, source, state))

    async def close(self) -> None:
        """Nothing to release."""

    async def _ask(self, verb: str, path: str, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        def effect() -> T:
            try:
                call().send(None)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            raise AssertionError("the records in memory waited")

        return await self._request(verb, f"record of {path}", effect)
