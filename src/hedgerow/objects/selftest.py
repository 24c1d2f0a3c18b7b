"""Before the first write: does this store keep the one promise that everything rests on?

Some proxies and emulators accept a conditional create and overwrite all the same. On such a store every promise would
break, silently. So a new table's folder is tried first, with two objects of its own that are removed again.
"""

from __future__ import annotations

import asyncio

from hedgerow.errors import ObjectExists, ObjectNotFound, StoreUnavailable, UnsafeStore
from hedgerow.objects.create import RetryPolicy, create_or_read, with_retries
from hedgerow.objects.environment import Environment
from hedgerow.objects.store import ObjectStore

__all__ = ["self_test"]


async def self_test(store: ObjectStore, environment: Environment, policy: RetryPolicy | None = None) -> None:
    """Refuse, with ``UnsafeStore``, a store that overwrites, hides or mixes up what was created.

    >>> from hedgerow.objects.memory import MemoryStore
    >>> asyncio.run(self_test(MemoryStore(), Environment()))
    """
    policy = policy or RetryPolicy(give_up_after_s=20.0)
    folder = f"self-test/{environment.new_id().hex()}/"
    path = folder + "slot"
    first, second = b"first " + environment.new_id(), b"second " + environment.new_id()
    try:
        if await create_or_read(store, path, first, environment, policy) is not None:
            raise UnsafeStore(f"{store.url}: a new object's name was taken, or its bytes changed on the way.")
        await _expect_refusal(store, path, second, environment, policy)
        standing = await with_retries(lambda: store.get(path), environment, policy)
        if standing != first:
            raise UnsafeStore(
                f"{store.url}: this store overwrites an object that it was asked only to create. Hedgerow cannot keep "
                "its promises here. Use a store with conditional writes, or a two-phase store over a database."
            )
        listed = await with_retries(lambda: store.list(folder), environment, policy)
        if [line.path for line in listed] != [path]:
            raise UnsafeStore(f"{store.url}: a listing does not show an object that was just created.")
        outcomes = await asyncio.gather(
            *(
                create_or_read(store, folder + "race", b"%d " % i + environment.new_id(), environment, policy)
                for i in range(4)
            )
        )
        if sum(outcome is None for outcome in outcomes) != 1:
            raise UnsafeStore(f"{store.url}: of four creates of one object at once, not exactly one won.")
    finally:
        await _clean(store, [path, folder + "race"])


async def _expect_refusal(
    store: ObjectStore, path: str, data: bytes, environment: Environment, policy: RetryPolicy
) -> None:
    """A create of a taken name. What it answers does not matter; what stands there afterwards does."""

    async def attempt() -> None:
        try:
            await store.create(path, data)
        except ObjectExists:
            return

    await with_retries(attempt, environment, policy)


async def _clean(store: ObjectStore, paths: list[str]) -> None:
    try:
        await store.delete(paths)
    except (StoreUnavailable, ObjectNotFound):
        return  # two tiny objects under self-test/ stay behind; nothing reads them
