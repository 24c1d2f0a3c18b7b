"""Parquet's split-block bloom filter, as stored: is a key certainly not in a block?

A filter is a row of 32-byte blocks of eight 32-bit words. A key's XXH64 (seed 0) picks the block with its upper half and
one bit in each word with its lower half, by eight fixed odd multipliers.
"""

from __future__ import annotations

import xxhash

from hedgerow.errors import Corrupt

__all__ = ["BloomFilter", "key_hash"]

_SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_SHIFTED = tuple((salt, 32 * word) for word, salt in enumerate(_SALTS))
key_hash = xxhash.xxh64_intdigest
"""The hash of a key for every filter: computed once, used for all SSTs."""


class BloomFilter:
    """One block's filter."""

    __slots__ = ("_bits", "_blocks")

    def __init__(self, stored: bytes, name: str = "filter") -> None:
        length, start = _bitset_length(stored, name)
        if length % 32 or not length or start > len(stored) - length:
            raise Corrupt(f"{name}: the bloom filter's length {length} is impossible.")
        self._bits = stored[len(stored) - length :]
        self._blocks = length // 32

    def may_contain(self, hashed: int) -> bool:
        """False: the key with this hash is certainly not there."""
        at = ((hashed >> 32) * self._blocks >> 32) * 32
        block = int.from_bytes(self._bits[at : at + 32], "little")
        low = hashed & 0xFFFF_FFFF
        return all(block >> (shift + ((low * salt & 0xFFFF_FFFF) >> 27)) & 1 for salt, shift in _SHIFTED)


def _bitset_length(stored: bytes, name: str) -> tuple[int, int]:
    """The header is compact Thrift; its first field, the only one of interest, is the bitset's length as a zigzag varint."""
    if len(stored) < 2 or stored[0] != 0x15:
        raise Corrupt(f"{name}: the bloom filter's header is not one.")
    value = shift = 0
    for at in range(1, min(len(stored), 7)):
        value |= (stored[at] & 0x7F) << shift
        shift += 7
        if not stored[at] & 0x80:
            return value >> 1, at + 1
    raise Corrupt(f"{name}: the bloom filter's header does not end.")
