"""SSTs: sorted, immutable, self-checking Parquet files. Knows nothing of who may write them."""

from hedgerow.sst.block import Block, Run
from hedgerow.sst.bloom import BloomFilter, key_hash
from hedgerow.sst.cache import Cache
from hedgerow.sst.format import DELETE, PUT, EncodedSst, SstMeta, sst_schema
from hedgerow.sst.merge import Cursor, merge, newest_wins, unique_by_key, without_deletes
from hedgerow.sst.read import SstTail, read_meta, read_whole
from hedgerow.sst.write import encode_sst

__all__ = [
    "DELETE",
    "PUT",
    "Block",
    "BloomFilter",
    "Cache",
    "Cursor",
    "EncodedSst",
    "Run",
    "SstMeta",
    "SstTail",
    "encode_sst",
    "key_hash",
    "merge",
    "newest_wins",
    "read_meta",
    "read_whole",
    "sst_schema",
    "unique_by_key",
    "without_deletes",
]
