"""Keys as bytes: an order-preserving encoding, and the hash that picks a key's partition. No I/O."""

from hedgerow.keys.encoding import KEY_BYTES_MAX, KeyEncoder
from hedgerow.keys.partition import PARTITIONS_MAX, partition_of, partitions_of

__all__ = ["KEY_BYTES_MAX", "PARTITIONS_MAX", "KeyEncoder", "partition_of", "partitions_of"]
