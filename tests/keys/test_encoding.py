"""Keys as bytes: what a user would lose if the order, the equality or the bytes themselves were wrong."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import itertools
import math
import struct
from collections.abc import Callable
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.errors import InvalidInput
from hedgerow.keys import KEY_BYTES_MAX, KeyEncoder

INT64_MAX = (1 << 63) - 1
EXACT = decimal.Context(prec=200)
BERLIN = ZoneInfo("Europe/Berlin")


# --- every type a key may have, its values, and their order ----------------------------------------------------


class KeyType(NamedTuple):
    """A type, numbers or other plain things whose order is the values' order, and how to make values of them."""

    dtype: pa.DataType
    ranks: st.SearchStrategy[Any]
    value: Callable[[Any], Any]
    """The Python value of a rank: what a user passes to ``get``."""
    column: Callable[[list[Any]], pa.Array]
    """The Arrow column of ranks: what a user writes in bulk. Made without the way through Python values."""


def of_numbers(dtype: pa.DataType, storage: pa.DataType) -> Callable[[list[int]], pa.Array]:
    return lambda ranks: pa.array(ranks, storage).view(dtype)


def integer(dtype: pa.DataType) -> KeyType:
    bits = dtype.bit_width
    signed = pa.types.is_signed_integer(dtype)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    ranks = st.one_of(st.integers(low, high), st.sampled_from([low, low + 1, 0, 1, high - 1, high]))
    return KeyType(dtype, ranks, int, lambda values: pa.array(values, dtype))


def floating(dtype: pa.DataType) -> KeyType:
    width = dtype.bit_width
    smallest = {16: 2.0**-24, 32: 2.0**-149, 64: 5e-324}[width]
    edges = [0.0, -0.0, math.inf, -math.inf, math.nan, -math.nan, smallest, -smallest, 1.0, -1.0]
    values = st.one_of(st.floats(width=width), st.sampled_from(edges))  # type: ignore[arg-type]
    return KeyType(dtype, values, float, lambda values: pa.array(values, dtype))


def decimals(dtype: pa.DataType) -> KeyType:
    limit = 10**dtype.precision - 1
    width = dtype.bit_width // 8

    def value(unscaled: int) -> decimal.Decimal:
        return EXACT.scaleb(decimal.Decimal(unscaled), -dtype.scale)

    def column(ranks: list[int]) -> pa.Array:
        data = b"".join(rank.to_bytes(width, "little", signed=True) for rank in ranks)
        return pa.Array.from_buffers(dtype, len(ranks), [None, pa.py_buffer(data)])

    edges = st.sampled_from([-limit, -1, 0, 1, limit])
    return KeyType(dtype, st.one_of(st.integers(-limit, limit), edges), value, column)


