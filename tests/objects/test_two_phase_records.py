"""The record stores, each as it really is: a dictionary, a file, a PostgreSQL server, DynamoDB's API over HTTP.

What a user would lose: a slot that two processes believe to hold, or an object that no listing shows.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
import textwrap

import pytest
from test_two_phase import Failing, gone, make, names, run
from two_phase_servers import dynamodb, postgres  # noqa: F401  fixtures

from hedgerow.errors import InvalidInput, ObjectExists, ObjectNotFound, StoreUnavailable
from hedgerow.objects import Environment, FileStore, MemoryStore, NumberedLog, RemoteStore, self_test
from hedgerow.objects.records import MemoryRecords, Record, RecordStore, prefix_end
from hedgerow.objects.records_dynamodb import DynamoRecords
from hedgerow.objects.records_postgres import PostgresRecords
from hedgerow.objects.records_sqlite import SqliteRecords

KINDS = ["memory", "sqlite", "postgres", "dynamodb"]
STATES = ["pending", "committed", "deleting", "abandoned", "spent"]
NEW_NAME = itertools.count()


@pytest.fixture(params=KINDS)
def connect(request, tmp_path):
    """Opens the same store of records again at each call, as another process would."""
    kind, number = request.param, next(NEW_NAME)
    if kind == "memory":
        records = MemoryRecords()
        return lambda: records
    if kind == "sqlite":
        return lambda: SqliteRecords(tmp_path / "records.db")
    if kind == "postgres":
        url = request.getfixturevalue("postgres").url()
        return lambda: PostgresRecords(url, f'Odd "name" {number}')
    endpoint = request.getfixturevalue("dynamodb")
    options = {"region": "eu-west-1", "endpoint": endpoint}
    run(_made(DynamoRecords("records", **options)))
    return lambda: DynamoRecords("records", namespace=f"test-{number}", **options)


async def _made(records):
    await records.create_table()
    await records.create_table()  # the second time it is there
    await records.close()


@contextlib.asynccontextmanager
async def opened(*stores):
    try:
        yield stores
    finally:
        for store in stores:
            await store.close()


def record(destination, number=1, state="pending"):
    return Record(destination, f"{destination}.{number}", f"sum{number}", state)


# --- what every store of records must do ----------------------------------------------------------------------


def test_a_slot_goes_to_one_and_everybody_learns_to_whom(connect):
    async def scenario():
        async with opened(connect(), connect()) as (one, other):
            assert isinstance(one, RecordStore)
            assert await one.get("a") is None
            assert await one.insert(record("a", 1)) == record("a", 1)
            assert await other.insert(record("a", 2)) == record("a", 1)
            assert await one.insert(record("a", 1)) == record("a", 1)  # sent again after a lost answer
            assert await other.get("a") == record("a", 1)
            assert await one.insert(record("b", 3, "deleting")) == record("b", 3, "deleting")

    run(scenario())


def test_of_many_inserts_at_once_one_wins(connect):
    async def scenario():
        stores = [connect() for _ in range(8)]
        async with opened(*stores):
            for slot in range(5):
                candidates = [record(f"slot/{slot}", number) for number in range(len(stores))]
                holders = await asyncio.gather(
                    *(store.insert(candidate) for store, candidate in zip(stores, candidates, strict=True))
                )
                assert len(set(holders)) == 1
                assert await stores[0].get(f"slot/{slot}") == holders[0]

    run(scenario())


def test_a_step_is_taken_once_and_only_from_the_state_and_source_it_names(connect):
    async def scenario():
        async with opened(connect(), connect()) as (one, other):
            await one.insert(record("a"))
            for before, after in itertools.pairwise(STATES):
                assert not await other.mark("a", "a.2", before, after)
                assert not await other.mark("b", "b.1", before, after)
                assert await one.mark("a", "a.1", before, after)
                assert not await other.mark("a", "a.1", before, after)
                assert await other.get("a") == record("a", 1, after)

    run(scenario())


def test_of_many_that_take_one_step_at_once_one_is_told_that_it_did(connect):
    async def scenario():
        stores = [connect() for _ in range(6)]
        async with opened(*stores):
            for number in range(5):
                await stores[0].insert(record(f"a/{number}"))
                took = await asyncio.gather(
                    *(store.mark(f"a/{number}", f"a/{number}.1", "pending", "committed") for store in stores)
                )
                assert sorted(took) == [False] * 5 + [True]

    run(scenario())


def test_a_record_is_removed_only_in_the_state_and_with_the_source_that_is_named(connect):
    async def scenario():
        async with opened(connect()) as (records,):
            for state in ("pending", "deleting", "spent"):
                await records.insert(record("a", 1, state))
                for other in {"pending", "deleting", "spent"} - {state}:
                    assert not await records.delete("a", "a.1", other)
                assert not await records.delete("a", "a.2", state)
                assert await records.get("a") == record("a", 1, state)
                assert await records.delete("a", "a.1", state)
                assert not await records.delete("a", "a.1", state)
                assert await records.get("a") is None

    run(scenario())


def test_steps_that_no_record_can_take_are_refused_before_they_are_sent(connect):
    async def scenario():
        async with opened(connect()) as (records,):
            await records.insert(record("a", 1, "committed"))
            with pytest.raises(InvalidInput):
                await records.mark("a", "a.1", "committed", "pending")
            with pytest.raises(InvalidInput):
                await records.delete("a", "a.1", "committed")
            assert await records.get("a") == record("a", 1, "committed")

    run(scenario())


def test_the_unfinished_are_found_at_once_by_prefix_and_nothing_else_is(connect):
    async def scenario():
        async with opened(connect(), connect()) as (one, other):
            for number, state in enumerate(STATES):
                for folder in ("wal/", "wal0/", "Wal/", "manifest/"):
                    await one.insert(record(f"{folder}{number}", 1, state))
            expected = [record(f"wal/{number}", 1, STATES[number]) for number in (0, 2, 3)]
            assert list(await other.unfinished("wal/")) == expected
            assert list(await other.unfinished("wal/2")) == expected[1:2]
            assert len(await other.unfinished("")) == 12
            assert await other.unfinished("x") == []
            assert list(await other.spent("wal/")) == [record("wal/4", 1, "spent")]
            assert len(await other.spent("")) == 4
            await one.mark("wal/0", "wal/0.1", "pending", "committed")
            assert list(await other.unfinished("wal/")) == expected[1:]
            await one.mark("wal/0", "wal/0.1", "committed", "deleting")
            assert [found.destination for found in await other.unfinished("wal/")] == ["wal/0", "wal/2", "wal/3"]

    run(scenario())


ODD = ["a%b", "a_b", "a\\b", "a'b", 'a"b', "a b", "a?b", "aéb", "a\U0001f333b", "a\uffffb", "a\ud7ffb", "A%B", "a*b"]


def test_odd_characters_are_kept_and_match_only_themselves(connect):
    async def scenario():
        async with opened(connect()) as (records,):
            for name in ODD:
                assert await records.insert(record(name)) == record(name)
            for name in ODD:
                assert await records.get(name) == record(name)
                assert list(await records.unfinished(name[:2])) == [record(name)]
                assert await records.delete(name, f"{name}.1", "pending")

    run(scenario())


def test_more_unfinished_records_than_one_page_holds(connect):
    async def scenario():
        async with opened(connect()) as (records,):
            padding = "x" * 3_000
            for number in range(0, 400, 100):
                await asyncio.gather(
                    *(
                        records.insert(Record(f"{at:05d}", f"{at:05d}{padding}", "", "pending"))
                        for at in range(number, number + 100)
                    )
                )
            found = await records.unfinished("")
            assert [one.destination for one in found] == [f"{at:05d}" for at in range(400)]

    run(scenario())


def test_a_prefix_ends_where_the_next_name_begins():
    for prefix in ("a", "a/", "é", "\ud7ff", "\U0010ffff", "a\U0010ffff", "\uffff"):
        end = prefix_end(prefix)
        for rest in ("", "\0", "a", "\U0010ffff"):
            assert end is None or prefix + rest < end
        if end is not None:
            assert not end.startswith(prefix)
            end.encode()


# --- two-phase writes on each of them --------------------------------------------------------------------------


@pytest.fixture(params=["memory", "files"])
def plain(request, tmp_path):
    return MemoryStore() if request.param == "memory" else FileStore(tmp_path / "objects")


def test_two_phase_writes_keep_the_promises_of_an_object_store(connect, plain):
    async def scenario():
        async with opened(make(plain, connect()), make(plain, connect())) as (one, other):
            await self_test(one, Environment())
            await one.create("wal/1", b"first")
            with pytest.raises(ObjectExists):
                await other.create("wal/1", b"second")
            assert await other.get("wal/1") == b"first"
            assert await other.get_range("wal/1", 1, 3) == b"irs"
            with pytest.raises(ObjectNotFound):
                await other.get("wal/2")
            await other.create("wal/2", b"")
            assert await one.get("wal/2") == b""
            assert await names(one, "wal/") == ["wal/1", "wal/2"]
            assert await names(one, "wal/", after="wal/1") == ["wal/2"]
            await other.delete(["wal/1", "wal/3"])
            assert await names(one, "wal/") == ["wal/2"]
            await one.create("wal/1", b"third")
            assert await other.get("wal/1") == b"third"

    run(scenario())


def test_one_of_many_creators_wins_and_the_others_leave_nothing(connect, plain):
    async def scenario():
        stores = [make(plain, connect()) for _ in range(6)]

        async def attempt(store, path, value):
            try:
                await store.create(path, value)
            except ObjectExists:
                return None
            return value

        async with opened(*stores):
            for path in ("log/1", "log/2", "log/3"):
                values = [b"%d" % number for number in range(len(stores))]
                won = await asyncio.gather(
                    *(attempt(store, path, value) for store, value in zip(stores, values, strict=True))
                )
                (winner,) = [value for value in won if value is not None]
                assert [await store.get(path) for store in stores] == [winner] * len(stores)
            assert await names(plain) == ["log/1", "log/2", "log/3"]

    run(scenario())


def test_what_a_crash_left_is_finished_by_another_process(connect, plain):
    async def scenario():
        records = connect()
        async with opened(make(plain, connect())) as (other,):
            await make(Failing(plain, "copy", gone()), records).create("wal/1", b"row")
            await make(Failing(plain, "copy", gone()), records).create("wal/2", b"row")
            assert await other.get("wal/1") == b"row"
            assert await names(other, "wal/") == ["wal/1", "wal/2"]
            with pytest.raises(StoreUnavailable):
                await make(Failing(plain, "delete", gone()), records).delete(["wal/1"])
            assert await other.recover() == 1
            assert await names(other) == ["wal/2"]
            assert await other.forget() == 1
            await other.create("wal/1", b"again")
            assert await make(plain, records).get("wal/1") == b"again"
        await records.close()

    run(scenario())


def test_a_log_can_be_kept_on_it(connect, plain):
    async def scenario():
        async with opened(make(plain, connect()), make(plain, connect())) as stores:
            logs = [NumberedLog(store, "log", ".entry", Environment()) for store in stores]
            head = None
            for number in range(6):
                head = await logs[number % 2].append(head, b"%d" % number, whole=number % 3 == 0)
            assert [entry.payload for entry in await logs[0].load()] == [b"3", b"4", b"5"]

    run(scenario())


def test_a_bucket_and_a_table_behind_http_make_an_object_store(dynamodb):  # noqa: F811
    import boto3

    boto3.client("s3", region_name="us-east-1", endpoint_url=dynamodb).create_bucket(Bucket="two-phase")
    options = {"endpoint": dynamodb, "region": "us-east-1", "access_key_id": "test", "secret_access_key": "test"}
    plain = RemoteStore("s3://two-phase/table", options)

    def connect():
        return DynamoRecords("records", region="us-east-1", endpoint=dynamodb, namespace="bucket")

    async def scenario():
        await _made(connect())
        async with opened(make(plain, connect()), make(plain, connect())) as (one, other):
            await self_test(one, Environment())
            await make(Failing(plain, "copy", gone()), one._records).create("wal/1", b"row")
            assert await names(other) == ["wal/1"]
            assert await other.get_range("wal/1", 0, 2) == b"ro"
            await other.create("wal/2", b"")
            with pytest.raises(ObjectExists):
                await one.create("wal/2", b"")
            # A copy whose source is gone fails: on this the whole protocol rests.
            with pytest.raises(ObjectNotFound):
                await plain.copy("wal/3.gone", "wal/3")
            await one._records.insert(record("wal/3"))
            await one.create("wal/4", b"row")
            assert await names(other) == ["wal/1", "wal/2", "wal/4"]
            await other.delete(["wal/1", "wal/2", "wal/4"])
            assert await names(plain) == []

    run(scenario())


def test_processes_race_on_one_machine(tmp_path):
    """Real processes, with nothing in common but the disk."""
    script = textwrap.dedent("""
        import asyncio, sys
        from hedgerow.errors import ObjectExists
        from hedgerow.objects import Environment, FileStore, RetryPolicy
        from hedgerow.objects.records import open_records
        from hedgerow.objects.twophase import TwoPhaseStore

        async def main(folder, name):
            records = open_records(f"sqlite://{folder}/records.db")
            store = TwoPhaseStore(FileStore(folder + "/objects"), records, Environment(), RetryPolicy())
            won = []
            sys.stdin.readline()
            for slot in range(20):
                try:
                    await store.create(f"log/{slot:02d}", name.encode())
                    won.append(slot)
                except ObjectExists:
                    assert await store.get(f"log/{slot:02d}") != name.encode()
            print(*won)
            await store.close()

        asyncio.run(main(*sys.argv[1:]))
    """)
    processes = {
        name: subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "abcd"
    }
    for process in processes.values():
        process.stdin.write("go\n")
        process.stdin.flush()
    winners = {}
    for name, process in processes.items():
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        for slot in map(int, output.split()):
            assert winners.setdefault(slot, name) == name, "two processes won one slot"
    assert sorted(winners) == list(range(20))
    for slot, name in winners.items():
        assert (tmp_path / "objects" / "log" / f"{slot:02d}").read_bytes() == name.encode()
