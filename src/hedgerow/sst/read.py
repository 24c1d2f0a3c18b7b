"""Reading an SST: its tail once, then only the blocks that can hold what is asked for. Everything read is checked.

A cold lookup costs two ranged reads: the tail (bloom filters, indexes, footer) and one block. An SST that the filter
rules out costs one, and none once its tail is cached. A small SST, such as a WAL's, is fetched whole in one request.
"""

from __future__ import annotations

import base64
import bisect
import mmap
from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from hedgerow.errors import Corrupt, UnsupportedFormat
from hedgerow.sst.bloom import BloomFilter
from hedgerow.sst.format import (
    CHECKSUM_CHARACTERS,
    FORMAT_VERSION,
    INTERNAL_COLUMNS,
    MAGIC,
    META_KEY,
    SstMeta,
    checksum_slot,
    sst_schema,
)
from hedgerow.sst.write import Regions, footer_only

__all__ = ["SstTail", "read_meta", "read_whole"]

_META_DECODER = msgspec.json.Decoder(SstMeta)


class SstTail:
    """An SST's footer, bloom filters and checksums: everything but its rows."""

    __slots__ = (
        "_block_sums",
        "_filters",
        "_firsts",
        "_lasts",
        "_metadata",
        "_regions",
        "_schema",
        "meta",
        "name",
        "size_bytes",
    )

    def __init__(self, tail: bytes, size_bytes: int, name: str, checksum: int | None = None) -> None:
        """``tail`` is the end of a file of ``size_bytes`` and begins no later than its bloom filters.

        ``checksum`` is what the manifest says: a file that is intact, but not the one meant, is refused as well.
        """
        self.name = name
        self.size_bytes = size_bytes
        tail_offset = size_bytes - len(tail)
        self._metadata, self.meta, sums, footer_offset = _footer(tail, size_bytes, name, checksum)
        try:
            self._regions = Regions.of(self._metadata, footer_offset)
        except (ValueError, TypeError) as error:
            raise Corrupt(f"{name} is not laid out as an SST: {error}.") from error
        self._schema = _written_schema(self._metadata, name)
        groups = self._metadata.num_row_groups
        if len(sums) != groups + 3:
            raise Corrupt(f"{name} has {len(sums)} checksums for {groups} blocks.")
        self._block_sums = sums[:groups]
        filter_offset, index_offset = self._regions.filter_offset, self._regions.index_offset
        if filter_offset < tail_offset:
            raise Corrupt(f"{name}: the filters begin at {filter_offset}, before the part that was read.")
        view = memoryview(tail)
        for what, start, end, expected in (
            ("bloom filters", filter_offset, index_offset, sums[groups]),
            ("page indexes", index_offset, footer_offset, sums[groups + 1]),
        ):
            if xxhash.xxh3_64_hexdigest(view[start - tail_offset : end - tail_offset]) != expected:
                raise Corrupt(f"{name} is damaged: the checksum of its {what} does not match.")
        self._filters = [
            BloomFilter(bytes(view[start - tail_offset : start - tail_offset + length]), name)
            for start, length in self._regions.filters
        ]
        bounds = [_bounds(self._metadata, group, name) for group in range(groups)]
        self._firsts = [first for first, _ in bounds]
        self._lasts = [last for _, last in bounds]

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return len(self._firsts)

    @property
    def first_keys(self) -> Sequence[bytes]:
        """The first key of every block."""
        return self._firsts

    @property
    def last_keys(self) -> Sequence[bytes]:
        """The last key of every block."""
        return self._lasts

    def find_block(self, key: bytes, hashed: int) -> int | None:
        """The only block that can hold the key; None where the ranges or the filter rule it out."""
        block = bisect.bisect_right(self._firsts, key) - 1
        if block < 0 or key > self._lasts[block] or not self._filters[block].may_contain(hashed):
            return None
        return block

    def blocks_between(self, start: bytes | None, end: bytes | None) -> range:
        """The blocks that can hold keys of [start, end)."""
        low = bisect.bisect_left(self._lasts, start) if start is not None else 0
        high = bisect.bisect_left(self._firsts, end) if end is not None else len(self._firsts)
        return range(low, max(low, high))

    def block_range(self, block: int) -> tuple[int, int]:
        """Start and length of a block's bytes in the file."""
        start, end = self._regions.blocks[block]
        return start, end - start

    def decode_block(self, block: int, data: bytes | memoryview, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of a block from its bytes, with these of the table's columns (None: all)."""
        start, length = self.block_range(block)
        if len(data) != length or xxhash.xxh3_64_hexdigest(data) != self._block_sums[block]:
            raise Corrupt(f"{self.name} is damaged: the checksum of block {block} does not match.")
        # Parquet offsets are those of the file. An anonymous mapping of its size costs address space, not memory.
        # It is unmapped with its last reference, which an error on its way up may hold for a while.
        canvas = mmap.mmap(-1, self.size_bytes)
        canvas[start : start + length] = data
        return self._read([block], pa.py_buffer(canvas), columns)

    def decode_all(self, data: bytes, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of the whole file, every block checked."""
        view = memoryview(data)
        if bytes(view[: len(MAGIC)]) != MAGIC:
            raise Corrupt(f"{self.name} is damaged: it does not begin with {MAGIC.decode()}.")
        for block, (start, end) in enumerate(self._regions.blocks):
            if xxhash.xxh3_64_hexdigest(view[start:end]) != self._block_sums[block]:
                raise Corrupt(f"{self.name} is damaged: the checksum of block {block} does not match.")
        return self._read(list(range(self.blocks)), pa.py_buffer(data), columns)

    def _read(self, groups: list[int], source: pa.Buffer, columns: Sequence[str] | None) -> pa.Table:
        schema = self._schema
        if columns is not None:
            missing = [name for name in columns if name not in schema.names]
            if missing:
                raise Corrupt(f"{self.name} has no column {missing[0]!r}, only {', '.join(schema.names)}.")
            schema = pa.schema([schema.field(name) for name in (*INTERNAL_COLUMNS, *columns)])
        if not groups:
            return schema.empty_table()
        try:
            file = pq.ParquetFile(pa.BufferReader(source), metadata=self._metadata)
            # A name with a dot in it may bring a struct's column along: only what was asked for is handed on.
            rows = file.read_row_groups(groups, columns=schema.names, use_threads=False).select(schema.names)
            # Parquet has no seconds, and dates only in days: such columns come back in another type.
            return rows if rows.schema == schema else rows.cast(schema)
        except (pa.ArrowException, OSError) as error:
            raise Corrupt(f"{self.name} cannot be decoded although its checksums match: {error}") from error


def read_whole(
    data: bytes, name: str, checksum: int | None = None, columns: pa.Schema | None = None
) -> tuple[SstMeta, pa.Table]:
    """Meta and rows of an SST that was fetched whole. With ``columns``, the rows must be of that table."""
    tail = SstTail(data, len(data), name, checksum)
    rows = tail.decode_all(data)
    if columns is not None and rows.schema.names != sst_schema(columns).names:
        raise Corrupt(f"{name} has the columns {rows.schema.names}, which are not the table's.")
    return tail.meta, rows


def read_meta(data: bytes, name: str) -> SstMeta:
    """Only the meta: who wrote this, and where does it belong? ``data`` is the file or its end."""
    return _footer(data, len(data), name, None)[1]


def _footer(
    tail: bytes, size_bytes: int, name: str, checksum: int | None
) -> tuple[pq.FileMetaData, SstMeta, list[str], int]:
    """Check the footer before anything in it is believed, the parser included."""
    if len(tail) < 12 or tail[-4:] != MAGIC:
        raise Corrupt(f"{name} is not an SST, or is cut off: it does not end in {MAGIC.decode()}.")
    footer_len = int.from_bytes(tail[-8:-4], "little")
    start = len(tail) - 8 - footer_len
    if start < 0:
        raise Corrupt(f"{name} is damaged: its footer would be {footer_len} bytes long.")
    footer = tail[start:]
    if checksum is not None and xxhash.xxh3_64_intdigest(footer) != checksum:
        raise Corrupt(f"{name} is damaged, or not the object that the manifest names: its checksum does not match.")
    sums = _checked_sums(footer, name)
    try:
        metadata = pq.read_metadata(pa.BufferReader(footer_only(footer)))
        pairs = metadata.metadata or {}
        raw = pairs[META_KEY.encode()]
        version = msgspec.json.decode(raw).get("format", 0)
        if version > FORMAT_VERSION:
            raise UnsupportedFormat(
                f"{name} has SST format {version}; this Hedgerow reads up to {FORMAT_VERSION}. Upgrade Hedgerow."
            )
        meta = _META_DECODER.decode(raw)
    except UnsupportedFormat:
        raise
    except (pa.ArrowException, OSError, KeyError, AttributeError, TypeError, msgspec.MsgspecError) as error:
        raise Corrupt(f"{name} is not an SST of Hedgerow: {error}") from error
    return metadata, meta, sums, size_bytes - len(footer)


def _checked_sums(footer: bytes, name: str) -> list[str]:
    """The checksums in the footer, after the footer's own has been verified with the slot blanked out."""
    at, length = checksum_slot(footer, name)
    width = CHECKSUM_CHARACTERS
    value = footer[at : at + length]
    blanked = footer[:at] + b"0" * length + footer[at + length :]
    if xxhash.xxh3_64_hexdigest(blanked).encode() != value[-width:]:
        raise Corrupt(f"{name} is damaged: the checksum of its footer does not match.")
    return [value[i : i + width].decode("ascii", "replace") for i in range(0, length, width)]


def _written_schema(metadata: pq.FileMetaData, name: str) -> pa.Schema:
    """The columns in the types they were written with, some of which Parquet replaces by others."""
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(metadata.metadata[b"ARROW:schema"])))
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise Corrupt(f"{name} does not say which types its columns have: {error}") from error


def _bounds(metadata: pq.FileMetaData, group: int, name: str) -> tuple[bytes, bytes]:
    statistics = metadata.row_group(group).column(0).statistics
    if statistics is None or not statistics.has_min_max:
        raise Corrupt(f"{name}: block {group} does not say which keys it holds.")
    return statistics.min, statistics.max
