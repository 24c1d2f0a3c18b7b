"""The public API, as a user meets it."""

from __future__ import annotations

import datetime as dt
import decimal
import multiprocessing
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hedgerow as hg
from hedgerow.table import loop as loop_module

ORDERS = pa.schema([("order_id", pa.int64()), ("status", pa.string()), ("amount", pa.float64())])


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/orders"


@pytest.fixture
def orders(url: str) -> hg.Table:
    return hg.create(url, schema=ORDERS, key=["order_id"], partitions=4)


def rows(count: int, start: int = 0) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "order_id": list(numbers),
            "status": [f"s{i}" for i in numbers],
            "amount": [i * 0.5 for i in numbers],
        },
        schema=ORDERS,
    )


def test_the_example_of_the_first_page(url: str) -> None:
    t = hg.create(url, schema=ORDERS, key=["order_id"], partitions=8)
    with t.writer() as w:
        done = w.put({"order_id": 1, "status": "new", "amount": 9.5})
        w.write(rows(20, start=2))
        w.delete(7)
        w.flush()
        assert done.done()
        assert w.get(1) == {"order_id": 1, "status": "new", "amount": 9.5}
        assert w.get(7) is None
    t = hg.open(url)
    assert t.get(1) == {"order_id": 1, "status": "new", "amount": 9.5}
    assert [row and row["order_id"] for row in t.get_many([1, 2, 7, 3, 99])] == [1, 2, None, 3, None]
    assert t.scan(start=10, end=13, columns=["amount"]).read_all().to_pydict() == {"amount": [5.0, 5.5, 6.0]}
    assert t.to_arrow()["order_id"].to_pylist() == [i for i in range(1, 22) if i != 7]
    assert t.to_arrow().schema == ORDERS


def test_a_table_without_schema_maps_bytes_to_bytes(tmp_path: Path) -> None:
    kv = hg.create(f"file://{tmp_path}/cache")
    with kv.writer() as w:
        w.put(b"k", b"v")
        w.put(b"", b"the empty key is a key")
        w.put(b"gone", b"x")
        w.delete(b"gone")
        assert w.get(b"k") == b"v"
    kv.refresh()
    assert kv.get(b"k") == b"v"
    assert kv.get_many([b"k", b"gone", b""]) == [b"v", None, b"the empty key is a key"]
    assert kv.to_arrow().to_pylist() == [
        {"key": b"", "value": b"the empty key is a key"},
        {"key": b"k", "value": b"v"},
    ]


def test_the_second_writer_takes_over_and_the_first_is_told(orders: hg.Table) -> None:
    first = orders.writer(name="first")
    first.put({"order_id": 1, "status": "first", "amount": 1.0})
    first.flush()
    lost = first.put({"order_id": 1, "status": "lost", "amount": 1.0})
    with orders.writer(name="second") as second:
        second.put({"order_id": 1, "status": "second", "amount": 2.0})
        second.flush()
        lost_too = first.put({"order_id": 1, "status": "zombie", "amount": 1.0}) if lost.done() else lost
        with pytest.raises(hg.Fenced, match=r"epoch 1 was fenced by epoch 2.*new writer") as caught:
            first.flush()
        assert caught.value.current_epoch == 2
        assert isinstance(lost_too.exception(), hg.Fenced)
        with pytest.raises(hg.Fenced):
            first.put({"order_id": 1, "status": "again", "amount": 1.0})
    orders.refresh()
    assert orders.get(1)["status"] == "second"
    first.close(flush=False)


def test_writers_of_different_partitions_do_not_disturb_each_other(orders: hg.Table) -> None:
    by_partition: dict[int, int] = {}
    for key in range(100):
        by_partition.setdefault(orders._schema.locate(key)[0], key)
    a, b = by_partition[0], by_partition[1]
    with orders.writer() as first, orders.writer() as second:
        first.put({"order_id": a, "status": "first"})
        second.put({"order_id": b, "status": "second"})
        first.flush()
        second.flush()
        first.put({"order_id": a, "status": "still first"})
    orders.refresh()
    assert orders.get(a)["status"] == "still first"
    assert orders.get(b)["status"] == "second"


