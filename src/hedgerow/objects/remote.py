"""Stores behind a network: S3 and what speaks its API, Google Cloud Storage, Azure Blob Storage, through obstore."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import obstore
import obstore.exceptions as problems
import obstore.store

from hedgerow.errors import InvalidInput, ObjectExists, ObjectNotFound, StoreUnavailable, Unauthorized
from hedgerow.objects.store import ObjectMeta

__all__ = ["RemoteStore"]

_PAGE_OBJECTS = 1_000
# Some of obstore's errors are Python's own: a missing object is a FileNotFoundError.
_PROBLEMS = (problems.BaseError, OSError, NotImplementedError)
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_REFUSED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthenticationFailed", "403 Forbidden",
            "401 Unauthorized", "AuthorizationFailure")  # fmt: skip


class RemoteStore:
    """Objects in a bucket or container, below the path of the URL.

    ``options`` are obstore's: ``endpoint``, ``region``, ``access_key_id`` and so on, or Azure's and Google's. What is
    not given comes from the environment (``AWS_ENDPOINT_URL``, ``AWS_ACCESS_KEY_ID``, ...).
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None, *, timeout_s: float = 30.0) -> None:
        parts = urlsplit(url)
        self._url = f"{parts.scheme}://{parts.hostname or parts.netloc}{parts.path}".rstrip("/")
        config = dict(options or {})
        client: dict[str, Any] = {
            "timeout": timedelta(seconds=timeout_s),
            "connect_timeout": timedelta(seconds=min(timeout_s, 5.0)),
        }
        if (
            str(config.pop("allow_http", "")).lower() in ("1", "true")
            or _plain_http(config)
            or _plain_http_by_environment()
        ):
            client["allow_http"] = True
        try:
            from_url: Any = obstore.store.from_url  # its overloads name every option of every store
            self._store = from_url(
                url,
                config=config or None,
                client_options=client,
                # A short inner retry; the outer one reads the slot back, which only Hedgerow can do.
                retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=timeout_s)},
            )
        except problems.BaseError as error:
            raise InvalidInput(f"{self._url}: {_first_line(error)}") from error

    @property
    def url(self) -> str:
        """Where this is, without credentials."""
        return self._url

    async def create(self, path: str, data: bytes) -> None:
        """Store an object if there is none."""
        try:
            await obstore.put_async(self._store, path, data, mode="create", use_multipart=False)
        except (problems.AlreadyExistsError, problems.PreconditionError) as error:
            raise ObjectExists(f"{self._url}/{path} exists.") from error
        except _PROBLEMS as error:
            raise self._translated(error, path) from error

    async def put(self, path: str, data: bytes) -> None:
        """Store an object, whatever was there."""
        try:
            await obstore.put_async(self._store, path, data, mode="overwrite")
        except _PROBLEMS as error:
            raise self._translated(error, path) from error

    async def get(self, path: str) -> bytes:
        """The whole object."""
        try:
            answer = await obstore.get_async(self._store, path)
            return bytes(await answer.bytes_async())
        except _PROBLEMS as error:
            raise self._translated(error, path) from error

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        """Part of an object."""
        if length <= 0:
            return b""
        try:
            return bytes(await obstore.get_range_async(self._store, path, start=start, length=length))
        except _PROBLEMS as error:
            translated = self._translated(error, path)
            if isinstance(translated, StoreUnavailable) and "range" in str(error).lower():
                # A range that starts beyond the end is an error here and an empty answer elsewhere.
                whole = await self.get(path)
                return whole[start : start + length]
            raise translated from error

    async def list(self, prefix: str, *, after: str = "") -> Sequence[ObjectMeta]:
        """Every object under the prefix, after ``after``, in order."""
        lines: list[ObjectMeta] = []
        try:
            stream = obstore.list(self._store, prefix, offset=after or None, chunk_size=_PAGE_OBJECTS)
            async for page in stream:
                lines.extend(
                    ObjectMeta(line["path"], line["size"], int(line["last_modified"].timestamp() * 1000))
                    for line in page
                    if line["path"] > after  # an offset is only a hint to some stores
                )
        except _PROBLEMS as error:
            raise self._translated(error, prefix) from error
        lines.sort(key=lambda line: line.path)
        return lines

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete objects."""
        if not paths:
            return
        try:
            await obstore.delete_async(self._store, list(paths))
        except FileNotFoundError:
            # Some stores refuse the whole batch for one missing object: then one by one.
            for path in paths:
                await self._delete_one(path)
        except _PROBLEMS as error:
            raise self._translated(error, paths[0]) from error

    async def _delete_one(self, path: str) -> None:
        try:
            await obstore.delete_async(self._store, path)
        except FileNotFoundError:
            return
        except _PROBLEMS as error:
            raise self._translated(error, path) from error

    async def copy(self, source: str, destination: str) -> None:
        """Copy an object."""
        try:
            await obstore.copy_async(self._store, source, destination)
        except _PROBLEMS as error:
            raise self._translated(error, source) from error

    async def close(self) -> None:
        """Connections close with the process."""

    def _translated(self, error: Exception, path: str) -> Exception:
        where = f"{self._url}/{path}"
        text = str(error)
        if any(word in text for word in _NO_BUCKET):
            return InvalidInput(f"{self._url}: there is no such bucket or container. Create it first.")
        if isinstance(error, problems.NotFoundError | FileNotFoundError):
            return ObjectNotFound(f"{where} does not exist.")
        denied = problems.PermissionDeniedError | problems.UnauthenticatedError | PermissionError
        if isinstance(error, denied) or any(word in text for word in _REFUSED):
            return Unauthorized(
                f"{where}: the store refused the request. Check the credentials and their permission to read, write, "
                f"list and delete. ({_first_line(error)})"
            )
        if "builder error" in text:
            return InvalidInput(f"{self._url}: the store's options make no request possible. ({_first_line(error)})")
        if isinstance(error, problems.InvalidPathError):
            return InvalidInput(f"{where}: not a path that this store can hold. ({_first_line(error)})")
        return StoreUnavailable(f"{where}: {_first_line(error)}")


def _plain_http(config: Mapping[str, Any]) -> bool:
    return any("endpoint" in key and str(value).startswith("http://") for key, value in config.items())


def _plain_http_by_environment() -> bool:
    """An endpoint of the environment is used where no option names one, so what it says of HTTP counts as well."""
    names = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
    allowed = ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP")
    return any(os.environ.get(name, "").startswith("http://") for name in names) or any(
        os.environ.get(name, "").lower() in ("1", "true") for name in allowed
    )


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0][:300] if text else type(error).__name__