def temporal(dtype: pa.DataType) -> KeyType:
    """Ranks are numbers of the type's unit. Values beyond Python's own types are NumPy's."""
    types = pa.types
    storage = pa.int32() if dtype.bit_width == 32 else pa.int64()
    if types.is_date32(dtype):
        ranks = st.integers(-(1 << 31), (1 << 31) - 1)
        unit, size = "D", dt.timedelta(days=1)
    elif types.is_date64(dtype):
        ranks = st.integers(-(10**11), 10**11).map(lambda days: days * 86_400_000)
        unit, size = "ms", dt.timedelta(milliseconds=1)
    else:
        unit = dtype.unit
        size = {"s": dt.timedelta(seconds=1), "ms": dt.timedelta(milliseconds=1)}.get(unit)
        if types.is_time(dtype):
            # No type of Python's carries a time of day in nanoseconds.
            step = 1_000 if unit == "ns" else 1
            per_day = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000}[unit]
            ranks = st.integers(0, per_day - 1).map(lambda n: n * step)
        else:
            # The lowest number of all is NumPy's NaT.
            ranks = st.one_of(st.integers(-INT64_MAX, INT64_MAX), st.integers(-(1 << 50), 1 << 50))

    def value(rank: int) -> Any:
        if unit == "us":
            delta = dt.timedelta(microseconds=rank)
        elif unit == "ns":
            delta = None if rank % 1_000 else dt.timedelta(microseconds=rank // 1_000)
        else:
            delta = None if abs(rank) > dt.timedelta.max // size else rank * size
        if types.is_duration(dtype):
            return np.timedelta64(rank, unit) if delta is None else delta
        if types.is_time(dtype):
            assert delta is not None
            return (dt.datetime.min + delta).time()
        try:
            moment = None if delta is None else dt.datetime(1970, 1, 1) + delta
        except OverflowError:
            moment = None
        if moment is None:
            return np.datetime64(rank, unit)
        if types.is_date(dtype):
            return moment.date()
        return moment if dtype.tz is None else moment.replace(tzinfo=dt.UTC)

    return KeyType(dtype, ranks, value, of_numbers(dtype, storage))


def same(dtype: pa.DataType, ranks: st.SearchStrategy[Any]) -> KeyType:
    return KeyType(dtype, ranks, lambda rank: rank, lambda values: pa.array(values, dtype))


# Characters below, between and above the surrogates, and NUL, which the encoding must escape.
TEXT = st.one_of(
    st.text(max_size=12),
    st.text(st.sampled_from("\x00\x01a\x7f\x80\u07ff\ud7ff\ue000\uffff\U00010000\U0010ffff"), max_size=6),
)
BYTES = st.one_of(st.binary(max_size=12), st.lists(st.sampled_from([0, 1, 2, 254, 255]), max_size=6).map(bytes))
UNITS = ("s", "ms", "us", "ns")

FIXED_KEY_TYPES = [
    *map(
        integer,
        [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()],
    ),
    *map(floating, [pa.float16(), pa.float32(), pa.float64()]),
    *map(decimals, [pa.decimal32(9, 2), pa.decimal64(18, 18), pa.decimal128(38, 0), pa.decimal256(76, 76)]),
    *map(decimals, [pa.decimal32(1, -3), pa.decimal128(38, -5), pa.decimal256(76, -7), pa.decimal128(3, 8)]),
    *map(
        temporal,
        [pa.date32(), pa.date64(), *(pa.time32(u) for u in UNITS[:2]), *(pa.time64(u) for u in UNITS[2:])],
    ),
    *map(temporal, [pa.timestamp(u) for u in UNITS]),
    *map(temporal, [pa.timestamp(u, zone) for u, zone in zip(UNITS, ("UTC", "Europe/Berlin") * 2, strict=True)]),
    *map(temporal, [pa.duration(u) for u in UNITS]),
    same(pa.bool_(), st.booleans()),
    same(pa.string(), TEXT),
    same(pa.binary(), BYTES),
    same(pa.binary(0), st.just(b"")),
    same(pa.binary(3), st.binary(min_size=3, max_size=3)),
]
KEY_TYPES = st.one_of(
    st.sampled_from(FIXED_KEY_TYPES),
    st.sampled_from([kind for kind in FIXED_KEY_TYPES if kind.dtype in (pa.string(), pa.binary())]),
    st.builds(
        lambda precision, scale: decimals(pa.decimal128(precision, scale)),
        st.integers(1, 38),
        st.integers(-10, 38),
    ),
    st.integers(1, 20).map(lambda n: same(pa.binary(n), st.binary(min_size=n, max_size=n))),
)


def order(rank: Any) -> Any:
    """What to compare: NaN is equal to itself and after everything, -0.0 is 0.0."""
    if isinstance(rank, float):
        return (1, 0.0) if math.isnan(rank) else (0, rank + 0.0)
    return rank


class Keys(NamedTuple):
    types: list[KeyType]
    ranks: list[tuple[Any, ...]]

    @property
    def encoder(self) -> KeyEncoder:
        return KeyEncoder([(f"c{i}", kind.dtype) for i, kind in enumerate(self.types)])

    @property
    def values(self) -> list[Any]:
        tuples = [tuple(kind.value(rank) for kind, rank in zip(self.types, row, strict=True)) for row in self.ranks]
        return [row[0] for row in tuples] if len(self.types) == 1 else tuples

    @property
    def columns(self) -> list[pa.Array]:
        return [kind.column([row[i] for row in self.ranks]) for i, kind in enumerate(self.types)]

    def order(self, row: int, columns: int | None = None) -> tuple[Any, ...]:
        return tuple(order(rank) for rank in self.ranks[row][:columns])


@st.composite
def keys(draw: st.DrawFn, types: st.SearchStrategy[list[KeyType]] | None = None) -> Keys:
    """Keys of one to four columns. Few values per column, so that keys often share their first columns."""
    kinds = draw(st.lists(KEY_TYPES, min_size=1, max_size=4) if types is None else types)
    pools = [st.sampled_from(draw(st.lists(kind.ranks, min_size=1, max_size=4))) for kind in kinds]
    return Keys(kinds, draw(st.lists(st.tuples(*pools), min_size=1, max_size=8)))


class _Stranger:
    """A value of no type that a key could have; shown alike in every process."""

    def __repr__(self) -> str:
        return "a stranger"


one_type = pytest.mark.parametrize("kind", FIXED_KEY_TYPES, ids=lambda kind: str(kind.dtype))
few = settings(max_examples=40, deadline=None)
many = settings(max_examples=400, deadline=None)


# --- order ---------------------------------------------------------------------------------------------------


def assert_sorts_as_values(drawn: Keys) -> None:
    encoder = drawn.encoder
    encoded = [encoder.encode(value) for value in drawn.values]
    for a, b in itertools.combinations_with_replacement(range(len(encoded)), 2):
        one, two = drawn.order(a), drawn.order(b)
        assert (encoded[a] < encoded[b]) == (one < two), (drawn.values[a], drawn.values[b])
        assert (encoded[a] == encoded[b]) == (one == two), (drawn.values[a], drawn.values[b])


@one_type
def test_a_scan_returns_the_rows_of_every_type_in_the_order_of_their_keys(kind: KeyType) -> None:
    @few
    @given(keys(st.just([kind])))
    def check(drawn: Keys) -> None:
        assert_sorts_as_values(drawn)

    check()


@many
@given(keys())
def test_a_scan_returns_composite_keys_in_the_order_of_their_tuples(drawn: Keys) -> None:
    assert_sorts_as_values(drawn)


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16"])
def test_every_small_integer_keeps_its_place(name: str) -> None:
    dtype = pa.type_for_alias(name)
    info = np.iinfo(name)
    numbers = pa.array(np.arange(info.min, int(info.max) + 1).astype(name))
    encoded = KeyEncoder([("n", dtype)]).encode_columns([numbers]).to_pylist()
    assert encoded == sorted(set(encoded))


def test_every_half_precision_number_keeps_its_place() -> None:
    everything = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    encoder = KeyEncoder([("x", pa.float16())])
    encoded = encoder.encode_columns([pa.array(everything)]).to_pylist()
    assert encoded == [encoder.encode(float(x)) for x in everything]
    finite = ~np.isnan(everything)
    by_key = sorted(zip(encoded, everything.astype(float).tolist(), strict=True))
    assert [x for _, x in by_key[: finite.sum()]] == sorted(everything[finite].tolist())
    nans = {key for key, x in zip(encoded, everything.tolist(), strict=True) if math.isnan(x)}
    assert len(nans) == 1
    assert len(set(encoded)) == finite.sum() - 1 + 1  # one zero less, one NaN more


def test_any_nan_finds_the_row_that_any_other_nan_wrote() -> None:
    encoder = KeyEncoder([("x", pa.float64())])
    patterns = [0x7FF8_0000_0000_0000, 0xFFF8_0000_0000_0000, 0x7FF0_0000_0000_0001, 0xFFFF_FFFF_FFFF_FFFF]
    nans = [struct.unpack(">d", bits.to_bytes(8, "big"))[0] for bits in patterns]
    column = pa.array(np.array(patterns, np.uint64).view(np.float64))
    assert {encoder.encode(nan) for nan in nans} == set(encoder.encode_columns([column]).to_pylist())
    assert len({encoder.encode(nan) for nan in nans}) == 1
    assert encoder.encode(math.nan) > encoder.encode(math.inf)


@many
@given(st.lists(st.tuples(TEXT, TEXT), min_size=2, max_size=6))
def test_text_that_holds_nul_characters_does_not_run_into_the_next_column(
    pairs: list[tuple[str, str]],
) -> None:
    encoder = KeyEncoder([("a", pa.string()), ("b", pa.string())])
    assert sorted(pairs) == [encoder.decode(data) for data in sorted(encoder.encode(pair) for pair in pairs)]


# --- the same bytes one at a time and in bulk ------------------------------------------------------------------


def assert_columns_agree(drawn: Keys, before: int, after: int) -> None:
    encoder = drawn.encoder
    expected = [encoder.encode(value) for value in drawn.values]
    whole = encoder.encode_columns(drawn.columns)
    whole.validate(full=True)
    assert whole.type == pa.binary()
    assert whole.to_pylist() == expected
    # Slices: the same rows amid others, so that offsets into the buffers are not zero.
    count = len(expected)
    padded = Keys(drawn.types, drawn.ranks[:1] * before + drawn.ranks + drawn.ranks[:1] * after)
    sliced = encoder.encode_columns([column.slice(before, count) for column in padded.columns])
    sliced.validate(full=True)
    assert sliced.to_pylist() == expected
    # Chunks, combined as the caller does.
    cut = before % (count + 1)
    chunked = [pa.chunked_array([column[:cut], column[cut:]]).combine_chunks() for column in drawn.columns]
    assert encoder.encode_columns(chunked).to_pylist() == expected
    # No rows, from an empty array and from the end of another.
    empty = [column.slice(count) for column in drawn.columns]
    assert encoder.encode_columns(empty).to_pylist() == []
    nothing = encoder.encode_columns([pa.array([], kind.dtype) for kind in drawn.types])
    nothing.validate(full=True)
    assert (len(nothing), nothing.type) == (0, pa.binary())


@one_type
def test_rows_of_every_type_written_in_bulk_are_found_one_at_a_time(kind: KeyType) -> None:
    @few
    @given(keys(st.just([kind])), st.integers(0, 20), st.integers(0, 3))
    def check(drawn: Keys, before: int, after: int) -> None:
        assert_columns_agree(drawn, before, after)

    check()


@many
@given(keys(), st.integers(0, 20), st.integers(0, 3))
def test_rows_with_composite_keys_written_in_bulk_are_found_one_at_a_time(drawn: Keys, before: int, after: int) -> None:
    assert_columns_agree(drawn, before, after)


def test_keys_of_no_bytes_at_all_are_still_one_per_row() -> None:
    encoder = KeyEncoder([("a", pa.binary(0)), ("b", pa.binary(0))])
    encoded = encoder.encode_columns([pa.array([b"", b"", b""], pa.binary(0))] * 2)
    encoded.validate(full=True)
    assert encoded.to_pylist() == [encoder.encode((b"", b""))] * 3 == [b""] * 3


def test_the_lowest_moment_of_all_sorts_first_in_bulk() -> None:
    lowest = -(1 << 63)
    for dtype in (pa.timestamp("ns"), pa.timestamp("s", "UTC"), pa.duration("us")):
        column = pa.array([lowest, lowest + 1, 0], pa.int64()).view(dtype)
        encoded = KeyEncoder([("t", dtype)]).encode_columns([column]).to_pylist()
        assert encoded[0] == bytes(8)
        assert encoded == sorted(encoded)


def test_a_datetime_of_any_zone_finds_the_row_of_that_moment() -> None:
    encoder = KeyEncoder([("at", pa.timestamp("us", "Europe/Berlin"))])
    moment = dt.datetime(2024, 10, 27, 0, 30, 0, 1, dt.UTC)
    stored = encoder.encode_columns([pa.array([moment], pa.timestamp("us", "Europe/Berlin"))])[0].as_py()
    elsewhere = [moment, moment.astimezone(BERLIN), moment.astimezone(dt.timezone(dt.timedelta(hours=-9)))]
    assert {encoder.encode(same_moment) for same_moment in elsewhere} == {stored}
    # The hour that is there twice when summer time ends.
    assert encoder.encode(dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)) < encoder.encode(
        dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1)
    )