def test_an_idle_writer_can_ask_whether_it_is_still_the_owner(orders: hg.Table) -> None:
    first = orders.writer()
    first.put({"order_id": 1})
    first.flush()
    first.validate()
    with orders.writer() as second:
        second.put({"order_id": 1})
    with pytest.raises(hg.Fenced, match="epoch 2"):
        first.validate()
    with pytest.raises(hg.Fenced):
        first.put({"order_id": 1})


def test_upserts_keep_the_last_row_of_a_key(orders: hg.Table) -> None:
    with orders.writer() as w:
        w.write(rows(1_000))
        twice = pa.table({"order_id": [5, 5, 6], "status": ["a", "b", "c"], "amount": [1.0, 2.0, 3.0]}, schema=ORDERS)
        w.write(twice)
        w.put({"order_id": 6, "status": "d"})
        assert w.get(5)["status"] == "b"
        assert w.get(6) == {"order_id": 6, "status": "d", "amount": None}
    orders.refresh()
    assert orders.get(5)["status"] == "b"
    assert orders.get(6)["status"] == "d"
    assert orders.to_arrow().num_rows == 1_000


@pytest.mark.parametrize("form", ["table", "batch", "reader", "chunked", "dictionary", "large"])
def test_rows_come_in_every_arrow_form(orders: hg.Table, form: str) -> None:
    table = rows(500)
    given: Any = {
        "table": table,
        "batch": table.to_batches()[0],
        "reader": table.to_reader(max_chunksize=100),
        "chunked": pa.concat_tables([table.slice(0, 200), table.slice(200)]),
        "dictionary": table.set_column(1, "status", table["status"].dictionary_encode()),
        "large": table.cast(
            pa.schema([("order_id", pa.int32()), ("status", pa.large_string()), ("amount", pa.float32())])
        ),
    }[form]
    with orders.writer() as w:
        w.write(given)
    orders.refresh()
    assert orders.to_arrow().equals(table)


def test_deleting_many_by_keys_and_by_rows(orders: hg.Table) -> None:
    with orders.writer() as w:
        w.write(rows(20))
        w.delete_many([1, 2, 3])
        w.delete_many(pa.table({"order_id": [10, 11]}))
        w.flush()
    orders.refresh()
    assert orders.to_arrow()["order_id"].to_pylist() == [i for i in range(20) if i not in (1, 2, 3, 10, 11)]


def test_a_writer_sees_its_own_writes_and_those_it_took_over(orders: hg.Table) -> None:
    with orders.writer() as w:
        w.write(rows(50))
    with orders.writer(flush_interval_s=100) as w:
        w.put({"order_id": 3, "status": "mine"})
        w.delete(4)
        w.write(rows(2, start=48))
        assert w.get(3)["status"] == "mine"
        assert w.get(4) is None
        assert w.get(5)["status"] == "s5"
        seen = w.scan(start=2, end=6, columns=["order_id", "status"]).read_all().to_pylist()
        assert seen == [
            {"order_id": 2, "status": "s2"},
            {"order_id": 3, "status": "mine"},
            {"order_id": 5, "status": "s5"},
        ]
        orders.refresh()
        assert orders.get(3)["status"] == "s3", "others see it only when it is durable"
        w.flush()
        orders.refresh()
        assert orders.get(3)["status"] == "mine"


def test_leaving_a_writer_by_an_error_stores_nothing_more(orders: hg.Table) -> None:
    with pytest.raises(RuntimeError):
        with orders.writer(flush_interval_s=100) as w:
            done = w.put({"order_id": 1})
            raise RuntimeError("the caller's own")
    assert isinstance(done.exception(), hg.Closed)
    orders.refresh()
    assert orders.get(1) is None
    with pytest.raises(hg.Closed):
        w.put({"order_id": 1})


def test_closing_twice_and_flushing_nothing_are_fine(orders: hg.Table) -> None:
    w = orders.writer()
    w.flush()
    w.close()
    w.close()
    assert orders.inspect().partitions[0].state == "sealed at 0"


