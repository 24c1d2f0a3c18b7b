"""The three states of a guard."""

from __future__ import annotations

import enum

__all__ = ["GuardState"]


class GuardState(enum.IntEnum):
    """What a guard lets through; the order is the only direction in which it changes.

    >>> GuardState.VALID < GuardState.DRAINING < GuardState.REVOKED
    True
    """

    VALID = 0
    """New writes."""

    DRAINING = 1
    """Only what was accepted before: the partition is being handed over."""

    REVOKED = 2
    """Nothing, for good."""
