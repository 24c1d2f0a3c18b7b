"""Ours or not ours: what a lost, late or wrong answer may never do is lose a row or write it twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hedgerow.errors import ObjectExists, OutcomeUnknown, StoreUnavailable, UnsafeStore
from hedgerow.objects import Environment, MemoryStore, RetryPolicy, create_or_read, self_test, with_retries
from hedgerow.testing import simulate

POLICY = RetryPolicy(give_up_after_s=5.0)


class Moody(MemoryStore):
    """A store whose next creates and gets go as told."""

    def __init__(self, creates: list[str], gets: list[str] | None = None) -> None:
        super().__init__()
        self.creates, self.gets = creates, gets or []

    async def create(self, path: str, data: bytes) -> None:
        mood = self.creates.pop(0) if self.creates else "well"
        if mood in ("well", "lost", "late error"):
            await super().create(path, data)
        if mood == "lost":
            raise StoreUnavailable("timeout")
        if mood == "late error":
            raise ObjectExists("retried by the client library")
        if mood == "503":
            raise StoreUnavailable("503")
        if mood == "409":
            raise ObjectExists("409, and nothing is there")

    async def get(self, path: str) -> bytes:
        if self.gets and self.gets.pop(0) == "503":
            raise StoreUnavailable("503")
        return await super().get(path)


def attempt(store: MemoryStore, data: bytes = b"ours") -> bytes | None:
    return simulate(lambda: create_or_read(store, "slot", data, Environment(), POLICY))


@pytest.mark.parametrize(
    ("creates", "gets"),
    [
        (["well"], []),
        (["lost"], []),
        (["late error"], []),
        (["503", "well"], []),
        (["409", "409", "well"], []),
        (["503", "lost"], ["503", "503"]),
        (["lost"], ["503", "503", "503"]),
        (["409", "503", "late error"], ["503"]),
    ],
)
def test_our_own_write_is_recognised_after_any_answer(creates: list[str], gets: list[str]) -> None:
    store = Moody(creates, gets)
    assert attempt(store) is None
    assert asyncio.run(MemoryStore.get(store, "slot")) == b"ours"


@pytest.mark.parametrize("mood", ["well", "lost", "503", "409", "late error"])
def test_somebody_elses_write_is_never_taken_for_ours(mood: str) -> None:
    store = Moody([])
    asyncio.run(store.create("slot", b"theirs"))
    store.creates = ["503"] if mood in ("lost", "late error") else [mood]
    assert attempt(store) == b"theirs"
    assert asyncio.run(MemoryStore.get(store, "slot")) == b"theirs"


def test_a_store_that_stays_away_gives_an_unknown_outcome_that_says_so() -> None:
    with pytest.raises(OutcomeUnknown, match="may be there, or appear later") as caught:
        attempt(Moody(["503"] * 1_000, ["503"] * 1_000))
    assert caught.value.maybe_stored


def test_reads_are_tried_again_and_give_up_in_the_end() -> None:
    tries = 0

    async def ask() -> str:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise StoreUnavailable("503")
        return "answer"

    assert simulate(lambda: with_retries(ask, Environment(), POLICY)) == "answer"

    async def never() -> str:
        raise StoreUnavailable("503")

    with pytest.raises(StoreUnavailable):
        simulate(lambda: with_retries(never, Environment(), POLICY))


# --- the self-test ------------------------------------------------------------------------------------------


class Overwriting(MemoryStore):
    """Accepts the condition, and ignores it."""

    async def create(self, path: str, data: bytes) -> None:
        await self.put(path, data)


class Forgetful(MemoryStore):
    """Lists nothing."""

    async def list(self, prefix: str, *, after: str = "") -> Any:
        return []


class Garbling(MemoryStore):
    """Changes what it stores."""

    async def create(self, path: str, data: bytes) -> None:
        await super().create(path, data[:-1])

    async def get(self, path: str) -> bytes:
        return await super().get(path)


class PolitelyOverwriting(MemoryStore):
    """Overwrites, and says that the object existed."""

    async def create(self, path: str, data: bytes) -> None:
        existed = bool(self.page(path, "", 1))
        await self.put(path, data)
        if existed:
            raise ObjectExists("exists")


@pytest.mark.parametrize("bad", [Overwriting, Forgetful, PolitelyOverwriting])
def test_a_store_that_cannot_keep_the_promise_is_refused(bad: Callable[[], MemoryStore]) -> None:
    with pytest.raises(UnsafeStore):
        simulate(lambda: self_test(bad(), Environment()))


def test_creating_a_table_on_an_overwriting_store_is_refused_before_anything_is_there() -> None:
    from hedgerow.table.core import create_table

    store = Overwriting()
    with pytest.raises(UnsafeStore, match="overwrites"):
        asyncio.run(create_table(store, schema=None, key=None, partitions=1, options=None, cache_bytes=0))
    assert store.paths() == ()