# --- keys of every ordinary type ----------------------------------------------------------------------------

UTC = dt.UTC
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-128, -1, 0, 1, 127]),
    "int64": (pa.int64(), [-(2**63), -5, 0, 7, 2**63 - 1]),
    "uint64": (pa.uint64(), [0, 1, 2**64 - 1]),
    "string": (pa.string(), ["", "a", "a\0", "ab", "z", "ä", "\U0001f33f"]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\xff", b"a", b"\xff\xff"]),
    "bool": (pa.bool_(), [False, True]),
    "date32": (pa.date32(), [dt.date(1900, 1, 1), dt.date(1970, 1, 1), dt.date(2026, 1, 1)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1969, 1, 1, tzinfo=UTC), dt.datetime(2026, 1, 1, tzinfo=UTC)],
    ),
    "naive": (pa.timestamp("ms"), [dt.datetime(1969, 1, 1), dt.datetime(2026, 1, 1, 0, 0, 0, 1000)]),
    "decimal": (
        pa.decimal128(10, 2),
        [decimal.Decimal("-1.50"), decimal.Decimal("0.00"), decimal.Decimal("99.99")],
    ),
    "double": (pa.float64(), [float("-inf"), -1.5, 0.0, 1e-300, 2.0, float("inf")]),
    "fixed": (pa.binary(3), [b"\0\0\0", b"abc", b"\xff\xff\xff"]),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_every_ordinary_type_sort_and_are_found(name: str) -> None:
    dtype, values = KEYS[name]
    table = hg.create(
        f"memory://key-{name}-{os.urandom(4).hex()}",
        schema=pa.schema([("k", dtype), ("n", pa.int32())]),
        key="k",
        partitions=3,
    )
    with table.writer() as w:
        for n, value in list(enumerate(values))[::-1]:
            w.put({"k": value, "n": n})
        w.flush()
        assert [w.get(value)["n"] for value in values] == list(range(len(values)))
    table.refresh()
    assert table.to_arrow()["n"].to_pylist() == list(range(len(values)))
    assert [row["k"] for row in table.get_many(values)] == values
    for low in range(len(values)):
        for high in range(low, len(values)):
            found = table.scan(start=values[low], end=values[high], columns=["n"]).read_all()["n"].to_pylist()
            assert found == list(range(low, high))


