"""The main flows, by the real command in processes of its own: what a user does on the first day."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import hedgerow as hg
from hedgerow.table.inspect import TableReport

WAIT_S = 60


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_table_from_its_creation_to_a_deleted_row(run: Any, tmp_path: Path) -> None:
    columns = ["--column", "order_id:int64", "--column", "status:string", "--column", "amount:decimal(10,2)"]
    made = run("create", "orders", *columns, "--key", "order_id", "--partitions", 4)
    assert "3 columns, key order_id, 4 partitions" in made.stdout

    row = '{"order_id": 17, "status": "paid", "amount": 12.50}'
    assert run("put", "orders", row, '{"order_id": -5, "status": "neu: ü"}').stdout == "put 2 rows\n"
    more = "\n".join(f'{{"order_id": {number}, "amount": "{number}"}}' for number in range(100, 160)) + "\n\n"
    assert json.loads(run("put", "orders", "-", "--json", stdin=more).stdout) == {"rows": 60}

    got = run("get", "orders", "17", "-5", "--json")
    assert lines(got.stdout) == [
        {"order_id": 17, "status": "paid", "amount": "12.50"},
        {"order_id": -5, "status": "neu: ü", "amount": None},
    ]
    missing = run("get", "orders", "17", "18", code=1)
    assert "paid" in missing.stdout
    assert missing.stderr == "hedgerow: not found: 18\n"

    shown = run("scan", "orders", "--start", "-5", "--end", "101", "--columns", "amount,order_id").stdout.splitlines()
    assert shown[0].split() == ["amount", "order_id"]
    assert [line.split() for line in shown[2:]] == [["null", "-5"], ["12.50", "17"], ["100.00", "100"]]
    assert [row["order_id"] for row in lines(run("--json", "scan", "orders", "--limit", 3).stdout)] == [
        -5,
        17,
        100,
    ]

    assert run("delete", "orders", "17", "-5", "--quiet").stdout == ""

    left = lines(run("--json", "scan", "orders", "--limit", 3).stdout)
    assert [row["order_id"] for row in left] == [100, 101, 102]

    report = msgspec.json.decode(run("inspect", "orders", "--json").stdout, type=TableReport)
    assert report.key == ("order_id",)
    assert list(report.columns) == ["order_id", "status", "amount"]
    assert len(report.partitions) == 4
    assert max(partition.epoch for partition in report.partitions) >= 2
    page = run("inspect", "orders").stdout
    assert "decimal128(10, 2)" in page
    assert "replay point" in page
    assert "4 partitions" in page


def test_a_table_of_bytes(invoke: Any) -> None:
    invoke("create", "blobs")
    invoke("put", "blobs", "greeting", "grüß dich")
    invoke("put", "blobs", "ff00", "feff", "--hex")
    assert invoke("get", "blobs", "greeting").stdout == "grüß dich\n"
    assert invoke("get", "blobs", "ff00", "--hex").stdout == "feff\n"
    assert lines(invoke("scan", "blobs", "--json").stdout) == [
        {"key": b"greeting".hex(), "value": "grüß dich".encode().hex()},
        {"key": "ff00", "value": "feff"},
    ]


def test_what_scan_prints_as_json_can_be_put_into_another_table(invoke: Any) -> None:
    columns = [
        "--column",
        "at:timestamp[ms, tz=UTC]",
        "--column",
        "data:binary",
        "--column",
        "tags:list<string>",
    ]
    for name in ("one", "two"):
        invoke("create", name, *columns, "--key", "at")
    invoke("put", "one", '{"at": "2025-03-31T12:00:00.125+02:00", "data": "00ff", "tags": ["a", null]}')
    text = invoke("scan", "one", "--json").stdout
    invoke("put", "two", "-", stdin=text)
    assert invoke("scan", "two", "--json").stdout == text
    assert lines(text) == [{"at": "2025-03-31T10:00:00.125000Z", "data": "00ff", "tags": ["a", None]}]


def big_table(folder: Path, rows: int) -> str:
    url = f"file://{folder}/big"
    with hg.create(url, schema=pa.schema([("id", pa.int64()), ("text", pa.string())]), key="id") as table:
        with table.writer() as writer:
            writer.write(pa.table({"id": list(range(rows)), "text": ["hedge" * 10] * rows}))
    return url


@pytest.mark.parametrize("form", [["--json"], []])
def test_a_closed_pipe_ends_a_scan_quietly(start: Callable[..., Popen[bytes]], tmp_path: Path, form: list[str]) -> None:
    process = start("scan", big_table(tmp_path, 50_000), *form)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline(), process.stderr.read()
    process.stdout.close()
    errors = process.stderr.read()
    assert (process.wait(WAIT_S), errors) == (0, b"")
    process.stderr.close()


def writing(start: Callable[..., Popen[bytes]], url: str) -> Popen[bytes]:
    """A command that has stored one row from its standard input, and waits for more."""
    hg.create(url, schema=pa.schema([("id", pa.int64())]), key="id", partitions=1).close()
    process = start("put", url, "-")
    assert process.stdin is not None
    process.stdin.write(b'{"id": 1}\n')
    process.stdin.flush()
    deadline_s = time.monotonic() + WAIT_S
    with hg.open(url) as table:
        while table.get(1) is None:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline_s
            table.refresh()
    return process


def test_interrupting_a_command_is_quiet(start: Callable[..., Popen[bytes]], tmp_path: Path) -> None:
    process = writing(start, f"file://{tmp_path}/slow")
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(BrokenPipeError):
        output, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, output, errors) == (130, b"", b"")


def test_a_command_that_was_fenced_says_so(start: Callable[..., Popen[bytes]], tmp_path: Path) -> None:
    url = f"file://{tmp_path}/taken"
    process = writing(start, url)
    with hg.open(url) as table, table.writer() as second:
        second.acquire()
        output, errors = process.communicate(b'{"id": 2}\n', timeout=WAIT_S)
    assert process.returncode == 5
    assert output == b""
    assert errors.startswith(b"hedgerow: Partition 0: this writer's epoch 1 was fenced by epoch 2")
    assert errors.count(b"\n") == 1
    with hg.open(url) as table:
        assert table.to_arrow().to_pylist() == [{"id": 1}]


def test_the_version(run: Any) -> None:
    assert run("--version").stdout == f"hedgerow {hg.__version__}\n"
