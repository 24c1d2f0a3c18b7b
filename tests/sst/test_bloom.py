"""Bloom filters: a filter that denies a key which is there loses the row, one that passes too much costs reads."""

from __future__ import annotations

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from sst_files import META, NAME, numbered, sst_rows

from hedgerow.errors import Corrupt
from hedgerow.sst import BloomFilter, EncodedSst, SstTail, encode_sst, key_hash

KEYS = st.lists(st.binary(max_size=40), min_size=1, max_size=60, unique=True).map(sorted)


def only_filter(sst: EncodedSst) -> bytes:
    """The stored filter of an SST of one block."""
    return sst.data[sst.filter_offset : sst.filter_offset + sst.filter_len]


def bits_of(keys: list[bytes], length: int) -> bytes:
    """The bitset that Parquet's specification prescribes for these keys, set bit by bit."""
    salts = [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31]
    words = [0] * (length // 4)
    for key in keys:
        hashed = xxhash.xxh64(key, seed=0).intdigest()
        block = (hashed >> 32) * (length // 32) >> 32
        for word, salt in enumerate(salts):
            words[block * 8 + word] |= 1 << ((hashed & 0xFFFF_FFFF) * salt % (1 << 32) >> 27)
    return b"".join(word.to_bytes(4, "little") for word in words)


@settings(max_examples=150, deadline=None)
@given(KEYS, st.integers(1, 60))
def test_the_filter_never_denies_a_key_that_is_there(keys: list[bytes], block_rows: int) -> None:
    sst = encode_sst(sst_rows(keys=keys), META, block_rows=block_rows)
    tail = SstTail(sst.data, len(sst.data), NAME)
    assert [tail.find_block(key, key_hash(key)) for key in keys] == [row // block_rows for row in range(len(keys))]


def test_the_filter_of_a_full_block_denies_none_of_its_keys() -> None:
    keys = numbered(8_192, step=7)
    stored = BloomFilter(only_filter(encode_sst(sst_rows(keys=keys), META)))
    assert all(stored.may_contain(key_hash(key)) for key in keys)


@settings(max_examples=60, deadline=None)
@given(KEYS, st.binary(max_size=40))
def test_the_filter_is_the_one_that_parquet_prescribes(keys: list[bytes], absent: bytes) -> None:
    """Every other reader of Parquet that uses the filter relies on it."""
    stored = only_filter(encode_sst(sst_rows(keys=keys), META))
    length = max(32, 1 << len(stored).bit_length() - 1)
    bits = stored[len(stored) - length :]
    assert bits == bits_of(keys, length)
    probe = bits_of([absent], length)
    contained = all(have & want == want for have, want in zip(bits, probe, strict=True))
    assert BloomFilter(stored, NAME).may_contain(key_hash(absent)) == contained


@pytest.mark.parametrize("count", [1, 10, 100, 1_000, 8_192])
def test_few_absent_keys_pass_the_filter(count: int) -> None:
    keys = numbered(count, step=2)
    stored = BloomFilter(only_filter(encode_sst(sst_rows(keys=keys), META)))
    absent = [key_hash(key) for key in numbered(20_000, step=2, start=1)]
    passed = sum(map(stored.may_contain, absent))
    assert passed < 0.03 * len(absent)


def test_the_filter_is_no_larger_than_it_needs_to_be() -> None:
    assert len(only_filter(encode_sst(sst_rows(keys=numbered(8_192)), META))) < 8_192 * 2.5


def test_few_absent_keys_pass_the_filter_of_a_last_block_with_few_rows() -> None:
    keys = numbered(1_001, step=2)
    sst = encode_sst(sst_rows(keys=keys), META, block_rows=1_000)
    tail = SstTail(sst.data, len(sst.data), NAME)
    assert tail.blocks == 2
    assert tail.find_block(keys[-1], key_hash(keys[-1])) == 1


# --- damage ---------------------------------------------------------------------------------------------------


@settings(max_examples=500)
@given(
    st.one_of(st.binary(max_size=100), st.binary(max_size=100).map(lambda noise: b"\x15" + noise)),
    st.integers(0, (1 << 64) - 1),
)
def test_noise_in_place_of_a_filter_is_reported_or_answers_and_nothing_worse(noise: bytes, hashed: int) -> None:
    try:
        stored = BloomFilter(noise, NAME)
    except Corrupt as error:
        report = str(error)
    else:
        assert stored.may_contain(hashed) in (True, False)
        return
    assert NAME in report


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"\x15",
        b"\x16\x40" + bytes(32),
        b"\x15\x00" + bytes(32),
        b"\x15\x42" + bytes(33),
        b"\x15\x40" + bytes(31),
        b"\x15\x80\x02" + bytes(64),
        b"\x15" + b"\x80" * 10,
        b"\x15\xff\xff\xff\xff\x0f" + bytes(32),
    ],
    ids=lambda stored: stored[:8].hex(),
)
def test_a_filter_with_an_impossible_header_is_reported(stored: bytes) -> None:
    with pytest.raises(Corrupt, match=NAME):
        BloomFilter(stored, NAME)


def test_a_filter_cut_off_at_any_length_is_reported() -> None:
    stored = only_filter(encode_sst(sst_rows(keys=numbered(5)), META))
    header = len(stored) - 32
    assert BloomFilter(stored).may_contain(key_hash(numbered(1)[0]))
    for length in range(len(stored)):
        # The header's end says nothing of interest: only what is too short for the bits is a loss.
        if length < 32 + 2:
            with pytest.raises(Corrupt):
                BloomFilter(stored[:length])
    assert 2 < header < 40


def test_the_hash_of_a_key_is_the_one_parquet_prescribes() -> None:
    assert key_hash(b"") == 0xEF46DB3751D8E999
    assert key_hash(b"hedgerow") == xxhash.xxh64(b"hedgerow", seed=0).intdigest()


def test_only_the_key_column_pays_for_a_filter() -> None:
    import pyarrow.parquet as pq

    sst = encode_sst(sst_rows({"n": pa.array(range(10))}), META)
    group = pq.read_metadata(pa.BufferReader(sst.data)).row_group(0)
    filtered = [group.column(i).path_in_schema for i in range(group.num_columns) if group.column(i).bloom_filter_offset]
    assert filtered == ["_key"]
