"""Addresses of record stores, and what each says when something is wrong: with it, with us, or on the way.

What a user would lose: hours, or a password.
"""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import sys
import traceback

import pytest
from test_two_phase import run
from test_two_phase_records import opened, record
from two_phase_servers import dynamodb, postgres  # noqa: F401  fixtures

from hedgerow.errors import InvalidInput, StoreUnavailable, Unauthorized
from hedgerow.objects.records import open_records
from hedgerow.objects.records_dynamodb import DynamoRecords
from hedgerow.objects.records_postgres import PostgresRecords
from hedgerow.objects.records_sqlite import SqliteRecords


def test_addresses_open_the_store_they_name(tmp_path):
    assert open_records(f"sqlite://{tmp_path}/r%20s.db").url == f"sqlite://{tmp_path}/r s.db"
    assert open_records("sqlite:////data/r.db").url == "sqlite:///data/r.db"
    url = open_records("postgresql://me:secret@db:5433/ledger?sslmode=require&table=a%20b").url
    assert url == "postgresql://db/ledger?table=a%20b"
    assert open_records("postgres://db/ledger").url == "postgresql://db/ledger?table=hedgerow_records"
    url = open_records("dynamodb://ledger?region=eu-west-1&endpoint=http%3A%2F%2Flocalhost%3A1&namespace=orders").url
    assert url == "dynamodb://ledger?namespace=orders"


@pytest.mark.parametrize(
    "url",
    [
        "hunter2",
        "mysql://me:hunter2@db/ledger",
        "sqlite://me:hunter2@host/r.db",
        "sqlite:///",
        "postgresql://me:hunter2/slash@db/ledger",
        "postgresql://me:12/hunter2@db/ledger",
        "postgresql://me:hunter2@[db/ledger",
        "postgresql://me:hunter2@db/ledger?table=",
        "postgresql://me:hunter2@db/ledger?table=a.b.c",
        "postgresql://me:hunter2@db/ledger?table=" + "x" * 64,
        "postgresql://me:hunter2@db/ledger?nonsense=1",
        "postgresql://me@db/ledger?hunter2",
        "dynamodb://me:hunter2@ledger",
        "dynamodb://x",
        "dynamodb://ledger?password=hunter2",
        "dynamodb://ledger?namespace=",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_showing_a_password(url):
    with pytest.raises(InvalidInput) as caught:
        open_records(url)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value)).replace(repr(url), "").replace(url, "")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("module", "url"), [("psycopg", "postgresql://db/x"), ("boto3", "dynamodb://ledger")])
def test_a_missing_extra_is_named(monkeypatch, module, url):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InvalidInput, match=r"pip install 'hedgerow\[(postgres|dynamodb)\]'"):
        open_records(url)


def test_sqlite_syncs_every_commit_and_says_what_is_wrong_with_a_file(tmp_path):
    async def scenario():
        records = SqliteRecords(tmp_path / "records.db")
        await records.insert(record("a"))
        assert records._connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert records._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        plan = records._connection.execute(
            "EXPLAIN QUERY PLAN SELECT * FROM records WHERE state IN ('pending', 'deleting', 'abandoned') "
            "AND destination >= 'a' AND destination < 'b' ORDER BY destination"
        ).fetchall()
        assert "USING INDEX unfinished (destination>? AND destination<?)" in plan[0][3]
        with pytest.raises(InvalidInput):
            await records.get("not text: \ud800")
        assert await records.get("a") == record("a")
        await records.close()
        with pytest.raises(InvalidInput, match="no such folder"):
            await SqliteRecords(tmp_path / "missing" / "records.db").get("a")
        (tmp_path / "text").write_bytes(b"this is not a database" * 100)
        with pytest.raises(InvalidInput, match="not a database"):
            await SqliteRecords(tmp_path / "text").get("a")

    run(scenario())


def test_sqlite_that_others_hold_is_unavailable_and_works_again_after(tmp_path):
    async def scenario():
        async with opened(SqliteRecords(tmp_path / "records.db", timeout_s=0.05)) as (records,):
            await records.insert(record("a"))
            other = sqlite3.connect(tmp_path / "records.db", isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="locked"):
                await records.insert(record("b"))
            assert await records.get("b") is None
            other.execute("ROLLBACK")
            other.close()
            assert await records.insert(record("b")) == record("b")

    run(scenario())


