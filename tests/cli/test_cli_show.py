"""What is printed for people: tables of rows, and the page of ``inspect``."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from rich.console import Console

import hedgerow as hg
from hedgerow.cli.report import print_report
from hedgerow.cli.show import RowTable
from hedgerow.table.inspect import PartitionReport, SnapshotReport, TableReport


def test_columns_stand_under_one_another_also_with_wide_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    batch = pa.record_batch({"name": ["樹", "ash", None], "count": [5, 12_345, None]})
    table = RowTable(batch.schema)
    table.add(batch)
    table.finish()
    assert capsys.readouterr().out.splitlines() == [
        "name  count",
        "────  ─────",
        "樹        5",
        "ash   12345",
        "null   null",
    ]


def test_a_long_value_is_whole_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    batch = pa.record_batch({"name": ["x" * 500], "n": [1]})
    table = RowTable(batch.schema)
    table.add(batch)
    table.finish()
    assert "x" * 500 + "  1" in capsys.readouterr().out


def test_a_long_value_is_cut_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.record_batch({"name": ["x" * 500], "n": [1]})
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    table = RowTable(batch.schema)
    table.add(batch)
    table.finish()
    assert "x" * 47 + "…  1" in capsys.readouterr().out


def test_a_table_without_rows_shows_its_columns(invoke: Any) -> None:
    invoke("create", "empty", "--column", "id:int64", "--column", "name:string", "--key", "id")
    assert invoke("scan", "empty").stdout.splitlines()[0].split() == ["id", "name"]
    assert invoke("scan", "empty", "--json").stdout == ""
    assert invoke("scan", "empty", "--limit", 0, "--json").stdout == ""


def test_a_limit_of_none_at_all(invoke: Any, orders: str) -> None:
    assert invoke("scan", orders, "--json", "--limit", 0).stdout == ""
    assert len(invoke("scan", orders, "--json", "--limit", 2).stdout.splitlines()) == 2


def report() -> TableReport:
    partition = PartitionReport(0, 3, "[bold]host:1", "live", 1_200, 1_210, 4, 2, 12_345, 6_789_000)
    return TableReport(
        url="s3://shop/orders",
        table_id="ab" * 16,
        manifest=17,
        version=12,
        columns={"order_id": "int64", "tags": "list<item: string>"},
        key=("order_id",),
        authority="embedded",
        compactor_epoch=2,
        floor=1,
        partitions=(
            partition,
            msgspec.structs.replace(partition, partition=1, epoch=0, owner="", state="sealed at 0"),
        ),
        snapshots=(SnapshotReport("cd" * 16, "audit", 9, 0), SnapshotReport("ef" * 16, "nightly", 10, 1_000)),
    )


def test_the_page_of_inspect() -> None:
    stream = io.StringIO()
    print_report(report(), Console(file=stream, width=160))
    page = stream.getvalue()
    for phrase in (
        "s3://shop/orders", "manifest 17", "list<item: string>", "key 1", "[bold]host:1", "live", "never owned",
        "1,200", "24,690", "13,578,000", "audit", "never expires", "1970-01-01 00:00:01Z (expired)",
        "2 partitions, 1 with a live owner; 4 files with 24,690 rows, 13.6 MB; 2 snapshots.",
    ):  # fmt: skip
        assert phrase in page, phrase


def test_inspect_shows_a_live_owner(invoke: Any, orders: str) -> None:
    with hg.open(orders) as table, table.writer(name="the owner") as writer:
        writer.acquire()
        page = invoke("inspect", orders).stdout
        read = msgspec.json.decode(invoke("inspect", orders, "--json").stdout, type=TableReport)
    assert "the owner" in page
    assert "2 with a live owner" in page
    assert {partition.state for partition in read.partitions} == {"live"}
    assert {partition.owner for partition in read.partitions} == {"the owner"}