def test_a_float32_key_is_found_by_the_python_number_it_was_written_with() -> None:
    encoder = KeyEncoder([("x", pa.float32())])
    assert encoder.encode(0.1) == encoder.encode_columns([pa.array([0.1], pa.float32())])[0].as_py()
    assert encoder.encode(0.1) == encoder.encode(np.float32(0.1))


# --- and back -------------------------------------------------------------------------------------------------


def assert_comes_back(drawn: Keys) -> None:
    encoder = drawn.encoder
    for row, value in enumerate(drawn.values):
        data = encoder.encode(value)
        back = encoder.decode(data)
        assert encoder.encode(back) == data
        values = (value, back) if len(drawn.types) > 1 else ((value,), (back,))
        for rank, before, after in zip(drawn.ranks[row], *values, strict=True):
            if isinstance(rank, float) and math.isnan(rank):
                assert math.isnan(after)
            else:
                # Where pandas is installed, Arrow hands out its types for nanoseconds.
                if isinstance(before, np.datetime64 | np.timedelta64):
                    after = getattr(after, f"to_{type(before).__name__}", lambda after=after: after)()
                assert after == before
                assert isinstance(after, type(before))


@one_type
def test_a_key_of_every_type_can_be_read_back_from_its_bytes(kind: KeyType) -> None:
    @few
    @given(keys(st.just([kind])))
    def check(drawn: Keys) -> None:
        assert_comes_back(drawn)

    check()


