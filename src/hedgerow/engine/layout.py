"""Names of objects: where everything of a table lies below its address.

::

    manifest/00000000000000000042.manifest
    partitions/00017/wal/00000000000000000009.sst
    partitions/00017/levels/00000000000000000041-01HF7YAT31M6N4Q0V8RZ3K2W5C.sst
"""

from __future__ import annotations

import re

__all__ = ["MANIFEST_FOLDER", "MANIFEST_SUFFIX", "level_path", "levels_folder", "parse_level", "parse_wal", "ulid",
           "wal_folder", "wal_path"]  # fmt: skip

MANIFEST_FOLDER = "manifest/"
MANIFEST_SUFFIX = ".manifest"
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES = {character: value for value, character in enumerate(_CROCKFORD)}
_WAL = re.compile(r"partitions/(\d{5})/wal/(\d{20})\.sst")
_LEVEL = re.compile(r"partitions/(\d{5})/levels/(\d{20})-([0-7][0-9A-HJKMNP-TV-Z]{25})\.sst")


def wal_folder(partition: int) -> str:
    """The folder of a partition's write-ahead log."""
    return f"partitions/{partition:05d}/wal/"


def wal_path(partition: int, wal_id: int) -> str:
    """A slot of a partition's write-ahead log.

    >>> wal_path(17, 9)
    'partitions/00017/wal/00000000000000000009.sst'
    """
    return f"partitions/{partition:05d}/wal/{wal_id:020d}.sst"


def parse_wal(path: str) -> tuple[int, int] | None:
    """Partition and slot of a path, if it is one of a WAL SST."""
    match = _WAL.fullmatch(path)
    return (int(match[1]), int(match[2])) if match else None


def levels_folder(partition: int) -> str:
    """The folder of a partition's sorted runs."""
    return f"partitions/{partition:05d}/levels/"


def level_path(partition: int, base: int, sst_id: bytes) -> str:
    """A sorted run's file. ``base`` is the manifest that was newest when it was staged: a collector judges by it."""
    return f"partitions/{partition:05d}/levels/{base:020d}-{ulid(sst_id)}.sst"


def parse_level(path: str) -> tuple[int, int, bytes] | None:
    """Partition, base and id of a path, if it is one of a sorted run."""
    match = _LEVEL.fullmatch(path)
    if not match:
        return None
    number = 0
    for character in match[3]:
        number = number << 5 | _VALUES[character]
    return int(match[1]), int(match[2]), number.to_bytes(16, "big")


def ulid(sst_id: bytes) -> str:
    """Sixteen bytes as 26 characters that sort alike.

    >>> ulid(bytes(16))
    '00000000000000000000000000'
    """
    number = int.from_bytes(sst_id, "big")
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))
