"""Every kind of store keeps the same contract: the one that all promises rest on."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hedgerow as hg
from hedgerow.errors import InvalidInput, ObjectExists, ObjectNotFound, StoreUnavailable, Unauthorized
from hedgerow.objects import (
    Environment,
    FileStore,
    MemoryStore,
    ObjectStore,
    RemoteStore,
    open_store,
    self_test,
)
from servers import azure_server, s3_server


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, Any]]:
    with s3_server() as options:
        yield options


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with azure_server(tmp_path_factory.mktemp("azurite")) as options:
        yield options


KINDS = ["memory", "file", "s3", pytest.param("azure", marks=pytest.mark.needs("npm"))]
_fresh = iter(range(10**9))


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "memory":
        return MemoryStore()
    if request.param == "file":
        return FileStore(tmp_path / "store")
    options = request.getfixturevalue(request.param)
    scheme = {"s3": "s3", "azure": "az"}[request.param]
    return RemoteStore(f"{scheme}://bucket/t{os.getpid()}-{next(_fresh)}", options)


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def test_a_created_object_is_there_whole_and_in_part(store: ObjectStore) -> None:
    async def scenario() -> None:
        await store.create("a/b/1", b"hello world")
        assert await store.get("a/b/1") == b"hello world"
        assert await store.get_range("a/b/1", 6, 5) == b"world"
        assert await store.get_range("a/b/1", 6, 500) == b"world"
        assert await store.get_range("a/b/1", 0, 0) == b""
        assert await store.get_range("a/b/1", 100, 5) == b""

    run(scenario())


def test_a_second_create_fails_and_changes_nothing(store: ObjectStore) -> None:
    async def scenario() -> None:
        await store.create("slot", b"first")
        with pytest.raises(ObjectExists):
            await store.create("slot", b"second")
        assert await store.get("slot") == b"first"

    run(scenario())


def test_of_many_creates_at_once_exactly_one_wins(store: ObjectStore) -> None:
    async def scenario() -> None:
        async def attempt(i: int) -> bytes | None:
            try:
                await store.create("race/slot", b"%d" % i)
            except ObjectExists:
                return None
            return b"%d" % i

        winners = [data for data in await asyncio.gather(*(attempt(i) for i in range(12))) if data is not None]
        assert len(winners) == 1
        assert await store.get("race/slot") == winners[0]

    run(scenario())


def test_what_is_not_there_is_said_to_be_missing(store: ObjectStore) -> None:
    async def scenario() -> None:
        with pytest.raises(ObjectNotFound):
            await store.get("nothing/here")
        with pytest.raises(ObjectNotFound):
            await store.get_range("nothing/here", 0, 5)
        assert list(await store.list("nothing/")) == []
        await store.delete(["nothing/here", "nor/there"])

    run(scenario())


def test_a_listing_is_complete_beyond_a_thousand_objects_and_starts_where_it_is_told(
    store: ObjectStore,
) -> None:
    async def scenario() -> None:
        names = [f"many/{i:05d}" for i in range(1_100)]
        limit = asyncio.Semaphore(32)

        async def put(name: str) -> None:
            async with limit:
                await store.put(name, b"x")

        await asyncio.gather(*(put(name) for name in [*names, "other/1"]))
        assert [line.path for line in await store.list("many/")] == names
        assert [line.path for line in await store.list("many/", after="many/01097")] == names[1_098:]
        assert [line.path for line in await store.list("many/", after="many/99999")] == []
        assert all(line.size_bytes == 1 and line.modified_ms > 0 for line in await store.list("many/"))
        await store.delete(names[:1_050])
        assert [line.path for line in await store.list("many/")] == names[1_050:]

    run(scenario())


def test_put_replaces_and_copy_copies(store: ObjectStore) -> None:
    async def scenario() -> None:
        await store.put("a", b"1")
        await store.put("a", b"2")
        await store.copy("a", "b")
        assert (await store.get("a"), await store.get("b")) == (b"2", b"2")
        with pytest.raises(ObjectNotFound):
            await store.copy("missing", "c")

    run(scenario())


def test_the_self_test_passes_and_leaves_nothing(store: ObjectStore) -> None:
    async def scenario() -> None:
        await self_test(store, Environment())
        assert list(await store.list("self-test/")) == []

    run(scenario())


def test_a_table_lives_on_every_store(store: ObjectStore) -> None:
    """Not only the verbs: a writer, a takeover, a reader."""
    from hedgerow.table.aio import AsyncTable
    from hedgerow.table.core import create_table

    async def scenario() -> None:
        table = AsyncTable(
            await create_table(store, schema=None, key=None, partitions=2, options=None, cache_bytes=1 << 20)
        )
        first = await table.writer(name="first", flush_interval_s=0.0).start()
        for i in range(20):
            await first.put(b"%d" % i, b"first")
        await first.flush()
        async with table.writer(name="second", flush_interval_s=0.0) as second:
            for i in range(20):
                await second.put(b"%d" % i, b"second")
        await first.put(b"1", b"zombie")
        with pytest.raises(hg.Fenced):
            await first.flush()
        await table.refresh()
        assert await table.get_many([b"%d" % i for i in range(20)]) == [b"second"] * 20
        assert (await table.to_arrow()).num_rows == 20

    run(scenario())


# --- the local file system ----------------------------------------------------------------------------------


def test_a_file_is_synced_before_it_gets_its_name_and_so_is_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Durable: after a power loss a name without its bytes, or bytes without a name, would be a lost row."""
    happened: list[str] = []
    real_fsync, real_link = os.fsync, os.link

    def fsync(handle: int) -> None:
        happened.append("sync folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "sync file")
        real_fsync(handle)

    def link(source: Any, target: Any) -> None:
        happened.append("link")
        real_link(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", link)
    store = FileStore(tmp_path / "new" / "folder")
    run(store.create("wal/1", b"row"))
    at = happened.index("link")
    assert "sync file" in happened[:at]
    assert happened[at + 1 :] == ["sync folder"]
    assert happened[:at].count("sync folder") >= 3, "every new folder's name must be on disk, too"


def test_half_written_files_are_never_listed_and_can_be_swept(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    run(store.create("wal/1", b"row"))
    (tmp_path / "wal" / ".tmp-2-abc").write_bytes(b"half")
    assert [line.path for line in run(store.list("wal/"))] == ["wal/1"]
    assert run(store.sweep(older_than_s=-1)) == 1
    assert not (tmp_path / "wal" / ".tmp-2-abc").exists()


def test_a_full_disk_is_a_clear_error_and_leaves_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(tmp_path)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreUnavailable, match="disk is full"):
        run(store.put("a", b"1"))
    monkeypatch.undo()
    assert list(run(store.list(""))) == []
    assert not list(tmp_path.rglob(".tmp-*"))


@pytest.mark.parametrize("path", ["", "/a", "a//b", "../a", "a/..", "a/./b", ".tmp-x"])
def test_paths_stay_inside_the_folder(tmp_path: Path, path: str) -> None:
    with pytest.raises(InvalidInput):
        run(FileStore(tmp_path).put(path, b""))


# --- addresses and permissions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "not an address"),
        (None, "not an address"),
        ("ftp://host/x", "unknown kind of store"),
        ("s3://user:secret@bucket/x", "keep credentials out"),
        ("s3:///x", "bucket or container is missing"),
        ("s3://bucket", "name a folder"),
        ("file://data/orders", "three slashes"),
        ("file:///", "below the root"),
        ("s3://bucket/x?versionId=1", "no '[?]'"),
    ],
)
def test_a_bad_address_is_one_clear_error_without_secrets(url: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


def test_plain_paths_and_file_addresses_are_the_same_place(tmp_path: Path) -> None:
    for address in (tmp_path, str(tmp_path), f"file://{tmp_path}"):
        assert open_store(address).url == f"file://{tmp_path}"


def test_a_missing_bucket_says_so_before_anything_is_written(s3: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="no such bucket"):
        hg.create("s3://no-such-bucket/table", options=s3)


@pytest.mark.needs("npm")
def test_wrong_credentials_say_so_before_anything_is_written(azure: dict[str, Any]) -> None:
    wrong = {**azure, "account_key": "AAAA" + azure["account_key"][4:]}
    with pytest.raises(Unauthorized, match="Check the credentials"):
        hg.create("az://bucket/forbidden", options=wrong)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_says_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(Unauthorized, match="permission"):
        hg.create(f"file://{tmp_path}/table")


def test_a_permission_error_of_the_file_system_is_translated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(Unauthorized, match="Give this user the right"):
        hg.create(f"file://{tmp_path}/table")


def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    options = {
        "endpoint": "http://127.0.0.1:9",
        "access_key_id": "x",
        "secret_access_key": "x",
        "region": "us-east-1",
    }
    with pytest.raises(StoreUnavailable):
        run(RemoteStore("s3://bucket/x", options, timeout_s=2).get("a"))
