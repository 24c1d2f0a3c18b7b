"""An SST is a Parquet file: the tools a user has read it without Hedgerow, and see the same rows in the same order."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sst_files import META, numbered, regions, sst_rows

from hedgerow.sst import EncodedSst, encode_sst

duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed (pip install 'hedgerow[dev]')")
polars = pytest.importorskip("polars", reason="Polars is not installed (pip install 'hedgerow[dev]')")

COUNT, BLOCK_ROWS = 500, 64


def every_seventh_null(values: list[Any]) -> list[Any]:
    return [None if at % 7 == 0 else value for at, value in enumerate(values)]


def make_rows() -> pa.Table:
    numbers = range(COUNT)
    moment = dt.datetime(2024, 2, 29, 12, 0, 0, 123_456)
    values: dict[str, tuple[list[Any], pa.DataType]] = {
        "flag": ([n % 3 == 0 for n in numbers], pa.bool_()),
        "small": ([n % 100 - 50 for n in numbers], pa.int16()),
        "number": ([n * (1 << 50) for n in numbers], pa.int64()),
        "real": ([n / 7 for n in numbers], pa.float64()),
        "text": ([f"é{n % 10}\u0000" for n in numbers], pa.string()),
        "raw": ([bytes([n % 256]) * (n % 4) for n in numbers], pa.binary()),
        "amount": ([decimal.Decimal(n) / 100 for n in numbers], pa.decimal128(20, 2)),
        "day": ([dt.date(2024, 1, 1) + dt.timedelta(n) for n in numbers], pa.date32()),
        "local": ([moment + dt.timedelta(microseconds=n) for n in numbers], pa.timestamp("us")),
        "instant": ([moment.replace(tzinfo=dt.UTC) + dt.timedelta(n) for n in numbers], pa.timestamp("us", "UTC")),
        "tags": ([[str(n), None] * (n % 3) for n in numbers], pa.list_(pa.string())),
        "point": ([{"x": n, "y": None} for n in numbers], pa.struct([("x", pa.int32()), ("y", pa.string())])),
    }
    columns = {name: pa.array(every_seventh_null(column), dtype) for name, (column, dtype) in values.items()}
    return sst_rows(columns, keys=numbered(COUNT, step=3), deletes=range(0, COUNT, 7))


ROWS = make_rows()
EXPECTED = ROWS.to_pylist()
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
# How a moment comes back depends on a reader's time zone: its microseconds do not.
EXPECTED_MICROS = [
    row | {"instant": row["instant"] and (row["instant"] - EPOCH) // dt.timedelta(microseconds=1)} for row in EXPECTED
]


@pytest.fixture(scope="module")
def sst() -> EncodedSst:
    return encode_sst(ROWS, META, block_rows=BLOCK_ROWS)


@pytest.fixture(scope="module")
def path(sst: EncodedSst, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("sst") / "level.parquet"
    path.write_bytes(sst.data)
    return str(path)


# Two keys that are there, and three that are not: before, between and after.
LOOKUPS = {0: 1, 3 * 333: 1, 1: 0, 3 * 333 + 1: 0, 1 << 40: 0}


# --- DuckDB ----------------------------------------------------------------------------------------------------


def test_duckdb_reads_the_same_rows_in_key_order(path: str) -> None:
    with duckdb.connect() as connection:
        relation = connection.sql(f"SELECT * REPLACE (epoch_us(instant) AS instant) FROM read_parquet('{path}')")
        names = relation.columns
        rows = [dict(zip(names, row, strict=True)) for row in relation.fetchall()]
    assert names == ROWS.column_names
    assert rows == EXPECTED_MICROS


def test_duckdb_finds_rows_by_key(path: str) -> None:
    with duckdb.connect() as connection:
        for number, count in LOOKUPS.items():
            key = number.to_bytes(8, "big")
            query = f"SELECT count(*) FROM read_parquet('{path}') WHERE _key = ?"
            assert connection.execute(query, [key]).fetchone() == (count,)


def test_duckdb_uses_the_filters_and_they_deny_no_key(path: str) -> None:
    blocks = -(-COUNT // BLOCK_ROWS)
    with duckdb.connect() as connection:
        for row in range(0, COUNT, 50):
            key = (3 * row).to_bytes(8, "big")
            literal = "".join(f"\\x{byte:02x}" for byte in key)
            probe = f"FROM parquet_bloom_probe('{path}', '_key', '{literal}'::BLOB)"
            excluded = connection.execute(f"SELECT row_group_id, bloom_filter_excludes {probe} ORDER BY 1").fetchall()
            assert len(excluded) == blocks
            assert excluded[row // BLOCK_ROWS] == (row // BLOCK_ROWS, False)
            assert sum(excludes for _, excludes in excluded) >= blocks - 3


# --- Polars ----------------------------------------------------------------------------------------------------


def test_polars_reads_the_same_rows_in_key_order(path: str) -> None:
    frame = polars.read_parquet(path)
    assert frame.columns == ROWS.column_names
    assert frame.to_dicts() == EXPECTED


def test_polars_finds_rows_by_key(path: str) -> None:
    for number, count in LOOKUPS.items():
        lazily = polars.scan_parquet(path).filter(polars.col("_key") == number.to_bytes(8, "big"))
        assert lazily.collect().height == count


# --- Spark -----------------------------------------------------------------------------------------------------


@pytest.mark.needs("java")
def test_spark_reads_the_same_rows_in_key_order(spark: Any, path: str) -> None:
    frame = spark.read.parquet(path)
    assert frame.columns == ROWS.column_names
    columns = [name if name != "instant" else "unix_micros(instant) AS instant" for name in frame.columns]
    assert [row.asDict(recursive=True) for row in frame.selectExpr(*columns).collect()] == EXPECTED_MICROS


@pytest.mark.needs("java")
def test_spark_finds_rows_by_key(spark: Any, path: str) -> None:
    frame = spark.read.parquet(path)
    for number, count in LOOKUPS.items():
        assert frame.where(f"_key = X'{number.to_bytes(8, 'big').hex()}'").count() == count
    assert frame.where("_op = 0 AND number >= 0").count() == sum(row["number"] is not None for row in EXPECTED)


# --- Parquet's own metadata -----------------------------------------------------------------------------------


def test_pyarrow_reads_the_same_rows_and_verifies_every_page(path: str) -> None:
    assert pq.read_table(path, page_checksum_verification=True).equals(ROWS)


def test_every_page_carries_a_checksum(sst: EncodedSst) -> None:
    """A reader without Hedgerow that verifies pages does not take damaged rows for good ones."""
    parts = regions(sst)
    for group in range(-(-COUNT // BLOCK_ROWS)):
        block = parts[f"block {group}"]
        damaged = bytearray(sst.data)
        damaged[block.stop - 3] ^= 0x10
        file = pq.ParquetFile(pa.BufferReader(bytes(damaged)), page_checksum_verification=True)
        with pytest.raises(OSError, match=r"(?i)crc"):
            file.read_row_group(group)


def test_other_readers_learn_the_order_the_filters_and_the_page_indexes(sst: EncodedSst) -> None:
    metadata = pq.read_metadata(pa.BufferReader(sst.data))
    assert metadata.num_rows == COUNT
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        assert group.num_rows == min(BLOCK_ROWS, COUNT - number * BLOCK_ROWS)
        (sorting,) = group.sorting_columns
        assert (sorting.column_index, sorting.descending) == (0, False)
        for at in range(group.num_columns):
            assert group.column(at).has_offset_index
        key = group.column(0)
        assert key.path_in_schema == "_key"
        assert key.has_column_index
        assert key.bloom_filter_offset
        assert key.bloom_filter_length
        assert key.statistics.min == ROWS["_key"][number * BLOCK_ROWS].as_py()
        assert key.statistics.max == ROWS["_key"][number * BLOCK_ROWS + group.num_rows - 1].as_py()


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.needs("java")
def test_fences_and_single_rows_are_read_by_all(spark: Any, count: int, tmp_path: Path) -> None:
    rows = ROWS.slice(1, count)
    path = tmp_path / "small.parquet"
    path.write_bytes(encode_sst(rows, META).data)
    with duckdb.connect() as connection:
        assert connection.sql(f"SELECT _key FROM read_parquet('{path}')").fetchall() == [
            (row["_key"],) for row in rows.to_pylist()
        ]
    assert polars.read_parquet(path).height == count
    assert spark.read.parquet(str(path)).count() == count
    assert pq.read_table(path).equals(rows)
