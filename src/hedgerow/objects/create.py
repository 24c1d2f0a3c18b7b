"""Ours or not ours: create-if-absent that survives lost responses.

A create can be carried out while its answer is lost, delayed or turned into an error; a client library that retries on
its own then reports "already exists" for our own success; and some stores answer "conflict" while nothing is there.
So an answer other than plain success is never believed. The slot itself is read:

=======================  =================================================================================
what stands in the slot  what it means
=======================  =================================================================================
our very bytes           success: every object carries a write id that nobody else has
other bytes              somebody else has the slot, for good: our bytes can never land there any more
nothing                  not yet decided: send the same bytes again
=======================  =================================================================================

The bytes of a slot are fixed at the first send. After ``RetryPolicy.give_up_after_s`` the outcome is *unknown*:
a request may still be under way and land later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from hedgerow.errors import ObjectExists, ObjectNotFound, OutcomeUnknown, StoreUnavailable
from hedgerow.objects.environment import Environment
from hedgerow.objects.store import ObjectStore

__all__ = ["RetryPolicy", "create_or_read", "with_retries"]

T = TypeVar("T")
_TRIES_MIN = 4


class RetryPolicy(msgspec.Struct, frozen=True):
    """How long to go on asking a store that does not answer.

    >>> RetryPolicy().give_up_after_s
    60.0
    """

    first_pause_s: float = 0.05
    longest_pause_s: float = 2.0
    give_up_after_s: float = 60.0


class _Pauses:
    """Waits longer each time, with jitter, and says when the time is up."""

    def __init__(self, policy: RetryPolicy, environment: Environment) -> None:
        self._policy = policy
        self._environment = environment
        self._pause_s = policy.first_pause_s
        self._deadline_s = asyncio.get_running_loop().time() + policy.give_up_after_s
        self._tries = 0

    async def wait(self) -> bool:
        """Pause; False when there is no time left for another try.

        A process that was paused finds its time gone after a single try, so a few are made in any case.
        """
        self._tries += 1
        if self._tries >= _TRIES_MIN and asyncio.get_running_loop().time() >= self._deadline_s:
            return False
        await asyncio.sleep(self._environment.uniform(0.5, 1.0) * self._pause_s)
        self._pause_s = min(self._pause_s * 2, self._policy.longest_pause_s)
        return True


async def create_or_read(
    store: ObjectStore, path: str, data: bytes, environment: Environment, policy: RetryPolicy
) -> bytes | None:
    """Put ``data`` into the slot ``path``. None: it stands there. Bytes: what somebody else put there first.

    ``data`` must hold an id that nobody else has. Raises ``OutcomeUnknown`` when the store stays away for too long.
    """
    pauses = _Pauses(policy, environment)
    sent = 0
    while True:
        problem: Exception
        try:
            sent += 1
            await store.create(path, data)
            return None
        except (ObjectExists, StoreUnavailable) as error:
            problem = error
        try:
            standing = await store.get(path)
            return None if standing == data else standing
        except ObjectNotFound:
            pass
        except StoreUnavailable as error:
            problem = error
        if not await pauses.wait():
            raise OutcomeUnknown(
                f"{store.url}/{path}: sent {sent} times in {policy.give_up_after_s:g} s, and the store does not say "
                f"whether it was stored (last answer: {problem}). It may be there, or appear later."
            ) from problem


async def with_retries(ask: Callable[[], Awaitable[T]], environment: Environment, policy: RetryPolicy) -> T:
    """Ask for something that may be asked twice: a get, a list, a delete, a put under a name of our own."""
    pauses = _Pauses(policy, environment)
    while True:
        try:
            return await ask()
        except StoreUnavailable:
            if not await pauses.wait():
                raise
