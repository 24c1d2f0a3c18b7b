"""Values to JSON and back: nothing is lost, for any value that a column can hold."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from hedgerow.cli.columns import column_of, type_of
from hedgerow.cli.report import expiry_text
from hedgerow.cli.rows import RowParser, json_lines, lines_of
from hedgerow.cli.values import text_of, value_of_text

moments = some.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
COLUMNS: list[tuple[pa.DataType, some.SearchStrategy[Any]]] = [
    (pa.int64(), some.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), some.integers(0, 2**64 - 1)),
    (pa.int8(), some.integers(-128, 127)),
    (pa.float64(), some.floats(allow_nan=False, allow_infinity=False)),
    (pa.float32(), some.floats(width=32, allow_nan=False, allow_infinity=False)),
    (pa.bool_(), some.booleans()),
    (pa.string(), some.text(some.characters(exclude_categories=["Cs"]))),
    (pa.binary(), some.binary()),
    (pa.binary(4), some.binary(min_size=4, max_size=4)),
    (pa.date32(), some.dates()),
    (pa.timestamp("us"), moments),
    (pa.timestamp("ms"), moments.map(lambda one: one.replace(microsecond=one.microsecond // 1000 * 1000))),
    (pa.timestamp("s", "UTC"), moments.map(lambda one: one.replace(microsecond=0, tzinfo=dt.UTC))),
    (pa.timestamp("ns", "Asia/Tokyo"), moments.map(lambda one: one.replace(tzinfo=dt.UTC))),
    (pa.time64("us"), some.times()),
    (pa.duration("us"), some.timedeltas(dt.timedelta(days=-9_999), dt.timedelta(days=9_999))),
    (
        pa.decimal128(20, 4),
        some.integers(-(10**20) + 1, 10**20 - 1).map(lambda one: decimal.Decimal(one).scaleb(-4)),
    ),
]
COLUMNS += [(pa.list_(dtype), some.lists(some.none() | values, max_size=3)) for dtype, values in COLUMNS[6:10]]


@pytest.mark.parametrize(("dtype", "values"), COLUMNS, ids=[str(dtype) for dtype, _ in COLUMNS])
def test_a_row_that_is_printed_can_be_read_again(dtype: pa.DataType, values: some.SearchStrategy[Any]) -> None:
    schema = pa.schema([("value", dtype)])
    parser = RowParser(schema, ())

    @settings(max_examples=40, deadline=None, database=None)
    @given(some.lists(some.none() | values, min_size=1, max_size=6))
    def check(column: list[Any]) -> None:
        batch = pa.record_batch([pa.array(column, dtype)], schema=schema)
        lines = list(enumerate(json_lines(batch).splitlines(), 1))
        assert parser.table(lines).to_batches()[0].equals(batch)

    check()


def test_what_json_cannot_say_is_null() -> None:
    batch = pa.record_batch({"value": [float("nan"), float("inf"), 1.5]})
    assert json_lines(batch) == b'{"value":null}\n{"value":null}\n{"value":1.5}\n'


@settings(max_examples=100, deadline=None, database=None)
@given(
    some.lists(some.sampled_from([b"{}", b"  ", b"", b'{"a":1}']), max_size=20),
    some.integers(1, 9),
    some.booleans(),
)
def test_lines_keep_their_numbers_however_they_arrive(lines: list[bytes], step: int, ended: bool) -> None:
    data = b"\n".join(lines) + (b"\n" if ended else b"")
    chunks = [data[at : at + step] for at in range(0, len(data), step)] + [b""]
    expected = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    arriving = iter(chunks)
    assert [line for group in lines_of(lambda _: next(arriving)) for line in group] == expected


@pytest.mark.parametrize(
    "dtype",
    [
        pa.int32(), pa.float64(), pa.float32(), pa.float16(), pa.string(), pa.binary(), pa.binary(7), pa.bool_(),
        pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("ns"), pa.timestamp("s"), pa.timestamp("us", "+02:00"),
        pa.timestamp("ns", "Europe/Berlin"), pa.duration("ms"), pa.decimal128(12, 3), pa.decimal256(60, 3),
        pa.list_(pa.int64()), pa.list_(pa.list_(pa.timestamp("us", "UTC"))),
    ],
    ids=str,
)  # fmt: skip
def test_a_type_that_inspect_shows_can_be_written_back(dtype: pa.DataType) -> None:
    assert type_of(str(dtype), "column") == dtype


def test_a_column_that_must_not_be_null() -> None:
    assert column_of("a:b:int64 NOT NULL".replace("b:", "")) == pa.field("a", pa.int64(), nullable=False)
    assert column_of("a:string") == pa.field("a", pa.string())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\tb\x1b[31m", "a\\tb\\x1b[31m"),
        (True, "true"),
        (None, "null"),
        (decimal.Decimal("1.50"), "1.50"),
        (b"\xff", "ff"),
        (dt.timedelta(seconds=1.5), "PT1.5S"),
        ({"a": [b"\xff", None]}, '{"a":["ff",null]}'),
        (dt.datetime(2025, 3, 31, 12), "2025-03-31T12:00:00"),
    ],
)
def test_values_for_a_persons_eyes(value: Any, text: str) -> None:
    assert text_of(value) == text


def test_text_of_a_wrong_kind_stays_text_for_the_error() -> None:
    assert value_of_text("x", pa.int64()) == "x"
    assert value_of_text("{", pa.list_(pa.int64())) == "{"


def test_when_a_snapshot_expires() -> None:
    now = dt.datetime(2025, 3, 31, tzinfo=dt.UTC)
    at_ms = int(now.timestamp() * 1000)
    assert expiry_text(0, now) == "never expires"
    assert expiry_text(at_ms + 1000, now) == "2025-03-31 00:00:01Z"
    assert expiry_text(at_ms - 1000, now).endswith("(expired)")
    assert expiry_text(2**63 - 1, now) == "in the far future"
