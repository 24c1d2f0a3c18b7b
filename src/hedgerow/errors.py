"""Every error Hedgerow raises, as one tree.

A message says what happened, to which object, and what the caller can do about it. Code that wants to
react catches a class; code that wants to report prints the message.

Theory of operation. Three questions matter to a caller whose write failed, and each has one answer here:

* *Did somebody else take over?*  ``Fenced`` and everything below it. Stop, or open a new writer.
* *Did my write happen?*  ``error.maybe_stored`` is True where nobody can tell yet; otherwise the row is not there.
* *Is the data damaged?*  ``Corrupt``, which names the object.
"""

from __future__ import annotations

__all__ = [
    "BufferFull",
    "Closed",
    "ConditionalPutFailed",
    "Conflict",
    "Corrupt",
    "EpochError",
    "Fenced",
    "Forked",
    "HedgerowError",
    "InvalidInput",
    "MetadataBehind",
    "NotOwned",
    "ObjectExists",
    "ObjectNotFound",
    "OutcomeUnknown",
    "ReadExpired",
    "StaleEpoch",
    "StoreError",
    "StoreUnavailable",
    "TableExists",
    "TableNotFound",
    "Unauthorized",
    "UnknownPartition",
    "UnsafeStore",
    "UnsupportedFormat",
]


class HedgerowError(Exception):
    """The root of the tree: catch it to catch everything Hedgerow raises on purpose.

    >>> issubclass(Fenced, HedgerowError)
    True
    """

    maybe_stored = False
    """Of an error about a write: True where the write may have happened, or may happen yet."""


class InvalidInput(HedgerowError, ValueError):
    """What was passed in cannot be used; nothing was written.

    >>> issubclass(InvalidInput, ValueError)
    True
    """


class TableExists(HedgerowError):
    """``create`` found a table at that address already."""


class TableNotFound(HedgerowError):
    """``open`` found no table at that address."""


class UnsupportedFormat(HedgerowError):
    """An object was written by a newer Hedgerow, in a format that this one does not know."""


class Corrupt(HedgerowError):
    """An object is damaged: a flipped bit, a cut-off end, or one object in another's place."""


class Unauthorized(HedgerowError):
    """The object store refused the credentials, or they lack a permission."""


class Conflict(HedgerowError):
    """Another client changed the same thing first, again and again; nothing was written."""


class OutcomeUnknown(HedgerowError):
    """A write was sent and its fate cannot be learned now: it may be there or not, also later."""

    maybe_stored = True


class ReadExpired(HedgerowError):
    """A scan lost a file to the collector. Take a snapshot for reads that last, or start again."""


class BufferFull(HedgerowError, TimeoutError):
    """A writer's buffer stayed full for ``timeout_s``: the store is slower than the caller."""


class Closed(HedgerowError):
    """The table or writer was closed, or stopped after an earlier error."""


class Forked(HedgerowError):
    """A table or writer was used in a forked child of the process that opened it."""


class UnsafeStore(HedgerowError):
    """The self-test failed: the store overwrites where it was asked to create."""


# --- Object stores ------------------------------------------------------------------------------------------


class StoreError(HedgerowError):
    """An object store could not do what it was asked."""


class ObjectNotFound(StoreError):
    """There is no object at that path."""


class ObjectExists(StoreError):
    """A create found an object at that path; it may be the caller's own, from an attempt thought lost."""


class StoreUnavailable(StoreError):
    """The store did not answer, or answered that it could not: the outcome is unknown, a retry may help."""


# --- Ownership ----------------------------------------------------------------------------------------------


class Fenced(HedgerowError):
    """A newer owner stands: this one's writes are refused from now on.

    >>> error = Fenced("partition 3 of file:///t is owned by epoch 8", epoch=7, current_epoch=8)
    >>> error.epoch, error.current_epoch
    (7, 8)
    """

    def __init__(
        self,
        message: str,
        *,
        partition: int | None = None,
        epoch: int | None = None,
        current_epoch: int | None = None,
    ) -> None:
        super().__init__(message)
        self.partition = partition
        self.epoch = epoch
        self.current_epoch = current_epoch


class EpochError(Fenced):
    """A guard refused: its partition is not, or no longer, the caller's to write."""


class StaleEpoch(EpochError):
    """Another owner was given the partition at a higher epoch."""


class NotOwned(EpochError):
    """The partition exists, and another node, or nobody, owns it."""


class UnknownPartition(EpochError):
    """The authority knows no such partition."""


class ConditionalPutFailed(EpochError):
    """The store refused a write because an object of another epoch stands in its place."""


class MetadataBehind(HedgerowError):
    """The authority answered with an epoch below one already seen: it lags, so ask again, and never proceed."""
