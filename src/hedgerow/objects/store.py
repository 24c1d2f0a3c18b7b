"""The object store as Hedgerow sees it: six verbs, and nothing that only some stores have.

What every promise rests on is ``create``: of any number of concurrent creates of one path exactly one puts its bytes
there, and from then on every ``get`` and every page of a ``list`` shows it. No ETags, no attributes, no locks, no clocks.

A verb that fails says one of four things, as an error class:

==================  ==============================================================================================
``ObjectNotFound``  nothing is there
``ObjectExists``    a create found something there, possibly the caller's own bytes from an attempt thought lost
``StoreUnavailable``  no answer, or "try again": the request may have been carried out, or may be yet
``Unauthorized``    credentials or permissions; trying again will not help
==================  ==============================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

__all__ = ["ObjectMeta", "ObjectStore", "PlainStore"]


class ObjectMeta(msgspec.Struct, frozen=True):
    """One line of a listing.

    >>> ObjectMeta("manifest/00000000000000000001.manifest", 812, 0).size_bytes
    812
    """

    path: str
    size_bytes: int
    modified_ms: int


@runtime_checkable
class PlainStore(Protocol):
    """An object store without create-if-absent. Paths are relative, with ``/`` between segments."""

    @property
    def url(self) -> str:
        """Where this is, for messages. Never with credentials."""
        ...

    async def put(self, path: str, data: bytes) -> None:
        """Store an object under a name that nobody else will ever use. Sending it twice is harmless."""
        ...

    async def get(self, path: str) -> bytes:
        """The whole object."""
        ...

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        """``length`` bytes from ``start``; fewer where the object ends before that."""
        ...

    async def list(self, prefix: str, *, after: str = "") -> Sequence[ObjectMeta]:
        """Every object whose path begins with ``prefix`` and sorts after ``after``, in order, however many pages.

        Each page is consistent; the pages together are not one moment.
        """
        ...

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; one that is not there is no error."""
        ...

    async def copy(self, source: str, destination: str) -> None:
        """Copy an object inside the store."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


@runtime_checkable
class ObjectStore(PlainStore, Protocol):
    """An object store with create-if-absent: what everything above is built on."""

    async def create(self, path: str, data: bytes) -> None:
        """Store an object if, and only if, there is none at ``path``; else ``ObjectExists``."""
        ...