@many
@given(keys())
def test_a_composite_key_can_be_read_back_from_its_bytes(drawn: Keys) -> None:
    assert_comes_back(drawn)


@many
@given(st.lists(KEY_TYPES, min_size=1, max_size=3), st.binary(max_size=40), st.data())
def test_bytes_that_are_no_key_are_refused_and_never_crash(
    kinds: list[KeyType], noise: bytes, data: st.DataObject
) -> None:
    encoder = Keys(kinds, []).encoder
    whole = encoder.encode(Keys(kinds, [tuple(data.draw(kind.ranks) for kind in kinds)]).values[0])
    for damaged in (noise, whole[: len(noise)], whole + noise, noise + whole):
        with contextlib.suppress(InvalidInput):
            encoder.decode(damaged)


CUT_OFF, LEFT_OVER, NO_KEY = r"end within the key column 'c\d'", r"1 bytes are left over", r"in the key column 'c\d'"


@pytest.mark.parametrize(
    ("types", "data", "report"),
    [
        ([pa.bool_()], b"", NO_KEY),
        ([pa.int64()], b"\x80" + bytes(6), CUT_OFF),
        ([pa.int64()], b"\x80" + bytes(8), LEFT_OVER),
        ([pa.date32()], b"\x80\x00", CUT_OFF),
        ([pa.timestamp("us")], b"\x80", CUT_OFF),
        ([pa.decimal128(5, 2)], b"\x80", CUT_OFF),
        ([pa.binary(3)], b"ab", CUT_OFF),
        ([pa.string()], b"\xff", NO_KEY),
        ([pa.string(), pa.int64()], b"no end", NO_KEY),
        ([pa.string(), pa.int64()], b"cut off\x00", CUT_OFF),
        ([pa.time32("s")], b"\xff" * 8, NO_KEY),
    ],
    ids=lambda value: str(value),
)
def test_a_damaged_key_is_reported_rather_than_read_as_another_key(
    types: list[pa.DataType], data: bytes, report: str
) -> None:
    encoder = KeyEncoder([(f"c{i}", dtype) for i, dtype in enumerate(types)])
    with pytest.raises(InvalidInput, match=report):
        encoder.decode(data)


