"""What an SST is: a Parquet file, sorted by ``_key``, that proves its own integrity.

Layout of the file, all of it Parquet's own::

    "PAR1" | row group 0 | row group 1 | ... | bloom filters of _key | page indexes | footer | length | "PAR1"

A row group is the *block*: the unit that is read, checked, cached and searched. Columns are ``_key`` (the encoded
primary key), ``_op`` (0 put, 1 delete), ``_seq`` (the row's place in the order it was written) and the table's own, all
of them nullable, because a delete has only its key. Every key stands once.

The footer carries two pairs of Parquet key-value metadata:

* ``hedgerow``: an ``SstMeta`` as JSON.
* ``hedgerow.checksums``: one XXH3-64 in hexadecimal per row group, then one of the bloom filters, one of the page
  indexes, and one of the footer itself. Parquet's page checksums cover pages only: a flipped bit in a filter would hide
  a row without a word. The value is a fixed-width slot, zeros while the file is written and patched afterwards; the
  footer's own checksum is taken with that slot still zero.

The manifest remembers the footer's checksum. Since the footer holds all the others, one number pins the whole file.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from hedgerow.errors import Corrupt, InvalidInput

__all__ = [
    "CHECKSUMS_KEY",
    "DELETE",
    "FORMAT_VERSION",
    "INTERNAL_COLUMNS",
    "META_KEY",
    "PUT",
    "EncodedSst",
    "SstMeta",
    "sst_schema",
]

FORMAT_VERSION = 1
META_KEY = "hedgerow"
CHECKSUMS_KEY = "hedgerow.checksums"
CHECKSUM_CHARACTERS = 16
PUT, DELETE = 0, 1
INTERNAL_COLUMNS = ("_key", "_op", "_seq")
MAGIC = b"PAR1"


class SstMeta(msgspec.Struct, frozen=True):
    """Where an SST belongs and who wrote it.

    Every field is written out, defaults too: a file that left out its format would pass for any reader's own.

    >>> SstMeta(kind="wal", table="00" * 16, partition=3, epoch=7, write_id="ff" * 16, wal_id=12).is_fence
    False
    """

    kind: str
    """``wal``: rows in a slot of the write-ahead log; ``fence``: no rows, a new owner's mark; ``level``: a sorted run."""
    table: str
    partition: int
    epoch: int
    write_id: str
    wal_id: int = 0
    attached: int = 0
    """Of a WAL SST: the last manifest that attached SSTs to this partition, as its writer knew."""
    fences: int = 0
    """Of a fence: how many consecutive ones make the run complete (the writes in flight the old owner was allowed)."""
    rows: int = 0
    format: int = FORMAT_VERSION

    @property
    def is_fence(self) -> bool:
        """Whether this is a new owner's mark in the log."""
        return self.kind == "fence"


class EncodedSst(msgspec.Struct, frozen=True):
    """An SST ready to be stored, and what the manifest will say of it."""

    data: bytes
    meta: SstMeta
    first_key: bytes
    last_key: bytes
    filter_offset: int
    filter_len: int
    block_meta_offset: int
    block_meta_len: int
    rows: int
    checksum: int


def sst_schema(columns: pa.Schema) -> pa.Schema:
    """The columns of an SST of a table with these columns.

    >>> sst_schema(pa.schema([("id", pa.int64())])).names
    ['_key', '_op', '_seq', 'id']
    """
    taken = [name for name in columns.names if name in INTERNAL_COLUMNS]
    if taken:
        raise InvalidInput(f"The column name {taken[0]!r} is Hedgerow's own. Rename the column.")
    own = [
        pa.field("_key", pa.binary(), nullable=False),
        pa.field("_op", pa.int8(), nullable=False),
        pa.field("_seq", pa.int64(), nullable=False),
    ]
    return pa.schema(own + [pa.field(field.name, field.type) for field in columns])


def checksum_slot(footer: bytes | bytearray, name: str) -> tuple[int, int]:
    """Where in the footer the checksums stand: start and length. Found by hand, before any parser is trusted."""
    key = CHECKSUMS_KEY.encode()
    at = footer.rfind(key) + len(key)
    # Compact Thrift: the header of the value's field (0x18), its length as a varint, then the characters.
    if at < len(key) or footer[at : at + 1] != b"\x18":
        raise Corrupt(f"{name} carries no checksums: it is not an SST of Hedgerow, or it is damaged.")
    length = shift = 0
    for position in range(at + 1, min(at + 6, len(footer))):
        length |= (footer[position] & 0x7F) << shift
        shift += 7
        if not footer[position] & 0x80:
            if length < 3 * CHECKSUM_CHARACTERS or length % CHECKSUM_CHARACTERS or position + 1 + length > len(footer):
                break
            return position + 1, length
    raise Corrupt(f"{name} is damaged: its checksums are cut off.")
