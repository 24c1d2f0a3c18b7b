"""Writing an SST: sorted rows in, the bytes of a self-checking Parquet file out."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from hedgerow.sst.format import (
    CHECKSUM_CHARACTERS,
    CHECKSUMS_KEY,
    MAGIC,
    META_KEY,
    EncodedSst,
    SstMeta,
    checksum_slot,
)

__all__ = ["BLOCK_BYTES", "BLOCK_ROWS_MAX", "encode_sst"]

BLOCK_ROWS_MAX = 8_192
BLOCK_BYTES = 1 << 20
_FALSE_POSITIVES = 0.01


def encode_sst(rows: pa.Table, meta: SstMeta, *, block_rows: int | None = None) -> EncodedSst:
    """Encode rows that are sorted by ``_key``, each key once, with the columns of ``sst_schema``.

    Sorting is the caller's: it knows which of two rows with one key is the newer.
    """
    count = rows.num_rows
    meta = msgspec.structs.replace(meta, rows=count)
    if block_rows is None:
        average = max(1, rows.nbytes // max(count, 1))
        block_rows = max(1, min(BLOCK_ROWS_MAX, BLOCK_BYTES // average))
    groups = -(-count // block_rows)
    slots = "0" * (CHECKSUM_CHARACTERS * (groups + 3))
    sink = pa.BufferOutputStream()
    writer = pq.ParquetWriter(
        sink,
        rows.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in rows.schema.names if name not in ("_key", "_seq")] or False,
        column_encoding={"_key": "DELTA_BYTE_ARRAY", "_seq": "DELTA_BINARY_PACKED"},
        write_page_index=True,
        write_page_checksum=True,
        sorting_columns=[pq.SortingColumn(0)],
        bloom_filter_options={"_key": {"ndv": max(1, min(block_rows, count)), "fpp": _FALSE_POSITIVES}},
    )
    if count:
        writer.write_table(rows, row_group_size=block_rows)
    writer.add_key_value_metadata({META_KEY: msgspec.json.encode(meta).decode(), CHECKSUMS_KEY: slots})
    writer.close()
    return _patched(bytearray(memoryview(sink.getvalue())), rows, meta)


def _patched(data: bytearray, rows: pa.Table, meta: SstMeta) -> EncodedSst:
    size = len(data)
    footer_len = int.from_bytes(data[size - 8 : size - 4], "little")
    footer_offset = size - 8 - footer_len
    view = memoryview(data)
    metadata = pq.read_metadata(pa.BufferReader(footer_only(bytes(view[footer_offset:]))))
    regions = Regions.of(metadata, footer_offset)
    keys = rows.column("_key")
    slot, slot_len = checksum_slot(data[footer_offset:], "a new SST")
    slot += footer_offset
    sums = [xxhash.xxh3_64_hexdigest(view[start:end]) for start, end in regions.blocks]
    sums.append(xxhash.xxh3_64_hexdigest(view[regions.filter_offset : regions.index_offset]))
    sums.append(xxhash.xxh3_64_hexdigest(view[regions.index_offset : footer_offset]))
    sums.append(xxhash.xxh3_64_hexdigest(view[footer_offset:]))
    data[slot : slot + slot_len] = "".join(sums).encode()
    pinned = xxhash.xxh3_64_intdigest(view[footer_offset:])
    return EncodedSst(
        data=bytes(view),
        meta=meta,
        first_key=keys[0].as_py() if rows.num_rows else b"",
        last_key=keys[-1].as_py() if rows.num_rows else b"",
        filter_offset=regions.filter_offset,
        filter_len=regions.index_offset - regions.filter_offset,
        block_meta_offset=footer_offset,
        block_meta_len=size - footer_offset,
        rows=rows.num_rows,
        checksum=pinned,
    )


def footer_only(tail: bytes) -> bytes:
    """A Parquet file that is all footer: what a reader needs to learn about the rest."""
    return MAGIC + tail


class Regions(msgspec.Struct, frozen=True):
    """Where the parts of an SST lie: blocks, then bloom filters, then page indexes, then the footer."""

    blocks: tuple[tuple[int, int], ...]
    filters: tuple[tuple[int, int], ...]
    filter_offset: int
    index_offset: int
    footer_offset: int

    @classmethod
    def of(cls, metadata: pq.FileMetaData, footer_offset: int) -> Regions:
        """Read the layout off the footer, and refuse one that is not ours."""
        starts: list[int] = []
        filters: list[tuple[int, int]] = []
        for group in range(metadata.num_row_groups):
            column = metadata.row_group(group).column(0)
            start = column.data_page_offset
            if column.has_dictionary_page and column.dictionary_page_offset:
                start = min(start, column.dictionary_page_offset)
            starts.append(start)
            filters.append((column.bloom_filter_offset, column.bloom_filter_length))
        filter_offset = filters[0][0] if filters else footer_offset
        index_offset = filters[-1][0] + filters[-1][1] if filters else footer_offset
        ends = [*starts[1:], filter_offset] if starts else []
        blocks = tuple(zip(starts, ends, strict=True))
        edges = [len(MAGIC), *starts, filter_offset, index_offset, footer_offset] if starts else []
        if edges != sorted(edges) or (starts and starts[0] != len(MAGIC)):
            raise ValueError("the parts of the file are not in the order of an SST")
        return cls(blocks, tuple(filters), filter_offset, index_offset, footer_offset)