# --- bounds ---------------------------------------------------------------------------------------------------


def assert_bounds_cut_between_prefixes(drawn: Keys) -> None:
    encoder = drawn.encoder
    encoded = [encoder.encode(value) for value in drawn.values]
    for a, b in itertools.product(range(len(encoded)), repeat=2):
        for columns in range(1, len(drawn.types) + 1):
            prefix = drawn.values[a][:columns] if len(drawn.types) > 1 else drawn.values[a]
            bound = encoder.encode_bound(prefix)
            belongs = drawn.order(b, columns) >= drawn.order(a, columns)
            assert (bound <= encoded[b]) == belongs, (prefix, drawn.values[b])


@many
@given(keys(st.lists(KEY_TYPES, min_size=1, max_size=3)))
def test_a_scan_from_a_prefix_begins_right_at_the_first_key_that_has_it(drawn: Keys) -> None:
    assert_bounds_cut_between_prefixes(drawn)


def test_a_bound_may_be_a_bare_value_a_list_or_a_tuple() -> None:
    encoder = KeyEncoder([("region", pa.string()), ("id", pa.int64())])
    assert encoder.encode_bound("de") == encoder.encode_bound(("de",)) == encoder.encode_bound(["de"]) == b"de\0\0"
    assert encoder.encode_bound(("de", 1)) == encoder.encode(("de", 1)) == encoder.encode(["de", 1])
    single = KeyEncoder([("id", pa.int64())])
    assert single.encode_bound(5) == single.encode_bound((5,)) == single.encode((5,)) == single.encode(5)


# --- what is stored never changes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        (pa.int8(), -1, "7fffffffffffffff"),
        (pa.int16(), 1, "8000000000000001"),
        (pa.int64(), -(1 << 63), "0000000000000000"),
        (pa.uint8(), 255, "00000000000000ff"),
        (pa.uint64(), (1 << 64) - 1, "ffffffffffffffff"),
        (pa.bool_(), False, "00"),
        (pa.bool_(), True, "01"),
        (pa.float64(), 1.0, "bff0000000000000"),
        (pa.float64(), -1.0, "400fffffffffffff"),
        (pa.float64(), -0.0, "8000000000000000"),
        (pa.float64(), math.nan, "fff8000000000000"),
        (pa.float64(), math.inf, "fff0000000000000"),
        (pa.float64(), -math.inf, "000fffffffffffff"),
        (pa.float32(), 0.1, "bfb99999a0000000"),
        (pa.float16(), 65504.0, "c0effc0000000000"),
        (pa.decimal32(5, 2), decimal.Decimal("-1.23"), "7fffffffffffffffffffffffffffff85"),
        (pa.decimal128(5, 2), decimal.Decimal("1.2"), "80000000000000000000000000000078"),
        (pa.decimal256(50, 0), 7, "80" + "00" * 30 + "07"),
        (pa.date32(), dt.date(1969, 12, 31), "7fffffff"),
        (pa.date64(), dt.date(1970, 1, 2), "8000000005265c00"),
        (pa.time32("s"), dt.time(0, 0, 9), "8000000000000009"),
        (pa.time64("ns"), dt.time(0, 0, 0, 1), "80000000000003e8"),
        (pa.timestamp("s"), dt.datetime(1970, 1, 1, 0, 1), "800000000000003c"),
        (pa.timestamp("ns", "UTC"), dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC), "800000003b9aca00"),
        (pa.duration("ms"), dt.timedelta(milliseconds=-2), "7ffffffffffffffe"),
        (pa.string(), "aé\0", "61c3a900"),
        (pa.binary(), b"\0\xff", "00ff"),
        (pa.binary(2), b"\0\xff", "00ff"),
    ],
    ids=lambda value: str(value),
)
def test_a_newer_hedgerow_finds_the_keys_an_older_one_wrote(dtype: pa.DataType, value: Any, expected: str) -> None:
    assert KeyEncoder([("k", dtype)]).encode(value).hex() == expected


def test_a_newer_hedgerow_finds_the_composite_keys_an_older_one_wrote() -> None:
    encoder = KeyEncoder([("a", pa.string()), ("b", pa.binary()), ("c", pa.int32()), ("d", pa.string())])
    assert encoder.encode(("x\0y", b"", -1, "\0")).hex() == "78000179" + "0000" + "0000" + "7fffffffffffffff" + "00"


@pytest.mark.parametrize("wide", [pa.int16(), pa.int32(), pa.int64()], ids=str)
@given(number=st.integers(-128, 127))
def test_widening_an_integer_column_keeps_every_row_findable(wide: pa.DataType, number: int) -> None:
    narrow = KeyEncoder([("a", pa.int8()), ("b", pa.string())]).encode((number, "b"))
    assert KeyEncoder([("a", wide), ("b", pa.string())]).encode((number, "b")) == narrow


# --- values of other libraries ----------------------------------------------------------------------------------


