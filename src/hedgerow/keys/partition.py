"""Which partition a key belongs to.

The hash is XXH64 with seed 42 over the encoded key, read as a signed number, modulo the number of partitions. It is
the hash that Spark calls ``xxhash64`` on a binary column, so ``pmod(xxhash64(_key), n)`` in Spark SQL gives the same
partition. It is part of the storage format: it never changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

__all__ = ["PARTITIONS_MAX", "partition_of", "partitions_of"]

PARTITIONS_MAX = 65_536
_SEED = 42
_SIGN = 1 << 63
_digest = xxhash.xxh64_intdigest


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of one encoded key.

    >>> partition_of(b"hedgerow", 8)
    5
    """
    if partitions == 1:
        return 0
    digest = _digest(key, _SEED)
    return (digest - (1 << 64) if digest & _SIGN else digest) % partitions


def partitions_of(keys: pa.Array, partitions: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The partition of every key of a binary array.

    >>> partitions_of(pa.array([b"hedgerow", b"hedge"], pa.binary()), 8).tolist()
    [5, 3]
    """
    count = len(keys)
    if partitions == 1:
        return np.zeros(count, np.int32)
    digests = np.fromiter((_digest(key, _SEED) for key in keys.to_pylist()), np.uint64, count)
    return (digests.view(np.int64) % np.int64(partitions)).astype(np.int32)
