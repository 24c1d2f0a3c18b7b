"""Which partition a key belongs to: a wrong answer hides a row from every reader that asks another way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.keys import PARTITIONS_MAX, KeyEncoder, partition_of, partitions_of

# XXH64 with seed 42, signed: lengths on both sides of the hash's own steps of 4, 8 and 32 bytes, both signs.
DIGESTS = {
    b"": -7_444_071_767_201_028_348,
    b"a": -8_582_455_328_737_087_284,
    b"hedgerow": 6_874_774_280_704_670_709,
    bytes(31): -3_016_080_160_895_773_574,
    bytes(range(32)): -8_644_129_751_861_931_918,
    bytes(range(100)): -9_107_075_101_236_275_961,
    b"\xff" * 8: 3_858_142_552_250_413_010,
}


@pytest.mark.parametrize(("key", "signed_hash"), DIGESTS.items(), ids=lambda value: str(value)[:20])
def test_rows_written_long_ago_are_looked_for_where_they_are(key: bytes, signed_hash: int) -> None:
    for partitions in (1, 2, 3, 8, 1_000, PARTITIONS_MAX):
        assert partition_of(key, partitions) == signed_hash % partitions
        assert partitions_of(pa.array([key], pa.binary()), partitions).tolist() == [signed_hash % partitions]


def test_the_pinned_keys_try_both_signs_of_the_hash() -> None:
    assert {digest > 0 for digest in DIGESTS.values()} == {True, False}


@given(st.lists(st.binary(max_size=80), max_size=20), st.integers(1, PARTITIONS_MAX), st.integers(0, 5))
def test_rows_written_in_bulk_are_looked_for_where_they_are(keys: list[bytes], partitions: int, skip: int) -> None:
    expected = [partition_of(key, partitions) for key in keys]
    assert all(0 <= partition < partitions for partition in expected)
    found = partitions_of(pa.array(keys, pa.binary()), partitions)
    assert found.dtype == np.int32
    assert found.tolist() == expected
    assert partitions_of(pa.array(keys, pa.binary()).slice(skip), partitions).tolist() == expected[skip:]


@pytest.mark.parametrize("partitions", [1, 2, 7, 64])
def test_no_partition_gets_much_more_than_its_share(partitions: int) -> None:
    encoder = KeyEncoder([("id", pa.int64())])
    numbers = partitions_of(encoder.encode_columns([pa.array(range(64_000))]), partitions)
    counts = np.bincount(numbers, minlength=partitions)
    assert counts.size == partitions
    assert counts.min() > 0.8 * 64_000 / partitions
    assert counts.max() < 1.2 * 64_000 / partitions


@pytest.mark.needs("java")
def test_spark_sends_every_row_to_the_partition_where_hedgerow_looks_for_it(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    keys = [rng.bytes(length) for length in range(130) for _ in range(5)]
    keys += [b"\xff" * n for n in range(70)] + [bytes(n) for n in range(70)]
    counts = [1, 2, 3, 7, 8, 255, 4_096, PARTITIONS_MAX]
    path = tmp_path / "keys.parquet"
    pq.write_table(pa.table({"row": range(len(keys)), "_key": pa.array(keys, pa.binary())}), path)
    columns = ["row", "xxhash64(_key) AS hash", *(f"pmod(xxhash64(_key), {n}) AS p{n}" for n in counts)]
    rows = spark.read.parquet(str(path)).selectExpr(*columns).orderBy("row").collect()
    assert [row["row"] for row in rows] == list(range(len(keys)))
    assert {row["hash"] > 0 for row in rows} == {True, False}
    for n in counts:
        assert [row[f"p{n}"] for row in rows] == [partition_of(key, n) for key in keys]
        assert [row[f"p{n}"] for row in rows] == partitions_of(pa.array(keys, pa.binary()), n).tolist()