def test_composite_keys_sort_as_tuples_and_take_prefixes_as_bounds(tmp_path: Path) -> None:
    schema = pa.schema([("region", pa.string()), ("day", pa.date32()), ("id", pa.int32()), ("v", pa.string())])
    table = hg.create(f"file://{tmp_path}/t", schema=schema, key=["region", "day", "id"], partitions=3)
    day = dt.date(2026, 1, 1)
    keys = [(r, day + dt.timedelta(d), i) for r in ("", "d", "de", "de\0x", "fr") for d in (0, 1) for i in (-1, 5)]
    with table.writer() as w:
        for r, d, i in reversed(keys):
            w.put({"region": r, "day": d, "id": i, "v": f"{r}{d}{i}"})
    table.refresh()
    seen = table.to_arrow().select(["region", "day", "id"]).to_pylist()
    assert [(row["region"], row["day"], row["id"]) for row in seen] == sorted(keys)
    assert table.get(("de", day, 5))["v"] == f"de{day}5"
    german = table.scan(start=("de",), end=("df",)).read_all()["region"].to_pylist()
    assert german == ["de"] * 4 + ["de\0x"] * 4
    assert table.scan(start=("fr", day + dt.timedelta(1))).read_all().num_rows == 2


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"schema": ORDERS, "key": ["nope"]}, "'nope' is not in the schema"),
        ({"schema": ORDERS}, "name the column"),
        ({"schema": ORDERS, "key": []}, "name the column"),
        ({"schema": ORDERS, "key": ["order_id", "order_id"]}, "twice"),
        ({"key": ["order_id"]}, "no schema"),
        ({"schema": "id int", "key": "id"}, "pyarrow.Schema"),
        ({"schema": pa.schema([("_key", pa.int64())]), "key": "_key"}, "Hedgerow's own"),
        ({"schema": pa.schema([("a", pa.int64()), ("A", pa.int64())]), "key": "a"}, "differ only in case"),
        ({"schema": pa.schema([("a", pa.null())]), "key": "a"}, "real type"),
        ({"schema": pa.schema([("a", pa.list_(pa.int64()))]), "key": "a"}, "cannot be part of a key"),
        ({"partitions": 0}, "whole number from 1"),
        ({"partitions": True}, "whole number from 1"),
        ({"partitions": 10**6}, "whole number from 1"),
    ],
)
def test_a_table_that_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(hg.InvalidInput, match=words):
        hg.create(f"file://{tmp_path}/t", **arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_second_create_and_a_table_that_is_not_there(url: str, orders: hg.Table, tmp_path: Path) -> None:
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(hg.TableExists, match=r"hedgerow.open"):
        hg.create(url)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    with pytest.raises(hg.TableNotFound, match=r"hedgerow.create"):
        hg.open(f"file://{tmp_path}/nothing")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"status": "x"}, "'order_id' must not be null"),
        ({"order_id": None}, "'order_id' must not be null"),
        ({"order_id": 1, "colour": "red"}, "no column 'colour'"),
        ({"order_id": "1"}, "'order_id' is of type int64"),
        ({"order_id": True}, "'order_id' is of type int64"),
        ({"order_id": 2**63}, "out of its range"),
        ({"order_id": 1, "status": 5}, "'status' is of type string"),
        ({"order_id": 1, "status": "\ud800"}, "not valid Unicode"),
        ({"order_id": 1, "amount": "9"}, "'amount' is of type double"),
        ({"order_id": 1, "status": "x" * (129 << 20)}, "larger than the limit"),
        ([1, 2], "a dictionary of columns"),
    ],
)
def test_a_bad_row_is_one_clear_error_and_nothing_is_written(orders: hg.Table, row: Any, words: str) -> None:
    with orders.writer() as w:
        with pytest.raises(hg.InvalidInput, match=words):
            w.put(row)
    orders.refresh()
    assert orders.to_arrow().num_rows == 0
    assert orders.inspect().partitions[0].epoch == 0, "not even a partition was acquired"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pa.table({"status": ["x"]}), "'order_id' is missing"),
        (pa.table({"order_id": pa.array([1, None], pa.int64())}), "null, and is in row 1"),
        (pa.table({"order_id": ["1"]}), "the rows have string"),
        (pa.table({"order_id": [1.5]}), "the rows have double"),
        (pa.table({"order_id": pa.array([2**63], pa.uint64())}), "does not fit"),
        (pa.table({"order_id": [1], "colour": ["red"]}), "no column 'colour'"),
        (
            pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["order_id", "order_id"]),
            "stands twice",
        ),
        ([{"order_id": 1}], "takes a pyarrow Table"),
    ],
)
def test_bad_rows_are_one_clear_error_and_none_is_written(orders: hg.Table, table: Any, words: str) -> None:
    with orders.writer() as w:
        with pytest.raises(hg.InvalidInput, match=words):
            w.write(table)
    orders.refresh()
    assert orders.to_arrow().num_rows == 0


def test_a_column_that_must_not_be_null_is_watched(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string(), nullable=False)])
    table = hg.create(f"file://{tmp_path}/t", schema=schema, key="id")
    with table.writer() as w:
        with pytest.raises(hg.InvalidInput, match="'name' must not be null"):
            w.put({"id": 1})
        with pytest.raises(hg.InvalidInput, match="'name' must not be null"):
            w.write(pa.table({"id": [1], "name": pa.array([None], pa.string())}))
        w.put({"id": 1, "name": "x"})
        w.delete(1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: t.get("1"), "'order_id' is of type int64"),
        (lambda t: t.get(None), "never null"),
        (lambda t: t.get_many([1, "x"]), "'order_id' is of type int64"),
        (lambda t: t.scan(columns=["nope"]), "no column 'nope'"),
        (lambda t: t.scan(columns="amount"), "give a list"),
        (lambda t: t.scan(start="x"), "'order_id' is of type int64"),
        (lambda t: t.writer(colour=1), "no setting 'colour'"),
        (lambda t: t.writer(max_parallel_writes=0), "positive"),
        (lambda t: t.writer(max_parallel_writes=1.5), "whole number"),
        (lambda t: t.writer(max_parallel_writes=65), "limit"),
        (lambda t: t.writer(flush_interval_s="1"), "positive number"),
    ],
)
def test_bad_arguments_are_named(orders: hg.Table, call: Any, words: str) -> None:
    with pytest.raises(hg.InvalidInput, match=words):
        call(orders)


