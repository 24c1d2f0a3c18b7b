"""From an address to a store: ``memory://``, ``file://`` and plain paths, ``s3://``, ``gs://``, ``az://``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from hedgerow.errors import InvalidInput
from hedgerow.objects.files import FileStore
from hedgerow.objects.memory import MemoryStore
from hedgerow.objects.remote import RemoteStore
from hedgerow.objects.store import ObjectStore

__all__ = ["SCHEMES", "open_store"]

SCHEMES = ("memory", "file", "s3", "s3a", "gs", "az", "azure", "abfs", "abfss")


def open_store(url: str | Path, options: Mapping[str, Any] | None = None) -> ObjectStore:
    """The store behind an address.

    >>> open_store("memory://example").url
    'memory://example'
    """
    if isinstance(url, Path):
        return FileStore(url.absolute())
    if not isinstance(url, str) or not url.strip():
        raise InvalidInput(f"{url!r} is not an address. Give one like 'file:///data/orders' or 's3://bucket/orders'.")
    if "://" not in url:
        return FileStore(Path(url).absolute())
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    if scheme not in SCHEMES:
        raise InvalidInput(f"{url!r}: unknown kind of store {scheme!r}. Hedgerow knows {', '.join(SCHEMES)}.")
    if parts.username or parts.password:
        raise InvalidInput(
            f"{scheme}://...: keep credentials out of the address; give them as options or in the environment."
        )
    if parts.query or parts.fragment:
        raise InvalidInput(f"{url!r}: an address has no '?' or '#'; give options as a mapping.")
    if scheme == "memory":
        return MemoryStore(f"{parts.netloc}{parts.path}".strip("/"))
    if scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise InvalidInput(f"{url!r}: a file address has three slashes, as in 'file:///data/orders'.")
        path = Path(unquote(parts.path))
        if path == Path("/"):
            raise InvalidInput(f"{url!r}: name a folder below the root.")
        return FileStore(path)
    if not parts.netloc:
        raise InvalidInput(f"{url!r}: the bucket or container is missing, as in '{scheme}://bucket/orders'.")
    if not parts.path.strip("/"):
        raise InvalidInput(f"{url!r}: name a folder in the bucket, as in '{scheme}://{parts.netloc}/orders'.")
    return RemoteStore(url.rstrip("/"), options)
