"""A store in a folder of the local file system, durable against power loss.

A create writes a temporary file beside the target, syncs it, *links* it to its name (``link`` fails where the name is
taken: that is the create-if-absent), and syncs the folder, so that the name itself survives. A reader therefore never
sees half an object: a name appears with all of its bytes or not at all. Temporary files are named ``.tmp-...`` and are
not listed; the ones a crash leaves behind are removed by ``sweep``.

Blocking calls run in worker threads, so that an event loop is never held up by a disk.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hedgerow.errors import InvalidInput, ObjectExists, ObjectNotFound, StoreUnavailable, Unauthorized
from hedgerow.objects.store import ObjectMeta

__all__ = ["FileStore"]

T = TypeVar("T")
_TEMPORARY = ".tmp-"


class FileStore:
    """Objects as files below a folder.

    >>> import asyncio, tempfile
    >>> store = FileStore(tempfile.mkdtemp())
    >>> asyncio.run(store.create("wal/1", b"row"))
    >>> [line.path for line in asyncio.run(store.list("wal/"))]
    ['wal/1']
    """

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)
        self._synced: set[Path] = set()

    @property
    def url(self) -> str:
        """Where this is."""
        return f"file://{self._root}"

    async def create(self, path: str, data: bytes) -> None:
        """Store an object if there is none."""
        await self._in_thread(self._create, path, data)

    async def put(self, path: str, data: bytes) -> None:
        """Store an object, whatever was there."""
        await self._in_thread(self._put, path, data)

    async def get(self, path: str) -> bytes:
        """The whole object."""
        return await self._in_thread(self._get, path)

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        """Part of an object."""
        return await self._in_thread(self._get_range, path, start, length)

    async def list(self, prefix: str, *, after: str = "") -> Sequence[ObjectMeta]:
        """Every object under the prefix, after ``after``, in order."""
        return await self._in_thread(self._list, prefix, after)

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete objects."""
        await self._in_thread(self._delete, paths)

    async def copy(self, source: str, destination: str) -> None:
        """Copy an object."""
        await self._in_thread(self._copy, source, destination)

    async def close(self) -> None:
        """Nothing to release."""

    async def sweep(self, older_than_s: float = 86_400) -> int:
        """Remove temporary files that a crash left behind; the number removed."""
        return await self._in_thread(self._sweep, older_than_s)

    # --- blocking, in a worker thread -----------------------------------------------------------------------

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)
        except PermissionError as error:
            raise Unauthorized(
                f"{self.url}: no permission: {error.strerror} ({error.filename}). "
                "Give this user the right to read and write the folder, or choose another."
            ) from error
        except OSError as error:
            if error.errno == errno.EROFS:
                raise Unauthorized(f"{self.url}: the file system is read-only ({error.filename}).") from error
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
                raise InvalidInput(
                    f"{self.url}: a folder cannot be made there: {error.strerror} ({error.filename})."
                ) from error
            if error.errno == errno.ENOSPC:
                raise StoreUnavailable(f"{self.url}: the disk is full ({error.filename}). Free some space.") from error
            raise StoreUnavailable(f"{self.url}: {error}") from error

    def _create(self, path: str, data: bytes) -> None:
        target = self._target(path)
        taken = target.exists()
        if not taken:
            temporary = self._write_temporary(target, data)
            try:
                os.link(temporary, target)
            except FileExistsError:
                taken = True
            finally:
                temporary.unlink(missing_ok=True)
        # Also where the name is taken: the caller may find its own bytes there, from an attempt that died before this.
        _sync_folder(target.parent)
        if taken:
            raise ObjectExists(f"{self.url}/{path} exists.")

    def _put(self, path: str, data: bytes) -> None:
        target = self._target(path)
        temporary = self._write_temporary(target, data)
        try:
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)

    def _write_temporary(self, target: Path, data: bytes) -> Path:
        self._make_folder(target.parent)
        temporary = target.parent / f"{_TEMPORARY}{target.name}-{secrets.token_hex(8)}"
        try:
            with temporary.open("xb", buffering=0) as file:
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
                os.fsync(file.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return temporary

    def _make_folder(self, folder: Path) -> None:
        if folder in self._synced and folder.is_dir():
            return
        missing = [folder] if not folder.is_dir() else []
        for parent in folder.parents:
            if parent.is_dir():
                break
            missing.append(parent)
        folder.mkdir(parents=True, exist_ok=True)
        for made in reversed(missing):
            _sync_folder(made.parent)
        # A folder found here may have been made by another process a moment ago and not be synced yet.
        _sync_folder(folder.parent)
        self._synced.add(folder)

    def _get(self, path: str) -> bytes:
        try:
            return self._target(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise ObjectNotFound(f"{self.url}/{path} does not exist.") from None

    def _get_range(self, path: str, start: int, length: int) -> bytes:
        try:
            with self._target(path).open("rb", buffering=0) as file:
                chunks = []
                while length > 0 and (chunk := os.pread(file.fileno(), length, start)):
                    chunks.append(chunk)
                    start += len(chunk)
                    length -= len(chunk)
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise ObjectNotFound(f"{self.url}/{path} does not exist.") from None

    def _list(self, prefix: str, after: str) -> Sequence[ObjectMeta]:
        folder, _, beginning = prefix.rpartition("/")
        top = self._target(folder) if folder else self._root
        base = f"{folder}/" if folder else ""
        lines = [line for line in _walk(top, base, beginning) if line.path > after]
        lines.sort(key=lambda line: line.path)
        return lines

    def _delete(self, paths: Sequence[str]) -> None:
        folders = set()
        for path in paths:
            target = self._target(path)
            target.unlink(missing_ok=True)
            folders.add(target.parent)
        for folder in folders:
            if folder.is_dir():
                _sync_folder(folder)

    def _copy(self, source: str, destination: str) -> None:
        self._put(destination, self._get(source))

    def _sweep(self, older_than_s: float) -> int:
        removed = 0
        for file in self._root.rglob(f"{_TEMPORARY}*"):
            try:
                if time.time() - file.stat().st_mtime > older_than_s:
                    file.unlink()
                    removed += 1
            except FileNotFoundError:
                continue
        return removed

    def _target(self, path: str) -> Path:
        segments = path.split("/")
        if not path or any(part in ("", ".", "..") or part.startswith(_TEMPORARY) for part in segments):
            raise InvalidInput(f"{path!r} is not a path of an object: segments are not empty, '.' or '..'.")
        return self._root.joinpath(*segments)

    def remove_everything(self) -> None:
        """Delete the folder and all that is in it."""
        shutil.rmtree(self._root, ignore_errors=True)
        self._synced.clear()


def _walk(folder: Path, base: str, beginning: str) -> Iterator[ObjectMeta]:
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if not entry.name.startswith(beginning) or entry.name.startswith(_TEMPORARY):
            continue
        try:
            if entry.is_dir():
                yield from _walk(Path(entry.path), f"{base}{entry.name}/", "")
            else:
                stat = entry.stat()
                yield ObjectMeta(f"{base}{entry.name}", stat.st_size, stat.st_mtime_ns // 1_000_000)
        except FileNotFoundError:
            continue  # deleted since the folder was read


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
