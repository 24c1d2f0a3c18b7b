"""SSTs to test with, and a look at their layout that does not use the reader under test."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from hedgerow.sst import DELETE, PUT, EncodedSst, SstMeta, encode_sst, sst_schema

NAME = "file:///table/00/level-3.sst"
META = SstMeta(kind="level", table="0a" * 16, partition=3, epoch=7, write_id="f1" * 16)
FENCE = SstMeta(kind="fence", table="0a" * 16, partition=3, epoch=8, write_id="f2" * 16, wal_id=12, fences=4)


def numbered(count: int, *, step: int = 1, start: int = 0) -> list[bytes]:
    """Keys in order."""
    return [number.to_bytes(8, "big") for number in range(start, start + count * step, step)]


def sst_rows(
    columns: dict[str, pa.Array] | None = None,
    *,
    keys: Sequence[bytes] | None = None,
    deletes: Sequence[int] = (),
    count: int = 0,
) -> pa.Table:
    """Rows as an SST takes them. ``deletes`` are row numbers."""
    columns = columns or {}
    count = len(keys) if keys is not None else len(next(iter(columns.values()))) if columns else count
    keys = numbered(count) if keys is None else keys
    schema = sst_schema(pa.schema([(name, column.type) for name, column in columns.items()]))
    ops = [DELETE if row in set(deletes) else PUT for row in range(count)]
    arrays = [pa.array(keys, pa.binary()), pa.array(ops, pa.int8()), pa.array(range(count), pa.int64())]
    return pa.Table.from_arrays([*arrays, *columns.values()], schema=schema)


def small_sst(*, first: int = 0, meta: SstMeta = META) -> tuple[EncodedSst, pa.Table]:
    """A few rows in three blocks, with a null and a delete among them: a file small enough to damage it bit by bit."""
    rows = sst_rows(
        {
            "name": pa.array(["ada", None, "grace", "", "alan", "édith", None]),
            "born": pa.array([1815, 1912, None, first, -1, 1 << 40, None], pa.int64()),
        },
        keys=numbered(7, step=2, start=first),
        deletes=[6],
    )
    return encode_sst(rows, meta, block_rows=3), rows


def regions(sst: EncodedSst) -> dict[str, range]:
    """Every byte of the file, by the part it belongs to."""
    data, size = sst.data, len(sst.data)
    metadata = pq.read_metadata(pa.BufferReader(data))
    starts = [metadata.row_group(group).column(0).data_page_offset for group in range(metadata.num_row_groups)]
    ends = [*starts[1:], sst.filter_offset]
    footer = size - 8 - int.from_bytes(data[size - 8 : size - 4], "little")
    slot_len = 16 * (len(starts) + 3)
    sums = footer + data[footer:].index(b"hedgerow.checksums") + len(b"hedgerow.checksums")
    sums += 2 if slot_len < 128 else 3  # a type and a length in one or two bytes
    parts = {"magic": range(4)}
    parts |= {f"block {number}": range(*edges) for number, edges in enumerate(zip(starts, ends, strict=True))}
    parts |= {
        "filters": range(sst.filter_offset, sst.filter_offset + sst.filter_len),
        "page indexes": range(sst.filter_offset + sst.filter_len, footer),
        "footer before the checksums": range(footer, sums),
        "checksums": range(sums, sums + slot_len),
        "footer after the checksums": range(sums + slot_len, size - 8),
        "footer length": range(size - 8, size - 4),
        "trailing magic": range(size - 4, size),
    }
    return parts


def sealed(data: bytes, blocks: Sequence[range], filters: range, indexes: range) -> bytes:
    """The same file with checksums that match its bytes: damage that happened before the file was sealed."""
    sealed = bytearray(data)
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    at = footer + sealed[footer:].rindex(b"hedgerow.checksums") + len(b"hedgerow.checksums")
    slot_len = 16 * (len(blocks) + 3)
    at += 2 if slot_len < 128 else 3
    sealed[at : at + slot_len] = b"0" * slot_len
    parts = [*blocks, filters, indexes, range(footer, len(data))]
    sums = "".join(xxhash.xxh3_64_hexdigest(bytes(sealed[part.start : part.stop])) for part in parts)
    sealed[at : at + slot_len] = sums.encode()
    return bytes(sealed)


def resealed(sst: EncodedSst, data: bytes) -> bytes:
    """``sealed`` for a changed copy of an SST whose layout did not change."""
    parts = regions(sst)
    blocks = [part for name, part in parts.items() if name.startswith("block ")]
    return sealed(data, blocks, parts["filters"], parts["page indexes"])