class LikePandas(dt.datetime):
    """What a pandas Timestamp looks like from outside: a datetime that knows nanoseconds more."""

    def to_datetime64(self) -> np.datetime64:
        aware = self if self.tzinfo else self.replace(tzinfo=dt.UTC)
        micros = (aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        return np.datetime64(micros * 1_000 + 7, "ns")


class DeltaLikePandas(dt.timedelta):
    def to_timedelta64(self) -> np.timedelta64:
        return np.timedelta64(self // dt.timedelta(microseconds=1) * 1_000 + 7, "ns")


def test_nanoseconds_that_pandas_and_numpy_carry_are_not_lost_from_keys() -> None:
    naive, aware = (KeyEncoder([("t", pa.timestamp("ns", zone))]) for zone in (None, "Europe/Berlin"))
    assert naive.encode(LikePandas(1970, 1, 1)) == naive.encode(np.datetime64(7, "ns"))
    assert aware.encode(LikePandas(1970, 1, 1, 1, tzinfo=BERLIN)) == aware.encode(np.datetime64(7, "ns"))
    assert int(naive.encode(np.datetime64(7, "ns")).hex(), 16) == (1 << 63) + 7
    duration = KeyEncoder([("d", pa.duration("ns"))])
    assert duration.encode(DeltaLikePandas(0)) == duration.encode(np.timedelta64(7, "ns"))
    assert int(duration.encode(np.timedelta64(7, "ns")).hex(), 16) == (1 << 63) + 7


def test_numpys_numbers_find_the_rows_that_pythons_wrote() -> None:
    for dtype, ours, theirs in [
        (pa.int64(), 5, np.int8(5)),
        (pa.uint64(), (1 << 64) - 1, np.uint64((1 << 64) - 1)),
        (pa.float64(), 0.5, np.float16(0.5)),
        (pa.float64(), 3.0, 3),
        (pa.float32(), 0.25, decimal.Decimal("0.25")),
        (pa.date32(), dt.date(2024, 2, 29), np.datetime64("2024-02-29")),
        (pa.date64(), dt.date(2024, 2, 1), np.datetime64("2024-02")),
        (pa.date32(), dt.date(2024, 2, 29), np.datetime64("2024-02-29T00:00:00.000")),
        (pa.timestamp("us"), dt.datetime(2024, 1, 1), np.datetime64("2024")),
        (pa.timestamp("s", "UTC"), dt.datetime(2024, 1, 1, 5, tzinfo=dt.UTC), np.datetime64("2024-01-01T05")),
        (pa.duration("ms"), dt.timedelta(weeks=2), np.timedelta64(2, "W")),
        (pa.binary(), b"ab", bytearray(b"ab")),
        (pa.binary(2), b"ab", memoryview(b"a.b.")[::2]),
    ]:
        encoder = KeyEncoder([("k", dtype)])
        assert encoder.encode(ours) == encoder.encode(theirs), dtype


# --- what is refused, and that the message says where ----------------------------------------------------------


class NoOffset(dt.tzinfo):
    def utcoffset(self, when: dt.datetime | None) -> None:
        return None


NAIVE, AWARE = pa.timestamp("us"), pa.timestamp("us", "UTC")
REFUSED: list[tuple[pa.DataType, Any, str]] = [
    *((kind.dtype, None, "never null") for kind in FIXED_KEY_TYPES),
    *((kind.dtype, _Stranger(), "is not") for kind in FIXED_KEY_TYPES),
    (pa.int64(), True, "bool"),
    (pa.int64(), 1.0, "float"),
    (pa.int64(), "1", "str"),
    (pa.int64(), np.array([1, 2]), "ndarray"),
    (pa.int64(), 1 << 63, "out of its range"),
    (pa.int64(), -(1 << 63) - 1, "out of its range"),
    (pa.int8(), 128, "out of its range"),
    (pa.uint16(), -1, "out of its range"),
    (pa.uint16(), 65_536, "out of its range"),
    (pa.int64(), 10**5_000, "out of its range"),
    (pa.bool_(), 1, "int"),
    (pa.bool_(), "true", "str"),
    (pa.float64(), True, "bool"),
    (pa.float64(), "1.0", "str"),
    (pa.float64(), 1j, "complex"),
    (pa.float64(), 10**400, "out of its range"),
    (pa.float64(), np.array([1.0, 2.0]), "ndarray"),
    (pa.float64(), decimal.Decimal("sNaN"), "Decimal"),
    (pa.float32(), 3.5e38, "out of its range"),
    (pa.float16(), 65_520.0, "out of its range"),
    (pa.decimal128(5, 2), True, "bool"),
    (pa.decimal128(5, 2), 1.5, "float"),
    (pa.decimal128(5, 2), "1.5", "str"),
    (pa.decimal128(5, 2), decimal.Decimal("NaN"), "not a finite number"),
    (pa.decimal128(5, 2), decimal.Decimal("-Infinity"), "not a finite number"),
    (pa.decimal128(5, 2), decimal.Decimal("1000.00"), "out of its range"),
    (pa.decimal128(5, 2), 1_000, "out of its range"),
    (pa.decimal128(5, 2), 10**5_000, "out of its range"),
    (pa.decimal128(5, 2), decimal.Decimal("1E+999999999999"), "out of its range"),
    (pa.decimal128(5, 2), decimal.Decimal("0.001"), "more than 2 digits"),
    (pa.decimal128(5, 2), decimal.Decimal("1.001"), "more than 2 digits"),
    (pa.decimal128(5, 2), decimal.Decimal("1E-9999999"), "more than 2 digits"),
    (pa.decimal128(5, 2), decimal.Decimal("1." + "0" * 300 + "1"), "more than 2 digits"),
    (pa.decimal128(5, -2), decimal.Decimal("150"), "more than -2 digits"),
    (pa.decimal256(76, 0), 10**76, "out of its range"),
    (pa.date32(), dt.datetime(2024, 1, 1), "datetime"),
    (pa.date32(), "2024-01-01", "str"),
    (pa.date32(), np.datetime64("2024-01-01T12:00"), "does not fit"),
    (pa.date64(), np.datetime64("2024-01-01T12:00"), "does not fit"),
    (pa.date32(), np.datetime64("NaT"), "never null"),
    (pa.date32(), np.datetime64(1 << 40, "D"), "out of its range"),
    (pa.date32(), LikePandas(2024, 1, 1, tzinfo=dt.UTC), "has a time zone"),
    (pa.time32("s"), dt.time(0, 0, 0, 500_000), "finer"),
    (pa.time32("ms"), dt.time(0, 0, 0, 1), "finer"),
    (pa.time64("us"), dt.time(1, tzinfo=dt.UTC), "is not"),
    (pa.time64("us"), dt.datetime(2024, 1, 1), "is not"),
    (NAIVE, dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "has a time zone"),
    (NAIVE, LikePandas(2024, 1, 1, tzinfo=dt.UTC), "has a time zone"),
    (AWARE, dt.datetime(2024, 1, 1), "needs a time zone"),
    (AWARE, LikePandas(2024, 1, 1), "needs a time zone"),
    (AWARE, dt.datetime(2024, 1, 1, tzinfo=NoOffset()), "needs a time zone"),
    (NAIVE, dt.date(2024, 1, 1), "date"),
    (NAIVE, 0, "int"),
    (NAIVE, LikePandas(2024, 1, 1), "does not fit"),
    (NAIVE, np.datetime64("NaT"), "never null"),
    (NAIVE, np.datetime64(1, "ns"), "does not fit"),
    (NAIVE, np.timedelta64(1, "us"), "is not"),
    (pa.timestamp("s"), dt.datetime(2024, 1, 1, 0, 0, 0, 1), "finer"),
    (pa.timestamp("ms", "UTC"), dt.datetime(2024, 1, 1, 0, 0, 0, 1, dt.UTC), "finer"),
    (pa.timestamp("ns"), dt.datetime(2300, 1, 1), "out of its range"),
    (pa.timestamp("ns"), np.datetime64("2300", "s"), "does not fit"),
    (pa.duration("s"), dt.timedelta(milliseconds=1), "finer"),
    (pa.duration("ns"), dt.timedelta.max, "out of its range"),
    (pa.duration("us"), np.timedelta64(1, "ns"), "does not fit"),
    (pa.duration("us"), DeltaLikePandas(1), "does not fit"),
    (pa.duration("us"), np.timedelta64(1, "M"), "no fixed length"),
    (pa.duration("us"), np.timedelta64(1), "no fixed length"),
    (pa.duration("us"), np.timedelta64("NaT", "s"), "never null"),
    (pa.duration("us"), 5, "int"),
    (pa.string(), b"bytes", "bytes"),
    (pa.string(), "\ud800", "not valid Unicode"),
    (pa.string(), "x\udfff", "not valid Unicode"),
    (pa.binary(), "text", "str"),
    (pa.binary(3), "abc", "str"),
    (pa.binary(3), b"ab", "has 2 bytes"),
    (pa.binary(3), b"abcd", "has 4 bytes"),
]


@pytest.mark.parametrize(
    ("dtype", "value", "why"),
    REFUSED,
    ids=lambda v: str(v)[:30] if not isinstance(v, int) else str(v.bit_length()),
)
def test_a_wrong_key_is_refused_and_the_message_names_its_column(dtype: pa.DataType, value: Any, why: str) -> None:
    with pytest.raises(InvalidInput) as single:
        KeyEncoder([("shoe size", dtype)]).encode(value)
    assert "'shoe size'" in str(single.value)
    assert why in str(single.value)
    composite = KeyEncoder([("id", pa.int64()), ("shoe size", dtype), ("z", pa.int8())])
    for encode in (composite.encode, composite.encode_bound):
        with pytest.raises(InvalidInput, match=r"'shoe size'"):
            encode((1, value, 2))


def test_a_long_wrong_value_does_not_flood_the_log() -> None:
    with pytest.raises(InvalidInput) as told:
        KeyEncoder([("id", pa.int64())]).encode("x" * 10_000)
    assert len(str(told.value)) < 200


@pytest.mark.parametrize("position", [0, 1])
def test_a_null_in_a_key_column_is_refused_and_the_message_names_column_and_row(position: int) -> None:
    encoder = KeyEncoder([("a", pa.int64()), ("b", pa.string())])
    columns = [pa.array([1, 2, 3]), pa.array(["x", "y", "z"])]
    columns[position] = pa.array([*columns[position].to_pylist()[:2], None], columns[position].type)
    with pytest.raises(InvalidInput, match=rf"'{'ab'[position]}' is null in row 2"):
        encoder.encode_columns(columns)


def test_columns_that_are_not_the_keys_are_refused_by_name() -> None:
    encoder = KeyEncoder([("id", pa.int64()), ("at", pa.timestamp("ns"))])
    ids, times = pa.array([1, 2]), pa.array([1, 2], pa.timestamp("ns"))
    with pytest.raises(InvalidInput, match=r"'id' is int64, not string"):
        encoder.encode_columns([pa.array(["1", "2"]), times])
    with pytest.raises(InvalidInput, match=r"'at' is timestamp\[ns\], not timestamp\[us\]"):
        encoder.encode_columns([ids, times.view(pa.timestamp("us"))])
    with pytest.raises(InvalidInput, match=r"'at' has 1 rows, not 2"):
        encoder.encode_columns([ids, times[:1]])
    with pytest.raises(InvalidInput, match=r"2 columns \(id, at\), but 1 were given"):
        encoder.encode_columns([ids])


def test_a_key_with_too_few_or_too_many_values_is_refused_and_the_message_names_its_columns() -> None:
    encoder = KeyEncoder([("region", pa.string()), ("id", pa.int64())])
    for key in [("de",), ("de", 1, 2), ()]:
        with pytest.raises(InvalidInput, match=rf"region, id.* {len(key)} values"):
            encoder.encode(key)
    for bare in ["de", 5, None, {"region": "de"}]:
        with pytest.raises(InvalidInput, match=r"region, id"):
            encoder.encode(bare)
    for bound in [(), ("de", 1, 2)]:
        with pytest.raises(InvalidInput, match=r"region, id"):
            encoder.encode_bound(bound)
    single = KeyEncoder([("id", pa.int64())])
    for key in [(), (1, 2), [1]]:
        with pytest.raises(InvalidInput, match=r"'id'"):
            single.encode(key)


def test_the_longest_key_fits_and_one_byte_more_is_refused_by_name() -> None:
    single = KeyEncoder([("title", pa.string())])
    pair = KeyEncoder([("title", pa.string()), ("id", pa.int64())])
    longest = "é" * (KEY_BYTES_MAX // 2)
    assert len(single.encode(longest)) == KEY_BYTES_MAX
    assert len(single.encode_columns([pa.array([longest])])[0].as_py()) == KEY_BYTES_MAX
    room = KEY_BYTES_MAX - 8 - 2  # the number, and the end of the text
    fitting, too_long = ["\0" * (room // 2), "x" * room], ["\0" * (room // 2) + "x", "x" * (room + 1)]
    for text in fitting:
        assert len(pair.encode((text, 1))) == KEY_BYTES_MAX
        pair.encode_columns([pa.array([text]), pa.array([1])])
    for text in too_long:
        for attempt in (
            lambda text=text: single.encode(text + longest),
            lambda text=text: single.encode_columns([pa.array(["a", text + longest])]),
            lambda text=text: pair.encode((text, 1)),
            lambda text=text: pair.encode_columns([pa.array(["a", text]), pa.array([1, 2])]),
        ):
            with pytest.raises(InvalidInput, match=r"title.*longer than the limit of 2048"):
                attempt()


@pytest.mark.parametrize(
    "dtype",
    [
        pa.null(),
        pa.list_(pa.int8()),
        pa.struct([("a", pa.int8())]),
        pa.map_(pa.int8(), pa.int8()),
        pa.dictionary(pa.int8(), pa.string()),
        pa.large_string(),
        pa.string_view(),
        pa.month_day_nano_interval(),
        pa.uuid(),
    ],
    ids=str,
)
def test_a_table_whose_key_has_no_order_cannot_be_made(dtype: pa.DataType) -> None:
    with pytest.raises(InvalidInput, match=r"'tags' of type .* cannot be part of a key"):
        KeyEncoder([("id", pa.int64()), ("tags", dtype)])


def test_a_key_has_at_least_one_column() -> None:
    with pytest.raises(InvalidInput, match="at least one column"):
        KeyEncoder([])


def test_the_processs_decimal_context_does_not_round_keys() -> None:
    encoder = KeyEncoder([("amount", pa.decimal256(76, 10))])
    number = decimal.Decimal("1234567890" * 6 + ".0123456789")
    with decimal.localcontext(decimal.Context(prec=3, Emax=5, Emin=-5)):
        assert encoder.decode(encoder.encode(number)) == number