def test_postgres_tells_refusals_from_outages(postgres):  # noqa: F811
    postgres.run("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    postgres.run("CREATE ROLE reader LOGIN")
    postgres.run("REVOKE CREATE ON SCHEMA public FROM PUBLIC")

    async def scenario():
        async with opened(PostgresRecords(postgres.url(), "guarded_records")) as (owner,):
            await owner.insert(record("a"))
            for url, error in {
                postgres.url("guarded", "hunter2"): Unauthorized,
                postgres.url("guarded", "right"): Unauthorized,  # gets in, and may not use the table
                postgres.url("reader"): Unauthorized,
                postgres.url("stranger"): Unauthorized,
                postgres.url().replace("/postgres?", "/nowhere?"): StoreUnavailable,
                f"postgresql://127.0.0.1:{free_port()}/postgres?password=hunter2": StoreUnavailable,
            }.items():
                async with opened(PostgresRecords(url, "guarded_records")) as (records,):
                    with pytest.raises(error) as caught:
                        await records.insert(record("b"))
                    assert "hunter2" not in "".join(traceback.format_exception(caught.value)).replace(url, "")
            async with opened(PostgresRecords(postgres.url("reader"), "new_records")) as (records,):
                with pytest.raises(Unauthorized):
                    await records.get("a")
            postgres.run("CREATE TABLE other_table (number integer)")
            async with opened(PostgresRecords(postgres.url(), "other_table")) as (records,):
                with pytest.raises(InvalidInput):
                    await records.get("a")
            with pytest.raises(InvalidInput):
                await owner.get("zero \0 byte")
            postgres.run("GRANT SELECT, INSERT ON guarded_records TO reader")
            async with opened(PostgresRecords(postgres.url("reader"), "guarded_records")) as (records,):
                assert await records.insert(record("b")) == record("b")
                with pytest.raises(Unauthorized):
                    await records.mark("b", "b.1", "pending", "committed")

    run(scenario())


def test_postgres_makes_its_table_once_however_many_begin_and_syncs_every_commit(postgres):  # noqa: F811
    async def scenario():
        stores = [PostgresRecords(f"{postgres.url()}&options=-csynchronous_commit%3Doff", "fresh") for _ in range(8)]
        async with opened(*stores):
            holders = await asyncio.gather(*(store.insert(record("a", i)) for i, store in enumerate(stores)))
            assert len(set(holders)) == 1
            cursor = await stores[0]._connection.execute("SHOW synchronous_commit")
            assert await cursor.fetchone() == ("on",)
            await stores[0]._connection.execute("SET enable_seqscan = off")
            cursor = await stores[0]._connection.execute(
                "EXPLAIN SELECT * FROM fresh WHERE state IN ('pending', 'deleting', 'abandoned') "
                "AND destination >= 'a' AND destination < 'b' ORDER BY destination"
            )
            plan = "".join(line for (line,) in await cursor.fetchall())
            assert "fresh_destination_idx" in plan
            assert "destination >= 'a'" in plan

    run(scenario())


def test_postgres_comes_back_after_a_crash_of_the_server_with_every_record(postgres):  # noqa: F811
    async def scenario():
        async with opened(PostgresRecords(postgres.url(), "kept")) as (records,):
            await records.insert(record("a"))
            postgres.stop()
            with pytest.raises(StoreUnavailable):
                await records.get("a")
            with pytest.raises(StoreUnavailable):
                await records.insert(record("b"))
            postgres.start()
            assert await records.get("a") == record("a")
            assert await records.get("b") is None

    run(scenario())


def test_postgres_that_does_not_answer_is_unavailable_and_a_cancelled_call_spoils_nothing(postgres):  # noqa: F811
    async def scenario():
        async with opened(*(PostgresRecords(postgres.url(), "locked") for _ in range(2))) as (records, other):
            await other.insert(record("a"))
            await records.get("a")
            holder = await other._connection.cursor().execute("BEGIN; LOCK TABLE locked IN ACCESS EXCLUSIVE MODE")
            records._timeout_s = 0.1
            with pytest.raises(StoreUnavailable, match="no answer"):
                await records.get("a")
            records._timeout_s = 30.0
            postponed = asyncio.ensure_future(records.get("a"))
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation'"
            while await (await holder.execute(waiting)).fetchone() == (0,):
                assert not postponed.done()
            postponed.cancel()
            with pytest.raises(asyncio.CancelledError):
                await postponed
            await holder.execute("ROLLBACK")
            assert await records.get("a") == record("a")

    run(scenario())


def test_dynamodb_tells_what_is_wrong(dynamodb, monkeypatch):  # noqa: F811
    async def scenario():
        missing = DynamoRecords("missing-table", region="eu-west-1", endpoint=dynamodb)
        with pytest.raises(InvalidInput, match="create_table"):
            await missing.get("a")
        silent = DynamoRecords("records", region="eu-west-1", endpoint=f"http://127.0.0.1:{free_port()}")
        with pytest.raises(StoreUnavailable):
            await silent.insert(record("a"))
        with pytest.raises(InvalidInput):
            await DynamoRecords("records", region="eu-west-1", endpoint="no address").get("a")
        await _other_table(dynamodb)
        with pytest.raises(InvalidInput, match="create_table"):
            await DynamoRecords("other-table", region="eu-west-1", endpoint=dynamodb).insert(record("a"))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        with pytest.raises(Unauthorized):
            await DynamoRecords("records", region="eu-west-1", endpoint=dynamodb).get("a")

    run(scenario())


async def _other_table(endpoint):
    import boto3

    boto3.client("dynamodb", region_name="eu-west-1", endpoint_url=endpoint).create_table(
        TableName="other-table",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )


def test_dynamodb_sends_every_request_once_and_reads_consistently(dynamodb):  # noqa: F811
    """A library that retries by itself would hide that the first attempt may have been carried out."""

    async def scenario():
        async with opened(DynamoRecords("records", region="eu-west-1", endpoint=dynamodb, namespace="once")) as (one,):
            await one.create_table()
            sent = []
            events = one._client.meta.events
            events.register("before-send.dynamodb.*", lambda request, **_: sent.append(request.body))
            events.register("before-send.dynamodb.GetItem", lambda **_: _response(503))
            with pytest.raises(StoreUnavailable):
                await one.get("a")
            assert len(sent) == 1
            await one.unfinished("a")
            assert all(b'"ConsistentRead": true' in body for body in sent)

    run(scenario())


def _response(status):
    from botocore.awsrequest import AWSResponse

    class Raw:
        def stream(self, *_, **__):
            yield b"{}"

    return AWSResponse("http://test", status, {}, Raw())


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
