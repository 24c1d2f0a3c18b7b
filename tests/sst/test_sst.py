"""SSTs: every row comes back as it was written, at the price promised, or the damage is reported."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import json
import random
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sst_files import FENCE, META, NAME, numbered, regions, resealed, sealed, small_sst, sst_rows

from hedgerow.errors import Corrupt, InvalidInput, UnsupportedFormat
from hedgerow.sst import (
    Block,
    EncodedSst,
    Run,
    SstMeta,
    SstTail,
    encode_sst,
    key_hash,
    read_meta,
    read_whole,
    sst_schema,
)
from hedgerow.sst.format import checksum_slot
from hedgerow.sst.read import _checked_sums


def tail_of(sst: EncodedSst, name: str = NAME) -> SstTail:
    return SstTail(sst.data[sst.filter_offset :], len(sst.data), name, sst.checksum)


def block_bytes(tail: SstTail, data: bytes, block: int) -> bytes:
    start, length = tail.block_range(block)
    return data[start : start + length]


# --- every type comes back -----------------------------------------------------------------------------------


def numbers(dtype: pa.DataType, *values: int | None) -> pa.Array:
    """Values by the numbers they are stored as, which no conversion can round."""
    return pa.array(values, pa.int32() if dtype.bit_width == 32 else pa.int64()).view(dtype)


def decimals(dtype: pa.DataType) -> pa.Array:
    largest = decimal.Decimal("9" * dtype.precision).scaleb(-dtype.scale, decimal.Context(prec=100))
    return pa.array([largest, None, largest.copy_negate(), decimal.Decimal(0), largest], dtype)


DAY_MS = 86_400_000
HUGE = 1 << 62
COLUMNS: list[pa.Array] = [
    *(
        pa.array([np.iinfo(name).min, None, np.iinfo(name).max, 0, 1], pa.type_for_alias(name))
        for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    ),
    *(
        pa.array([float("inf"), None, float("-inf"), -0.0, 0.5], dtype)
        for dtype in (pa.float16(), pa.float32(), pa.float64())
    ),
    *map(decimals, [pa.decimal32(9, 4), pa.decimal64(18, 0), pa.decimal128(38, 38), pa.decimal256(76, 1)]),
    pa.array([True, None, False, None, True]),
    pa.array(["", None, "é\0\U0010ffff", "x" * 10_000, "end"]),
    pa.array([b"", None, b"\0\xff", b"x" * 10_000, b"end"]),
    pa.array([b"abc", None, b"\0\0\0", b"\xff\xff\xff", b"end"], pa.binary(3)),
    numbers(pa.date32(), -(1 << 31), None, (1 << 31) - 1, 0, -1),
    numbers(pa.date64(), -DAY_MS, None, 0, DAY_MS, 1_000_000 * DAY_MS),
    numbers(pa.time32("s"), 0, None, 86_399, 1, 2),
    numbers(pa.time32("ms"), 0, None, 86_399_999, 1, 2),
    numbers(pa.time64("us"), 0, None, 86_399_999_999, 1, 2),
    numbers(pa.time64("ns"), 0, None, 86_399_999_999_999, 1, 2),
    *(numbers(pa.timestamp("s", zone), -1, None, 1 << 50, -(1 << 50), 0) for zone in (None, "UTC", "Europe/Berlin")),
    *(
        numbers(pa.timestamp(unit, zone), -1, None, HUGE, -HUGE, 0)
        for unit in ("ms", "us", "ns")
        for zone in (None, "UTC")
    ),
    *(numbers(pa.duration(unit), -1, None, HUGE, -HUGE, 0) for unit in ("s", "ms", "us", "ns")),
]


def as_lists(column: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(
        pa.array([0, 2, 2, 3, 5, 5], pa.int32()), column, mask=pa.array([False, False, True, False, False])
    )


def as_structs(column: pa.Array) -> pa.Array:
    mask = pa.array([False, False, True, False, False])
    return pa.StructArray.from_arrays([column, pa.array(range(5))], ["value", "other"], mask=mask)


def as_maps(column: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(pa.array([0, 2, 2, 3, 4, 5], pa.int32()), pa.array(list("abcde")), column)


def as_pairs(column: pa.Array) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.concat_arrays([column, column]), 2)


WRAPPED: list[Callable[[pa.Array], pa.Array]] = [lambda column: column, as_lists, as_structs, as_maps, as_pairs]


@pytest.mark.parametrize("wrap", WRAPPED, ids=["plain", "list", "struct", "map", "pair"])
@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_a_column_of_any_type_comes_back_as_it_was_written(
    column: pa.Array, wrap: Callable[[pa.Array], pa.Array]
) -> None:
    rows = sst_rows({"before": pa.array(range(5)), "value": wrap(column), "after": pa.array(list("abcde"))})
    sst = encode_sst(rows, META, block_rows=2)
    meta, back = read_whole(sst.data, NAME, sst.checksum)
    back.validate(full=True)
    assert back.schema == rows.schema
    assert back.equals(rows)
    assert meta == msgspec.structs.replace(META, rows=5)
    assert tail_of(sst).decode_all(sst.data, ["value"]).equals(rows.select(["_key", "_op", "_seq", "value"]))


def test_a_deeply_nested_column_comes_back_as_it_was_written() -> None:
    innermost = pa.struct(
        [("at", pa.timestamp("s")), ("day", pa.date64()), ("amounts", pa.list_(pa.decimal256(50, 5)))]
    )
    dtype = pa.list_(pa.struct([("tags", pa.map_(pa.string(), pa.list_(innermost))), ("n", pa.uint64())]))
    inner = {"at": dt.datetime(2024, 1, 1), "day": dt.date(2024, 1, 1), "amounts": [decimal.Decimal("1.00000"), None]}
    values = [
        [{"tags": [("a", [inner, None]), ("b", None)], "n": 1 << 63}, None],
        [],
        None,
        [{"tags": None, "n": None}],
    ]
    rows = sst_rows({"value": pa.array(values, dtype)})
    sst = encode_sst(rows, META, block_rows=2)
    _, back = read_whole(sst.data, NAME, sst.checksum)
    assert back.schema == rows.schema
    assert back.equals(rows)


def test_rows_from_the_log_and_from_a_file_can_be_merged_whatever_their_types() -> None:
    rows = sst_rows({f"c{i}": column for i, column in enumerate(COLUMNS)})
    sst = encode_sst(rows, META)
    _, back = read_whole(sst.data, NAME)
    assert pa.concat_tables([rows, back]).num_rows == 10


# --- rows, deletes, blocks -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    keys=st.lists(st.binary(max_size=20), max_size=60, unique=True).map(sorted),
    block_rows=st.integers(1, 70),
    data=st.data(),
)
def test_every_row_and_delete_comes_back_from_its_block(
    keys: list[bytes], block_rows: int, data: st.DataObject
) -> None:
    deletes = data.draw(st.lists(st.sampled_from(range(len(keys))), unique=True)) if keys else []
    texts = [None if row in deletes else f"row {row}" for row in range(len(keys))]
    rows = sst_rows({"text": pa.array(texts, pa.string())}, keys=keys, deletes=deletes)
    sst = encode_sst(rows, META, block_rows=block_rows)
    tail = tail_of(sst)
    assert tail.meta.rows == sst.rows == sst.meta.rows == len(keys)
    assert tail.blocks == -(-len(keys) // block_rows)
    assert (sst.first_key, sst.last_key) == ((keys[0], keys[-1]) if keys else (b"", b""))
    assert list(tail.first_keys) == keys[::block_rows]
    assert list(tail.last_keys) == [keys[min(at + block_rows, len(keys)) - 1] for at in range(0, len(keys), block_rows)]
    whole = tail.decode_all(sst.data)
    assert whole.equals(rows)
    for number in range(tail.blocks):
        part = tail.decode_block(number, block_bytes(tail, sst.data, number))
        assert part.equals(whole.slice(number * block_rows, block_rows))
    for row, key in enumerate(keys):
        assert tail.find_block(key, key_hash(key)) == row // block_rows
        block = Block(tail.decode_block(row // block_rows, block_bytes(tail, sst.data, row // block_rows)))
        at = block.find(key)
        assert at == row % block_rows
        assert block.row(at) == (None if row in deletes else {"text": f"row {row}"})


def test_a_fence_without_rows_says_who_set_it() -> None:
    rows = sst_rows({"text": pa.array([], pa.string()), "day": pa.array([], pa.date64())})
    sst = encode_sst(rows, FENCE)
    meta, back = read_whole(sst.data, NAME, sst.checksum, pa.schema([("text", pa.string()), ("day", pa.date64())]))
    assert meta == FENCE == read_meta(sst.data, NAME)
    assert meta.is_fence
    assert back.num_rows == 0
    assert back.schema == rows.schema
    tail = tail_of(sst)
    assert tail.decode_all(sst.data, ["day"]).schema.names == ["_key", "_op", "_seq", "day"]
    assert (tail.blocks, tail.find_block(b"", key_hash(b"")), tail.blocks_between(None, None)) == (0, None, range(0))


@pytest.mark.parametrize("key", [b"", b"\0", b"\xff" * 2048], ids=["empty", "nul", "longest"])
def test_a_single_row_is_found_whatever_its_key(key: bytes) -> None:
    sst = encode_sst(sst_rows({"n": pa.array([5])}, keys=[key]), META)
    tail = tail_of(sst)
    assert (tail.first_keys, tail.last_keys) == ([key], [key])
    assert tail.find_block(key, key_hash(key)) == 0
    assert tail.find_block(key + b"\0", key_hash(key + b"\0")) is None


def test_long_keys_that_differ_only_at_their_end_are_told_apart_by_block() -> None:
    keys = [b"x" * 2047 + bytes([last]) for last in range(256)]
    sst = encode_sst(sst_rows({"n": pa.array(range(256))}, keys=keys), META, block_rows=1)
    tail = tail_of(sst)
    assert list(tail.first_keys) == list(tail.last_keys) == keys
    assert [tail.find_block(key, key_hash(key)) for key in keys] == list(range(256))


def test_blocks_stay_near_their_size_whatever_the_width_of_a_row() -> None:
    narrow = encode_sst(sst_rows({"n": pa.array(range(20_000))}), META)
    assert tail_of(narrow).blocks == 3
    wide = encode_sst(sst_rows({"text": pa.array(["x" * (1 << 19)] * 10)}), META)
    assert tail_of(wide).blocks == 10
    giant = encode_sst(sst_rows({"text": pa.array(["x" * (3 << 20)] * 2)}), META)
    assert tail_of(giant).blocks == 2


def test_rows_in_many_chunks_are_laid_out_as_if_they_were_one() -> None:
    rows = sst_rows({"n": pa.array(range(100))})
    pieces = pa.concat_tables([rows.slice(at, 7) for at in range(0, 100, 7)])
    assert pieces.column(0).num_chunks == 15
    assert encode_sst(pieces, META, block_rows=30) == encode_sst(rows, META, block_rows=30)
    sliced = encode_sst(rows.slice(10, 50), META, block_rows=30)
    assert read_whole(sliced.data, NAME)[1].equals(rows.slice(10, 50))


def test_the_same_rows_make_the_same_file() -> None:
    assert small_sst()[0] == small_sst()[0]


# --- only what is asked for -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [[], ["c"], ["c", "a"], ["a.b"], ["a"], ["a.b", "c", "a"]], ids=str)
def test_a_read_gets_just_the_columns_it_asks_for_in_its_order(wanted: list[str]) -> None:
    columns = {
        "a": pa.array([{"b": 1}, {"b": 2}, None]),
        "a.b": pa.array([3, 4, 5]),
        "c": numbers(pa.timestamp("s"), 6, 7, 8),
    }
    rows = sst_rows(columns)
    expected = rows.select(["_key", "_op", "_seq", *wanted])
    sst = encode_sst(rows, META, block_rows=2)
    tail = tail_of(sst)
    assert tail.decode_all(sst.data, wanted).equals(expected)
    assert tail.decode_block(1, block_bytes(tail, sst.data, 1), wanted).equals(expected.slice(2))


def test_a_column_the_file_does_not_have_is_reported() -> None:
    sst, _ = small_sst()
    tail = tail_of(sst)
    with pytest.raises(Corrupt, match=rf"{NAME} has no column 'shoe size'"):
        tail.decode_all(sst.data, ["name", "shoe size"])


class CountingFile:
    """An object in a store that keeps note of every range that is read. What was not promised to be read is noise."""

    def __init__(self, sst: EncodedSst) -> None:
        self._sst = sst
        self.ranges: list[tuple[int, int]] = []

    def read(self, start: int, length: int) -> bytes:
        self.ranges.append((start, length))
        return self._sst.data[start : start + length]

    def lookup(self, key: bytes) -> dict[str, Any] | None:
        """As a reader does that knows of the file what the manifest says."""
        sst, size = self._sst, len(self._sst.data)
        tail = SstTail(self.read(sst.filter_offset, size - sst.filter_offset), size, NAME, sst.checksum)
        number = tail.find_block(key, key_hash(key))
        if number is None:
            return None
        block = Block(tail.decode_block(number, self.read(*tail.block_range(number))))
        at = block.find(key)
        return None if at < 0 else block.row(at)


def test_a_cold_lookup_reads_the_tail_and_one_block_and_not_a_byte_more() -> None:
    keys = numbered(1_000, step=3)
    sst = encode_sst(sst_rows({"n": pa.array(range(1_000))}, keys=keys), META, block_rows=100)
    parts = regions(sst)
    tail = (sst.filter_offset, len(sst.data) - sst.filter_offset)
    for row in range(0, 1_000, 37):
        file = CountingFile(sst)
        assert file.lookup(keys[row]) == {"n": row}
        block = parts[f"block {row // 100}"]
        assert file.ranges == [tail, (block.start, len(block))]


def test_a_lookup_of_a_key_outside_every_block_reads_only_the_tail() -> None:
    keys = numbered(100, step=10, start=1_000)
    sst = encode_sst(sst_rows({"n": pa.array(range(100))}, keys=keys), META, block_rows=10)
    # Before the first key, after the last, and in the gap between two blocks.
    for absent in (0, 999, 1_991, 1 << 40, 1_095, 1_099):
        file = CountingFile(sst)
        assert file.lookup(absent.to_bytes(8, "big")) is None
        assert len(file.ranges) == 1


def test_most_lookups_of_absent_keys_read_only_the_tail() -> None:
    keys = numbered(10_000, step=2)
    sst = encode_sst(sst_rows(keys=keys), META, block_rows=1_000)
    tail = tail_of(sst)
    absent = numbered(9_999, step=2, start=1)
    passed = sum(tail.find_block(key, key_hash(key)) is not None for key in absent)
    assert passed < 0.03 * len(absent)


def test_the_tail_may_come_with_any_part_of_the_file_before_it() -> None:
    sst, rows = small_sst()
    size = len(sst.data)
    for begin in range(sst.filter_offset + 1):
        tail = SstTail(sst.data[begin:], size, NAME, sst.checksum)
        assert tail.decode_all(sst.data).equals(rows)
    for begin in range(sst.filter_offset + 1, size + 1):
        with pytest.raises(Corrupt, match=NAME):
            SstTail(sst.data[begin:], size, NAME, sst.checksum)


@pytest.mark.parametrize("block_rows", [1, 2, 3, 5, 100])
def test_a_scan_reads_just_the_blocks_that_overlap_its_range(block_rows: int) -> None:
    """Every range there is: bounds on, before and after the first and last key of every block."""
    present = [1, 2, 3, 5, 8, 10, 11, 14, 15, 16, 20]
    tail = tail_of(encode_sst(sst_rows(keys=[bytes([n]) for n in present]), META, block_rows=block_rows))
    blocks = [present[at : at + block_rows] for at in range(0, len(present), block_rows)]
    for start, end in itertools.product([None, *range(23)], repeat=2):
        found = tail.blocks_between(
            None if start is None else bytes([start]),
            None if end is None else bytes([end]),
        )
        low, high = -1 if start is None else start, 99 if end is None else end
        assert {i for i, block in enumerate(blocks) if any(low <= n < high for n in block)} <= set(found)
        if low < high:
            assert list(found) == [i for i, block in enumerate(blocks) if block[-1] >= low and block[0] < high]


def test_the_blocks_ranges_rule_a_key_out_even_where_the_filter_would_let_it_pass() -> None:
    keys = numbered(100, step=10, start=1_000)
    tail = tail_of(encode_sst(sst_rows(keys=keys), META, block_rows=10))
    for absent, like in [(999, 0), (1_091, 9), (1_099, 9), (1_991, 99), (1 << 40, 99)]:
        assert tail.find_block(keys[like], key_hash(keys[like])) == like // 10
        assert tail.find_block(absent.to_bytes(8, "big"), key_hash(keys[like])) is None


# --- damage is reported, never believed ------------------------------------------------------------------------


def read_all(data: bytes, checksum: int | None) -> tuple[SstMeta, pa.Table]:
    return read_whole(data, NAME, checksum)


T = TypeVar("T")


def unless_corrupt(read: Callable[[], T]) -> T | None:
    """What is read, or None where damage is reported; the report must name the file."""
    try:
        return read()
    except Corrupt as error:
        report = str(error)
    assert NAME in report
    return None


def assert_corrupt(data: bytes, checksum: int | None, where: object) -> None:
    assert unless_corrupt(lambda: read_all(data, checksum)) is None, f"Damage went unnoticed: {where}"


@pytest.mark.parametrize("pinned", [True, False], ids=["manifest's checksum", "alone"])
def test_a_flipped_bit_anywhere_in_the_file_is_reported_with_the_files_name(pinned: bool) -> None:
    sst, rows = small_sst()
    parts = regions(sst)
    assert sorted(at for part in parts.values() for at in part) == list(range(len(sst.data)))
    assert sum(name.startswith("block") for name in parts) == 3
    assert all(len(part) for part in parts.values())
    checksum = sst.checksum if pinned else None
    assert read_all(sst.data, checksum)[1].equals(rows)
    for name, part in parts.items():
        for at in part:
            for bit in range(8):
                damaged = bytearray(sst.data)
                damaged[at] ^= 1 << bit
                assert_corrupt(bytes(damaged), checksum, (name, at, bit))


@pytest.mark.parametrize("pinned", [True, False], ids=["manifest's checksum", "alone"])
def test_a_flipped_bit_is_reported_by_a_reader_that_fetches_tail_and_blocks(pinned: bool) -> None:
    sst, rows = small_sst()
    size = len(sst.data)
    checksum = sst.checksum if pinned else None
    for name, part in regions(sst).items():
        for at in part:
            damaged = bytearray(sst.data)
            damaged[at] ^= 1 << at % 8
            data = bytes(damaged)
            read = 0
            tail = unless_corrupt(lambda data=data: SstTail(data[sst.filter_offset :], size, NAME, checksum))
            for number in range(tail.blocks if tail else 0):
                piece = block_bytes(tail, data, number)
                block = unless_corrupt(lambda tail=tail, n=number, piece=piece: tail.decode_block(n, piece))
                if block is not None:
                    assert block.equals(rows.slice(number * 3, 3))
                    read += 1
            if name == "checksums" and not pinned:
                assert read in (0, 2), at  # the one block whose checksum it is, or everything
            else:
                assert read == {"magic": 3, "block 0": 2, "block 1": 2, "block 2": 2}.get(name, 0), (name, at)


@pytest.mark.parametrize("pinned", [True, False], ids=["manifest's checksum", "alone"])
def test_a_fence_with_a_flipped_bit_is_reported(pinned: bool) -> None:
    sst = encode_sst(sst_rows({"text": pa.array([], pa.string())}), FENCE)
    for at in range(len(sst.data)):
        for bit in range(8):
            damaged = bytearray(sst.data)
            damaged[at] ^= 1 << bit
            assert_corrupt(bytes(damaged), sst.checksum if pinned else None, (at, bit))
            # Who set it is either told rightly, where the damage is elsewhere, or not at all.
            assert unless_corrupt(lambda damaged=damaged: read_meta(bytes(damaged), NAME)) in (FENCE, None)


@pytest.mark.parametrize("pinned", [True, False], ids=["manifest's checksum", "alone"])
def test_a_file_cut_off_at_any_length_is_reported(pinned: bool) -> None:
    sst, _ = small_sst()
    checksum = sst.checksum if pinned else None
    for length in range(len(sst.data)):
        assert_corrupt(sst.data[:length], checksum, f"cut off after {length} bytes")
        assert_corrupt(sst.data[len(sst.data) - length :], checksum, f"only the last {length} bytes")


def test_a_larger_file_damaged_in_every_block_is_reported() -> None:
    rng = random.Random(5)
    rows = sst_rows(
        {"n": pa.array(range(20_000)), "text": pa.array([f"{n * 2_654_435_761 % 97}" for n in range(20_000)])}
    )
    sst = encode_sst(rows, META, block_rows=1_000)
    for name, part in regions(sst).items():
        for at in rng.sample(part, min(len(part), 12)):
            damaged = bytearray(sst.data)
            damaged[at] ^= 1 << rng.randrange(8)
            assert_corrupt(bytes(damaged), sst.checksum, (name, at))


def test_a_part_of_one_file_in_anothers_place_is_reported() -> None:
    (ours, _), (theirs, _) = small_sst(first=0), small_sst(first=100)
    foreign = regions(theirs)
    for name, part in regions(ours).items():
        stranger = theirs.data[foreign[name].start : foreign[name].stop]
        if stranger == ours.data[part.start : part.stop]:
            continue
        mixed = ours.data[: part.start] + stranger + ours.data[part.stop :]
        assert_corrupt(mixed, ours.checksum, name)
        assert_corrupt(mixed, None, name)


def test_an_intact_file_in_anothers_place_is_reported() -> None:
    (ours, _), (theirs, rows) = small_sst(first=0), small_sst(first=100)
    assert read_all(theirs.data, theirs.checksum)[1].equals(rows)
    assert_corrupt(theirs.data, ours.checksum, "another file")
    same_rows, _ = small_sst(first=0, meta=msgspec.structs.replace(META, epoch=8))
    assert_corrupt(same_rows.data, ours.checksum, "the same rows of another epoch")


def test_a_file_of_another_size_than_the_manifest_says_is_reported() -> None:
    sst, _ = small_sst()
    tail = sst.data[sst.filter_offset :]
    for size in [*range(len(sst.data)), *range(len(sst.data) + 1, 2 * len(sst.data))]:
        with pytest.raises(Corrupt, match=NAME):
            SstTail(tail, size, NAME, sst.checksum)


def test_two_blocks_that_changed_places_are_reported() -> None:
    rows = sst_rows({"n": pa.array([7] * 4)}, keys=[b"a", b"b", b"c", b"d"])
    sst = encode_sst(rows, META, block_rows=1)
    parts = regions(sst)
    one, two = parts["block 1"], parts["block 2"]
    assert len(one) == len(two)
    mixed = bytearray(sst.data)
    mixed[one.start : one.stop], mixed[two.start : two.stop] = (
        sst.data[two.start : two.stop],
        sst.data[one.start : one.stop],
    )
    assert_corrupt(bytes(mixed), sst.checksum, "swapped")
    tail = tail_of(sst)
    with pytest.raises(Corrupt, match=rf"{NAME} .*block 1"):
        tail.decode_block(1, block_bytes(tail, sst.data, 2))
    with pytest.raises(Corrupt, match=rf"{NAME} .*block 1"):
        tail.decode_block(1, block_bytes(tail, sst.data, 1)[:-1])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_bytes_of_one_file_copied_into_another_are_reported(data: st.DataObject) -> None:
    (ours, rows), (theirs, _) = small_sst(first=0), small_sst(first=100)
    size = min(len(ours.data), len(theirs.data))
    start = data.draw(st.integers(0, size - 1))
    end = data.draw(st.integers(start + 1, size))
    mixed = ours.data[:start] + theirs.data[start:end] + ours.data[end:]
    if mixed == ours.data:
        assert read_all(mixed, ours.checksum)[1].equals(rows)
    else:
        assert_corrupt(mixed, ours.checksum, (start, end))


# --- noise ----------------------------------------------------------------------------------------------------

CHECKSUMS = b"hedgerow.checksums"
NOISE = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from([CHECKSUMS, CHECKSUMS + b"\x18", CHECKSUMS + b"\x180", b"\x30", b"0" * 48, b"PAR1", b"\x15"]),
        st.sampled_from([CHECKSUMS + b"\x18\x30" + b"0" * 48, CHECKSUMS + b"\x18\xff\xff\xff\xff\x7f", b"\x80" * 8]),
        st.integers(0, 1 << 32).map(lambda n: n.to_bytes(5, "little")[:4]),
    ),
    max_size=12,
).map(b"".join)
noisy = settings(max_examples=500, deadline=None)


def framed(noise: bytes, length: int | None = None) -> bytes:
    """Noise that ends as a Parquet file does."""
    return b"PAR1" + noise + (len(noise) if length is None else length).to_bytes(4, "little") + b"PAR1"


@noisy
@given(
    NOISE, st.none() | st.integers(0, 200) | st.integers(0, (1 << 32) - 1), st.none() | st.integers(0, (1 << 64) - 1)
)
def test_noise_is_reported_as_damage_and_nothing_worse(noise: bytes, length: int | None, checksum: int | None) -> None:
    for data in (noise, framed(noise, length)):
        assert_corrupt(data, checksum, "noise")
        with pytest.raises(Corrupt, match=NAME):
            read_meta(data, NAME)
        for size in (0, len(data), len(data) + 1_000_000):
            with pytest.raises(Corrupt, match=NAME):
                SstTail(data, size, NAME, checksum)


@noisy
@given(NOISE)
def test_noise_in_place_of_the_checksums_is_reported_as_damage(noise: bytes) -> None:
    for footer in (noise, CHECKSUMS + noise, CHECKSUMS + b"\x18" + noise):
        slot = unless_corrupt(lambda footer=footer: checksum_slot(footer, NAME))
        if slot is not None:
            at, length = slot
            assert 0 < at < at + length <= len(footer)
            assert length >= 48
            assert length % 16 == 0
        with pytest.raises(Corrupt, match=NAME):
            _checked_sums(footer, NAME)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_file_with_whole_stretches_overwritten_is_reported(data: st.DataObject) -> None:
    sst, rows = small_sst()
    start = data.draw(st.integers(0, len(sst.data) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=200))
    damaged = sst.data[:start] + noise + sst.data[start + len(noise) :]
    if damaged == sst.data:
        assert read_all(damaged, None)[1].equals(rows)
    else:
        assert_corrupt(damaged, None, start)
        assert_corrupt(damaged, sst.checksum, start)


# --- files that are whole, but not what they should be -----------------------------------------------------------


def parquet_with(pairs: dict[str, str] | None, *, rows: pa.Table | None = None, **options: Any) -> bytes:
    """A Parquet file with checksums that match, as a program other than this Hedgerow might make it."""
    rows = sst_rows({"n": pa.array([1, 2, 3])}) if rows is None else rows
    sink = pa.BufferOutputStream()
    options = {"bloom_filter_options": {"_key": {"ndv": 3, "fpp": 0.01}}, "write_page_index": True} | options
    with pq.ParquetWriter(sink, rows.schema, **options) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata((pairs or {}) | {"hedgerow.checksums": "0" * 64})
    data = sink.getvalue().to_pybytes()
    column = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(0)
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    filters = (column.bloom_filter_offset or footer, column.bloom_filter_length or 0)
    edges = [4, filters[0], sum(filters), footer]
    return sealed(data, [range(*edges[:2])], range(*edges[1:3]), range(*edges[2:]))


def meta_json(**changes: Any) -> dict[str, str]:
    return {"hedgerow": json.dumps(msgspec.to_builtins(META) | changes)}


def test_the_files_made_by_hand_are_read_when_nothing_is_wrong_with_them() -> None:
    assert read_whole(parquet_with(meta_json(rows=3)), NAME)[1].equals(sst_rows({"n": pa.array([1, 2, 3])}))


@pytest.mark.parametrize("newer", [2, 3, 1_000])
def test_a_file_of_a_newer_hedgerow_is_refused_with_the_advice_to_upgrade(newer: int) -> None:
    changed = meta_json(format=newer, fences={"meaning": "changed"}, more=[1])
    for read in (lambda data: read_whole(data, NAME), lambda data: read_meta(data, NAME)):
        with pytest.raises(UnsupportedFormat, match=rf"{NAME} has SST format {newer}.*Upgrade"):
            read(parquet_with(changed))
    sst = encode_sst(sst_rows({"n": pa.array([1])}), msgspec.structs.replace(META, format=newer))
    with pytest.raises(UnsupportedFormat, match=NAME):
        read_meta(sst.data, NAME)


def test_every_file_says_which_format_it_has_so_that_an_older_hedgerow_can_tell() -> None:
    for sst in (small_sst()[0], encode_sst(sst_rows({"n": pa.array([], pa.int64())}), FENCE)):
        stored = json.loads(pq.read_metadata(pa.BufferReader(sst.data)).metadata[b"hedgerow"])
        assert stored["format"] == 1


def test_a_field_that_a_later_hedgerow_adds_to_this_format_is_ignored() -> None:
    assert read_meta(parquet_with(meta_json(note="new")), NAME) == META


@pytest.mark.parametrize(
    "pairs",
    [
        None,
        {"hedgerow": ""},
        {"hedgerow": "no JSON"},
        {"hedgerow": "[]"},
        {"hedgerow": "5"},
        {"hedgerow": "null"},
        {"hedgerow": "{}"},
        meta_json(format="2"),
        meta_json(format=None),
        meta_json(partition="three"),
        meta_json(kind=5),
    ],
    ids=str,
)
def test_a_parquet_file_that_is_no_sst_is_refused(pairs: dict[str, str] | None) -> None:
    data = parquet_with(pairs)
    with pytest.raises(Corrupt, match=NAME):
        read_whole(data, NAME)
    with pytest.raises(Corrupt, match=NAME):
        read_meta(data, NAME)


def test_a_parquet_file_of_another_program_is_refused() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": [1, 2, 3]}), sink)
    assert_corrupt(sink.getvalue().to_pybytes(), None, "no checksums")


@pytest.mark.parametrize(
    "options",
    [{"bloom_filter_options": None}, {"write_statistics": False}, {"store_schema": False}],
    ids=["no filter", "no bounds", "no types"],
)
def test_a_file_that_lacks_what_lookups_need_is_refused(options: dict[str, Any]) -> None:
    assert_corrupt(parquet_with(meta_json(), **options), None, options)


@pytest.mark.parametrize("checksums", [3, 4, 5, 7])
def test_a_file_with_more_or_fewer_checksums_than_blocks_is_refused(checksums: int) -> None:
    rows = sst_rows({"n": pa.array([1, 2, 3])})
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, bloom_filter_options={"_key": {"ndv": 3, "fpp": 0.01}}) as writer:
        writer.write_table(rows, row_group_size=1)
        writer.add_key_value_metadata(meta_json() | {"hedgerow.checksums": "0" * 16 * checksums})
    data = sealed(sink.getvalue().to_pybytes(), [range(0)] * (checksums - 3), range(0), range(0))
    with pytest.raises(Corrupt, match=rf"{NAME} has {checksums} checksums for 3 blocks"):
        read_whole(data, NAME)


def test_a_file_whose_parts_are_not_in_order_is_refused() -> None:
    # Another column first: the blocks' bytes would be looked for behind the filter that is taken for the key's.
    rows = sst_rows({"n": pa.array([1, 2, 3])})
    data = parquet_with(meta_json(), rows=rows.select(["n", "_key", "_op", "_seq"]))
    assert read_meta(data, NAME) == META
    assert_corrupt(data, None, "no filter for the first column")


def test_rows_that_were_damaged_before_the_file_was_sealed_are_reported_with_the_files_name() -> None:
    sst, _ = small_sst()
    block = regions(sst)["block 1"]
    undecodable = 0
    for at in block:
        damaged = bytearray(sst.data)
        damaged[at] ^= 0xFF
        data = resealed(sst, bytes(damaged))
        tail = SstTail(data, len(data), NAME)
        for decode in (
            lambda tail=tail, data=data: tail.decode_block(1, block_bytes(tail, data, 1)),
            lambda tail=tail, data=data: tail.decode_all(data),
        ):
            undecodable += unless_corrupt(decode) is None
    assert undecodable > len(block)


def test_a_filter_that_was_damaged_before_the_file_was_sealed_is_reported_with_the_files_name() -> None:
    sst, _ = small_sst()
    filters = regions(sst)["filters"]
    damaged = bytearray(sst.data)
    damaged[filters.start] ^= 0xFF
    with pytest.raises(Corrupt, match=rf"{NAME}.*filter"):
        SstTail(resealed(sst, bytes(damaged)), len(sst.data), NAME)


def test_a_file_of_another_table_is_refused_where_the_columns_are_known() -> None:
    sst, rows = small_sst()
    columns = pa.schema([("name", pa.string()), ("born", pa.int64())])
    assert read_whole(sst.data, NAME, sst.checksum, columns)[1].equals(rows)
    for other in (
        columns.remove(0),
        columns.append(pa.field("more", pa.int8())),
        pa.schema([columns.field(1), columns.field(0)]),
    ):
        with pytest.raises(Corrupt, match=rf"{NAME} has the columns .* not the table's"):
            read_whole(sst.data, NAME, sst.checksum, other)


@pytest.mark.parametrize("name", ["_key", "_op", "_seq"])
def test_a_table_cannot_have_a_column_of_hedgerows_own(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"'{name}'"):
        sst_schema(pa.schema([("id", pa.int64()), (name, pa.int64())]))


def test_a_column_may_be_called_as_the_checksums_are() -> None:
    rows = sst_rows({"hedgerow.checksums": pa.array([1, 2, 3]), "hedgerow": pa.array(["hedgerow.checksums\x18"] * 3)})
    sst = encode_sst(rows, META, block_rows=1)
    assert read_whole(sst.data, NAME, sst.checksum)[1].equals(rows)


# --- blocks and runs in memory -----------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=3), unique=True, max_size=30).map(sorted), st.lists(st.binary(max_size=3)))
def test_a_row_in_a_block_is_found_by_its_key_and_no_other(present: list[bytes], asked: list[bytes]) -> None:
    block = Block(sst_rows({"n": pa.array(range(len(present)))}, keys=present))
    for key in [*present, *asked]:
        assert block.find(key) == (present.index(key) if key in present else -1)


@pytest.mark.parametrize("wrap", WRAPPED, ids=["plain", "list", "struct", "map", "pair"])
@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_no_value_keeps_the_rows_around_it_from_being_read(
    column: pa.Array, wrap: Callable[[pa.Array], pa.Array]
) -> None:
    values = wrap(column)
    block = Block(sst_rows({"value": values}))
    for at in range(5):
        row = block.row(at)
        assert row is not None
        try:
            expected = values[at].as_py()
        except (ValueError, OverflowError):  # beyond Python's own types
            assert row["value"] is not None
        else:
            assert row == {"value": expected}


def test_moments_beyond_pythons_own_types_come_back_exactly() -> None:
    first, last = np.datetime64(1, "ns"), np.datetime64(1 << 50, "s")
    columns = {
        "ns": numbers(pa.timestamp("ns", "UTC"), 1, 1_000, None),
        "s": numbers(pa.timestamp("s"), 1 << 50, 1, None),
        "day": numbers(pa.date32(), (1 << 31) - 1, 1, None),
        "wait": numbers(pa.duration("ns"), 7, 1_000, None),
        "time": numbers(pa.time64("ns"), 7, 1_000, None),
    }
    columns["list"] = pa.ListArray.from_arrays(pa.array([0, 2, 3, 3], pa.int32()), columns["s"])
    columns["map"] = pa.MapArray.from_arrays(
        pa.array([0, 2, 3, 3], pa.int32()), pa.array(["a", "b", "c"]), columns["s"]
    )
    columns["struct"] = pa.StructArray.from_arrays([columns["ns"], columns["s"]], ["ns", "s"])
    block = Block(sst_rows(columns))
    second = dt.datetime(1970, 1, 1, 0, 0, 1)
    beyond = block.row(0)
    assert beyond == {
        "ns": first,
        "s": last,
        "day": np.datetime64((1 << 31) - 1, "D"),
        "wait": np.timedelta64(7, "ns"),
        "time": np.timedelta64(7, "ns"),
        "list": [last, second],
        "map": [("a", last), ("b", second)],
        "struct": {"ns": first, "s": last},
    }
    microsecond = dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)
    within = block.row(1)
    assert within == {
        "ns": microsecond,
        "s": second,
        "day": dt.date(1970, 1, 2),
        "wait": dt.timedelta(microseconds=1),
        "time": dt.time(0, 0, 0, 1),
        "list": [None],
        "map": [("c", None)],
        "struct": {"ns": microsecond, "s": second},
    }
    assert isinstance(within["ns"], dt.datetime)
    assert block.row(2) == {
        **dict.fromkeys(["ns", "s", "day", "wait", "time"]),
        "list": [],
        "map": [],
        "struct": {"ns": None, "s": None},
    }


def test_a_cached_block_counts_for_about_what_it_costs() -> None:
    small, large = (Block(sst_rows({"text": pa.array(["x" * 100] * count)})) for count in (10, 1_000))
    assert 50 * small.size_bytes < large.size_bytes < 200 * small.size_bytes
    assert large.size_bytes > large.rows.nbytes


@pytest.mark.parametrize("chunks", [1, 3])
def test_a_row_in_a_long_run_is_found_by_its_key_and_no_other(chunks: int) -> None:
    count = 20_001
    rows = sst_rows({"n": pa.array(range(count))}, keys=numbered(count, step=2, start=2), deletes=[8_192])
    step = -(-count // chunks)
    run = Run(pa.concat_tables([rows.slice(at, step) for at in range(0, count, step)]), oldest=3, newest=9)
    assert (run.oldest, run.newest) == (3, 9)
    assert list(run.keys) == numbered(count, step=2, start=2)
    for row in [0, 1, 8_191, 8_192, 8_193, 16_383, 16_384, count - 1]:
        block, at = run.find(run.keys[row]) or pytest.fail(f"row {row} is lost")
        assert block.row(at) == (None if row == 8_192 else {"n": row})
    for absent in [0, 1, 3, 8_192 * 2 + 1, 2 * count + 2, 1 << 40]:
        assert run.find(absent.to_bytes(8, "big")) is None


def test_an_empty_run_finds_nothing() -> None:
    assert Run(sst_rows({"n": pa.array([], pa.int64())})).find(b"") is None
