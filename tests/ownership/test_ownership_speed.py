"""Checking is cheap enough to do it always. Bounds are relative, or far above what a machine needs."""

from __future__ import annotations

import sys
import timeit

import numpy as np
import pytest

from hedgerow.ownership import (
    Epoch,
    NodeId,
    Ownership,
    PartitionGuard,
    PartitionGuardSet,
    PartitionId,
    StaticAuthority,
)

EPOCH, NODE = 7, 4


def a_thousand_guards() -> PartitionGuardSet:
    guards = PartitionGuardSet(NODE)
    for partition in range(1000):
        guards.insert(PartitionGuard(partition, EPOCH, NODE))
    return guards


class Empty:
    __slots__ = ()

    def check(self) -> None:
        pass


@pytest.mark.skipif(sys.gettrace() is not None, reason="tracing charges per line")
def test_checking_before_every_write_costs_less_than_two_empty_calls() -> None:
    empty_s, check_s = [], []
    for _ in range(15):
        empty_s.append(timeit.timeit("call()", globals={"call": Empty().check}, number=20_000))
        check_s.append(timeit.timeit("call()", globals={"call": PartitionGuard(3, EPOCH, NODE).check}, number=20_000))
    assert min(check_s) < 2 * min(empty_s)


class Lookup:
    __slots__ = ("by_partition",)

    def __init__(self) -> None:
        self.by_partition = dict.fromkeys(range(1000), 1)

    def check(self, partition: int) -> None:
        self.by_partition[partition]


@pytest.mark.skipif(sys.gettrace() is not None, reason="tracing charges per line")
def test_checking_one_of_a_thousand_partitions_costs_less_than_two_lookups() -> None:
    guards, lookup = a_thousand_guards(), Lookup()
    lookup_s, check_s = [], []
    for _ in range(15):
        lookup_s.append(timeit.timeit("call(500)", globals={"call": lookup.check}, number=20_000))
        check_s.append(timeit.timeit("call(500)", globals={"call": guards.check}, number=20_000))
    assert min(check_s) < 2 * min(lookup_s)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_checking_a_large_batch_costs_less_than_ten_nanoseconds_a_row(dtype: type[np.integer]) -> None:
    guards = a_thousand_guards()
    rows = np.random.default_rng(1).integers(0, 1000, 200_000).astype(dtype)
    fastest_s = min(timeit.repeat(lambda: guards.check_many(rows), number=1, repeat=15))
    assert fastest_s / rows.size < 10e-9


def test_refreshing_a_thousand_partitions_leaves_time_for_the_rest_of_the_second() -> None:
    guards = a_thousand_guards()
    authority = StaticAuthority(dict.fromkeys(map(PartitionId, range(1000)), Ownership(NodeId(NODE), Epoch(EPOCH))))
    fastest_s = min(timeit.repeat(lambda: guards.refresh_all(authority), number=1, repeat=10))
    assert fastest_s < 0.010
