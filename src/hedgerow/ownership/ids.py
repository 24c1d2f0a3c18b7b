"""Partitions, nodes and epochs by number, and the functions that refuse a number which cannot be one.

A plain ``int`` from outside becomes an id by passing through ``partition_id``, ``node_id`` or ``epoch`` once;
after that the type checker keeps the three apart. Zero is no node and no epoch: it is what an unset field
holds, and an unset field must never own anything.
"""

from __future__ import annotations

from typing import NewType

from hedgerow.errors import InvalidInput

__all__ = ["UNASSIGNED", "Epoch", "NodeId", "PartitionId", "epoch", "node_id", "partition_id"]

PartitionId = NewType("PartitionId", int)
NodeId = NewType("NodeId", int)
Epoch = NewType("Epoch", int)

UNASSIGNED = NodeId(0)
"""The owner of a partition that nobody owns. No node may call itself this."""

_PARTITION_ID_LIMIT = 1 << 32
_WORD_LIMIT = 1 << 64


def partition_id(value: int) -> PartitionId:
    """The number as a partition id, or ``InvalidInput``.

    >>> partition_id(17)
    17
    """
    return PartitionId(_whole(value, "a partition id", 0, _PARTITION_ID_LIMIT, "partitions count from 0"))


def node_id(value: int) -> NodeId:
    """The number as the id of a real node, or ``InvalidInput``.

    >>> node_id(0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    hedgerow.errors.InvalidInput: a node id must be from 1 to 2**64 - 1, not 0: 0 means "no owner", ...
    """
    advice = '0 means "no owner", so give each node an id of its own'
    return NodeId(_whole(value, "a node id", 1, _WORD_LIMIT, advice))


def epoch(value: int) -> Epoch:
    """The number as an epoch that was granted, or ``InvalidInput``.

    >>> epoch(1)
    1
    """
    advice = "pass the epoch that acquiring the partition returned"
    return Epoch(_whole(value, "an epoch", 1, _WORD_LIMIT, advice))


def _whole(value: int, what: str, lowest: int, limit: int, advice: str) -> int:
    # True is an int to Python; here it is somebody's flag in the wrong argument.
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{what} must be an int, not {value!r} of type {type(value).__name__}: {advice}")
    if not lowest <= value < limit:
        bits = limit.bit_length() - 1
        raise InvalidInput(f"{what} must be from {lowest} to 2**{bits} - 1, not {value}: {advice}")
    return value