# --- back-pressure, threads, forks, loops -------------------------------------------------------------------


class SlowStore:
    """A store whose creates of WAL slots wait until they are let through."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.open = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, path: str, data: bytes) -> None:
        import asyncio

        if "/wal/" in path:
            await asyncio.get_running_loop().run_in_executor(None, self.open.wait)
        await self._store.create(path, data)


def test_a_full_buffer_blocks_and_then_refuses_without_losing_what_it_took(orders: hg.Table) -> None:
    slow = SlowStore(orders._core.store)
    orders._core.store = slow
    orders._core.wal._store = slow
    w = orders.writer(buffer_bytes=2_000, timeout_s=0.2, flush_interval_s=0.0)
    taken = []
    with pytest.raises(hg.BufferFull, match=r"buffer_bytes=2,000"):
        while True:
            taken.append(w.put({"order_id": len(taken), "status": "x" * 100}))
    assert 5 < len(taken) < 50
    slow.open.set()
    w.close()
    orders.refresh()
    assert all(future.exception() is None for future in taken)
    assert orders.to_arrow().num_rows == len(taken)


def test_a_waiting_put_goes_on_when_there_is_room(orders: hg.Table) -> None:
    slow = SlowStore(orders._core.store)
    orders._core.wal._store = slow
    w = orders.writer(buffer_bytes=2_000, timeout_s=60, flush_interval_s=0.0)
    started = threading.Event()

    def fill() -> None:
        for i in range(100):
            w.put({"order_id": i, "status": "x" * 100})
            if i == 10:
                started.set()

    thread = threading.Thread(target=fill)
    thread.start()
    slow.open.set()
    thread.join()
    w.close()
    orders.refresh()
    assert orders.to_arrow().num_rows == 100


def test_many_threads_share_one_table_and_one_writer(orders: hg.Table) -> None:
    with orders.writer() as w:

        def work(base: int) -> None:
            for i in range(base, base + 100):
                w.put({"order_id": i, "status": f"s{i}"})
                assert w.get(i)["status"] == f"s{i}"

        threads = [threading.Thread(target=work, args=(base,)) for base in range(0, 800, 100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    orders.refresh()
    assert orders.to_arrow()["order_id"].to_pylist() == list(range(800))


def test_a_warm_get_never_crosses_the_event_loop(orders: hg.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with orders.writer() as w:
        w.write(rows(100))
        w.flush()
        w.get(5)
        table = hg.open(orders.url, refresh_interval_s=None)
        table.get_many(list(range(100)))

        def refuse(*_: Any) -> None:
            raise AssertionError("the event loop was asked")

        monkeypatch.setattr(loop_module.Background, "run", refuse)
        assert [table.get(i)["order_id"] for i in range(100)] == list(range(100))
        assert len(table.get_many(list(range(100)))) == 100
        assert table.get(10_000) is None
        assert w.get(5)["order_id"] == 5
        monkeypatch.undo()


def test_a_view_refreshes_itself_in_the_background(orders: hg.Table) -> None:
    table = hg.open(orders.url, refresh_interval_s=0.0)
    assert table.get(1) is None
    with orders.writer() as w:
        w.put({"order_id": 1})
    while table.get(1) is None:
        pass


def _use_in_child(table: hg.Table, writer: hg.Writer, told: Any) -> None:
    outcomes = []
    for use in (
        lambda: table.get(1),
        lambda: table.refresh(),
        lambda: writer.put({"order_id": 2}),
        lambda: table.scan(),
    ):
        try:
            use()
            outcomes.append("worked")
        except hg.Forked as error:
            outcomes.append(f"Forked: {error}")
    # What is opened in the child works there.
    outcomes.append(hg.open(table.url).get(1)["status"])
    told.send(outcomes)


def test_a_fork_is_noticed(orders: hg.Table) -> None:
    writer = orders.writer()
    writer.put({"order_id": 1, "status": "parent"})
    writer.flush()
    orders.get(1)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_use_in_child, args=(orders, writer, theirs))
    child.start()
    outcomes = ours.recv()
    child.join()
    assert all("Open it again here" in outcome for outcome in outcomes[:4]), outcomes
    assert outcomes[4] == "parent"
    writer.put({"order_id": 2})
    writer.close()


def test_using_a_table_inside_its_own_callback_is_refused_instead_of_hanging(orders: hg.Table) -> None:
    caught: list[BaseException] = []
    happened = threading.Event()

    def callback(_: Any) -> None:
        try:
            orders.refresh()
        except RuntimeError as error:
            caught.append(error)
        happened.set()

    with orders.writer() as w:
        w.put({"order_id": 1}).add_done_callback(callback)
        w.flush()
    assert happened.wait(10)
    assert "own callbacks" in str(caught[0])


def test_other_tools_read_what_is_stored(orders: hg.Table, tmp_path: Path) -> None:
    with orders.writer() as w:
        w.write(rows(100))
    seen = pa.concat_tables([pq.read_table(path, columns=["order_id"]) for path in sorted(tmp_path.rglob("*.sst"))])
    assert sorted(seen["order_id"].to_pylist()) == list(range(100))


# --- the asyncio twin ---------------------------------------------------------------------------------------


async def _twin(url: str) -> None:
    async with await hg.aio.create(url, schema=ORDERS, key="order_id", partitions=4) as table:
        async with table.writer() as w:
            done = await w.put({"order_id": 1, "status": "new", "amount": 1.0})
            await done
            await w.write(rows(10, start=2))
            await (await w.delete(3))
            await w.delete_many([4])
            assert (await w.get(2))["status"] == "s2"
            assert await w.get(3) is None
            seen = [row async for batch in w.scan(start=1, end=6, columns=["order_id"]) for row in batch.to_pylist()]
            assert [row["order_id"] for row in seen] == [1, 2, 5]
            await w.flush()
            await w.validate()
    async with await hg.aio.open(url) as table:
        assert (await table.get(1))["status"] == "new"
        assert [row and row["order_id"] for row in await table.get_many([1, 3, 5])] == [1, None, 5]
        assert (await table.to_arrow())["order_id"].to_pylist() == [1, 2, *range(5, 12)]
        await table.refresh()
        assert (await table.inspect()).key == ("order_id",)
        first = await table.writer(name="first", flush_interval_s=0.0).start()
        await first.put({"order_id": 1, "status": "first"})
        await first.flush()
        async with table.writer(name="second") as second:
            await second.acquire()
            with pytest.raises(hg.InvalidInput):
                await second.acquire([9])
            future = await first.put({"order_id": 1, "status": "zombie"})
            with pytest.raises(hg.Fenced):
                await first.flush()
            assert isinstance(future.exception(), hg.Fenced)
        with pytest.raises(hg.Closed):
            await table.writer().put({"order_id": 1})


def test_the_asyncio_twin_does_the_same(url: str) -> None:
    import asyncio

    asyncio.run(_twin(url))


def test_inspect_tells_who_owns_what(orders: hg.Table) -> None:
    with orders.writer(name="me") as w:
        w.acquire()
        report = orders.inspect()
        assert [(p.epoch, p.owner, p.state) for p in report.partitions] == [(1, "me", "live")] * 4
        assert [pin.name for pin in report.snapshots] == ["writer me"]
    report = orders.inspect()
    assert {(p.epoch, p.owner) for p in report.partitions} == {(1, "")}
    assert report.snapshots == ()
    assert report.columns == {"order_id": "int64", "status": "string", "amount": "double"}


# --- nothing is changed on the way --------------------------------------------------------------------------

AT = dt.datetime(2026, 1, 1, 12, 0, 0, 123456)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (pa.timestamp("ms"), AT),
        (pa.date32(), AT),
        (pa.timestamp("us"), dt.date(2026, 1, 1)),
        (pa.time32("s"), dt.time(1, 2, 3, 999_999)),
        (pa.duration("ms"), dt.timedelta(microseconds=1_999)),
        (pa.float32(), 1e300),
        (pa.decimal128(5, 2), decimal.Decimal("1.234")),
    ],
)
def test_a_value_that_would_be_changed_is_refused(dtype: pa.DataType, value: Any) -> None:
    table = hg.create(
        f"memory://exact-{os.urandom(4).hex()}", schema=pa.schema([("id", pa.int64()), ("v", dtype)]), key="id"
    )
    with table.writer() as w, pytest.raises(hg.InvalidInput, match="'v'"):
        w.put({"id": 1, "v": value})


def test_a_column_that_would_lose_digits_is_refused() -> None:
    table = hg.create("memory://narrow", schema=pa.schema([("id", pa.int64()), ("v", pa.float32())]), key="id")
    with table.writer() as w:
        with pytest.raises(hg.InvalidInput, match="exactly"):
            w.write(pa.table({"id": [1], "v": [16_777_217.0]}))
        w.write(pa.table({"id": [1, 2, 3], "v": [0.5, float("nan"), None]}))
        assert w.get(1)["v"] == 0.5


def test_nanoseconds_come_back_whole() -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("ns")), ("took", pa.duration("ns"))])
    table = hg.create("memory://nanoseconds", schema=schema, key="id", partitions=1)
    rows = pa.table({"id": [1, 2, 3], "at": pa.array([1, 1_000, None], pa.timestamp("ns")),
                     "took": pa.array([7, None, 9], pa.duration("ns"))}, schema=schema)  # fmt: skip
    with table.writer() as w:
        w.write(rows)
    table.refresh()
    assert table.to_arrow().equals(rows)
    import numpy as np

    assert table.get(1)["at"] == np.datetime64(1, "ns")
    assert table.get(3)["at"] is None
    with table.writer() as w:
        w.put(table.get(1))
    table.refresh()
    assert table.to_arrow().equals(rows)


def test_a_bytes_table_takes_no_null() -> None:
    kv = hg.create("memory://no-null")
    with kv.writer() as w, pytest.raises(hg.InvalidInput, match="'value' must not be null"):
        w.put(b"k")
    assert kv.key_value


def test_an_unknown_time_zone_is_refused_when_the_table_is_made() -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "Nowhere/X"))])
    with pytest.raises(hg.InvalidInput, match="Nowhere/X"):
        hg.create("memory://nowhere", schema=schema, key="id")
    for zone in ("UTC", "Europe/Berlin", "+02:00"):
        fine = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", zone))])
        hg.create(f"memory://zone-{zone}", schema=fine, key="id")


@pytest.mark.parametrize("dtype", [pa.decimal128(5, -2), pa.struct([]), pa.month_day_nano_interval()], ids=str)
def test_a_type_that_no_file_can_hold_is_refused_when_the_table_is_made(dtype: pa.DataType) -> None:
    with pytest.raises(hg.InvalidInput, match="'v'"):
        hg.create("memory://storable", schema=pa.schema([("id", pa.int64()), ("v", dtype)]), key="id")


def test_a_scan_comes_in_batches_of_bounded_size(orders: hg.Table) -> None:
    with orders.writer() as w:
        w.write(rows(200_000))
    orders.refresh()
    assert max(batch.num_rows for batch in orders.scan()) <= 65_536


def test_a_place_where_no_folder_can_be_is_refused_at_once() -> None:
    with pytest.raises(hg.InvalidInput, match="cannot be made there"):
        hg.create("file:///proc/hedgerow/table")
