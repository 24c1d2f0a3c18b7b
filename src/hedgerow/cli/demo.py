"""``hedgerow demo``: two writers, the fence, and what was refused.

The story. A writer stores orders, and some of them are still in its hands when a second writer takes the
table over, as happens when a machine stalls and another one is started in its place. The first wakes up and
tries to store what it has. The fence refuses it. Readers then see every row that was acknowledged, from
either writer, and none that was refused.

What must be there is kept in a plain dictionary that changes only when a writer says that rows are stored;
the table is compared with it, key by key and in a scan.
"""

from __future__ import annotations

import contextlib
import decimal
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import hedgerow as hg
from hedgerow.cli.session import console_of, print_json

__all__ = ["DemoReport", "run"]

PARTITIONS = 4
FIRST_ORDERS = 20_000
UNFLUSHED_ORDERS = 300
SECOND_ORDERS = 5_000
RANGE = (4_000, 4_600)
# Longer than the demo lasts: the first writer's rows wait in its buffer until it flushes.
_NEVER_S = 3_600.0
_SCHEMA = pa.schema(
    [
        ("order_id", pa.int64()),
        ("status", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("written_by", pa.string()),
    ]
)

Row = dict[str, Any]


class DemoReport(msgspec.Struct):
    """What happened, in numbers."""

    acknowledged_first: int = 0
    acknowledged_second: int = 0
    deleted_second: int = 0
    unflushed: int = 0
    refused: int = 0
    epochs_before: list[int] = []
    epochs_after: list[int] = []
    fence: str = ""
    refused_after_fence: bool = False
    rows_expected: int = 0
    rows_read: int = 0
    keys_read: int = 0
    differences: list[str] = []
    seconds: dict[str, float] = {}

    @property
    def verified(self) -> bool:
        """Whether the table holds exactly the acknowledged rows, and everything else was refused."""
        return not self.differences and bool(self.fence) and self.refused == self.unflushed and self.refused_after_fence


def run(*, as_json: bool = False, quiet: bool = False) -> int:
    """Show it all; the exit code: 0, or 1 where the table is not what it must be.

    >>> run(quiet=True)
    0
    """
    console = console_of()
    console.quiet = as_json or quiet
    report = DemoReport()
    with tempfile.TemporaryDirectory(prefix="hedgerow-demo-") as folder:
        _play(f"file://{Path(folder).resolve()}/orders", console, report)
    _print_report(report, console)
    if as_json:
        facts = {**msgspec.to_builtins(report), "verified": report.verified}
        print_json(msgspec.json.encode(facts) + b"\n")
    return 0 if report.verified else 1


def _play(url: str, console: Console, report: DemoReport) -> None:
    expected: dict[int, Row] = {}
    began_s = time.perf_counter()
    console.print(Text("Two writers, one table", style="bold"))
    with _timed(report, "create"):
        table = hg.create(url, schema=_SCHEMA, key="order_id", partitions=PARTITIONS)
    _step(console, f"created {escape(url)} with {PARTITIONS} partitions", report.seconds["create"])

    with _writer(table, "first") as first, hg.open(url) as other, _writer(other, "second") as second:
        # 1. The first writer stores orders, and they are acknowledged.
        orders = {number: _order(number, "new", "first") for number in range(1, FIRST_ORDERS + 1)}
        with _timed(report, "first writes"):
            first.write(pa.Table.from_pylist(list(orders.values()), schema=_SCHEMA))
            first.flush()
        expected.update(orders)
        report.acknowledged_first = len(orders)
        report.epochs_before = _epochs(table)
        _step(
            console,
            f"the [bold]first[/] writer stored orders 1 to {FIRST_ORDERS:,}: all acknowledged, "
            f"at epochs {report.epochs_before}",
            report.seconds["first writes"],
        )

        # 2. It takes more, some of them new and some changes of old ones, and has not flushed them yet.
        tried = {number: _order(number, "paid", "first") for number in _unflushed_numbers()}
        waiting = {number: first.put(row) for number, row in tried.items()}
        report.unflushed = len(waiting)
        _step(
            console,
            f"the first writer holds {len(waiting)} more orders, [yellow]not flushed[/]: nothing is promised",
        )

        # 3. The second writer takes over, and stores orders of its own.
        with _timed(report, "takeover"):
            second.acquire()
        report.epochs_after = _epochs(other)
        _step(
            console,
            f"the [bold]second[/] writer takes over all partitions: epochs {report.epochs_after}",
            report.seconds["takeover"],
        )
        later = {number: _order(number, "shipped", "second") for number in _second_numbers()}
        gone = list(range(RANGE[0] + 50, RANGE[0] + 60))
        with _timed(report, "second writes"):
            second.write(pa.Table.from_pylist(list(later.values()), schema=_SCHEMA))
            second.delete_many(gone)
            second.flush()
        expected.update(later)
        for number in gone:
            expected.pop(number, None)
        report.acknowledged_second, report.deleted_second = len(later), len(gone)
        _step(
            console,
            f"the second writer stored {len(later):,} orders and deleted {len(gone)}: all acknowledged",
            report.seconds["second writes"],
        )

        # 4. The first wakes up, and is refused.
        _refused(first, waiting, console, report)

    # 5. A reader that knows nothing of all this looks at the table.
    _verify(url, expected, set(tried) | set(gone), console, report)
    _print_samples(url, expected, tried, later, gone, console)
    report.seconds["all"] = time.perf_counter() - began_s


def _refused(first: hg.Writer, waiting: dict[int, Future[None]], console: Console, report: DemoReport) -> None:
    with _timed(report, "refusal"):
        try:
            first.flush()
        except hg.Fenced as error:
            report.fence = str(error)
    refusals = [future.exception(timeout=30) for future in waiting.values()]
    report.refused = sum(isinstance(error, hg.Fenced) and not error.maybe_stored for error in refusals)
    try:
        for number in range(1, 50):
            first.put(_order(number, "lost", "first"))
    except hg.Fenced:
        report.refused_after_fence = True
    if report.fence:
        _step(console, "the first writer flushes, and is [bold red]refused[/]:", report.seconds["refusal"])
        console.print(Panel(Text(report.fence), title="hedgerow.Fenced", title_align="left", border_style="red"))
    else:
        _step(console, "[bold red]the first writer's flush was not refused[/]")
    _step(console, f"{report.refused} of its {report.unflushed} unflushed orders were refused, each one told so")


def _verify(url: str, expected: dict[int, Row], suspects: set[int], console: Console, report: DemoReport) -> None:
    """The table against the dictionary: every key by itself, a range, and everything in order."""
    report.rows_expected = len(expected)
    numbers = sorted(set(expected) | suspects)
    with hg.open(url) as table:
        with _timed(report, "reads by key"):
            by_key = table.get_many(numbers)
        with _timed(report, "range scan"):
            ranged = table.scan(start=RANGE[0], end=RANGE[1]).read_all().to_pylist()
        with _timed(report, "full scan"):
            everything = table.to_arrow().to_pylist()
    report.keys_read, report.rows_read = len(by_key), len(everything)
    found = report.differences
    found.extend(
        f"order {number}: read {row}, expected {expected.get(number)}"
        for number, row in zip(numbers, by_key, strict=True)
        if row != expected.get(number)
    )
    if ranged != [expected[number] for number in sorted(expected) if RANGE[0] <= number < RANGE[1]]:
        found.append(f"the scan from {RANGE[0]} to {RANGE[1]} has other rows than it must")
    if everything != [expected[number] for number in sorted(expected)]:
        found.append("the scan of the whole table has other rows than it must")
    _step(console, f"read {len(by_key):,} orders by key", report.seconds["reads by key"])
    _step(
        console,
        f"scanned orders {RANGE[0]:,} to {RANGE[1]:,}: {len(ranged):,} rows",
        report.seconds["range scan"],
    )
    _step(console, f"scanned the whole table: {len(everything):,} rows", report.seconds["full scan"])


# --- orders -------------------------------------------------------------------------------------------------


def _order(number: int, status: str, writer: str) -> Row:
    cents = (number * 7_919) % 100_000
    return {
        "order_id": number,
        "status": status,
        "amount": decimal.Decimal(cents).scaleb(-2),
        "written_by": writer,
    }


def _unflushed_numbers() -> list[int]:
    """Half of them change orders that are stored, half are new."""
    half = UNFLUSHED_ORDERS // 2
    return [*range(RANGE[0], RANGE[0] + half), *range(FIRST_ORDERS + 1, FIRST_ORDERS + 1 + half)]


def _second_numbers() -> list[int]:
    """Some that the first had changed without flushing, some that nobody touched, some new ones."""
    half = SECOND_ORDERS // 2
    return [
        *range(RANGE[0] + 100, RANGE[0] + 100 + half),
        *range(FIRST_ORDERS + 101, FIRST_ORDERS + 101 + half),
    ]


def _epochs(table: hg.Table) -> list[int]:
    return [partition.epoch for partition in table.inspect().partitions]


@contextlib.contextmanager
def _writer(table: hg.Table, name: str) -> Iterator[hg.Writer]:
    writer = table.writer(name=name, flush_interval_s=_NEVER_S)
    try:
        yield writer
    finally:
        with contextlib.suppress(hg.HedgerowError):
            writer.close(flush=False)


# --- telling ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _timed(report: DemoReport, what: str) -> Iterator[None]:
    began_s = time.perf_counter()
    try:
        yield
    finally:
        report.seconds[what] = time.perf_counter() - began_s


def _step(console: Console, sentence: str, seconds: float | None = None) -> None:
    console.print(f" • {sentence}" + ("" if seconds is None else f" [dim]({seconds * 1000:,.1f} ms)[/]"))


def _print_samples(
    url: str,
    expected: dict[int, Row],
    tried: dict[int, Row],
    later: dict[int, Row],
    gone: list[int],
    console: Console,
) -> None:
    table = Table(title="Some orders, one by one", title_justify="left", title_style="bold")
    for column in ("order", "acknowledged", "refused", "read back"):
        table.add_column(column, justify="right" if column == "order" else "left")
    samples = (17, RANGE[0], gone[0], RANGE[0] + 120, FIRST_ORDERS + 1, FIRST_ORDERS + 2_000)
    with hg.open(url) as reader:
        for number, row in zip(samples, reader.get_many(samples), strict=True):
            accepted = ["first: new"] if number <= FIRST_ORDERS else []
            accepted += ["second: shipped"] if number in later else ["second: deleted"] if number in gone else []
            read = f"{row['written_by']}: {row['status']}" if row else "not there"
            table.add_row(
                str(number),
                ", ".join(accepted) or "-",
                "first: paid" if number in tried else "-",
                Text(read, style="green" if row == expected.get(number) else "bold red"),
            )
    console.print(table)


def _print_report(report: DemoReport, console: Console) -> None:
    refused_s = report.seconds.get("refusal", 0.0)
    lines = Table.grid(padding=(0, 2))
    lines.add_row(
        "acknowledged",
        f"{report.acknowledged_first:,} orders of the first writer; of the second "
        f"{report.acknowledged_second:,} orders and {report.deleted_second} deletes",
    )
    lines.add_row(
        "refused",
        f"{report.refused} of {report.unflushed} orders that the first writer had not flushed, "
        f"in {refused_s * 1000:,.1f} ms",
    )
    lines.add_row("the fence", f"epochs {report.epochs_before} were replaced by {report.epochs_after}")
    lines.add_row(
        "read back",
        f"{report.rows_read:,} rows in a scan, {report.keys_read:,} keys one by one; "
        f"{report.rows_expected:,} rows must be there",
    )
    lines.add_row(
        "time",
        f"{report.seconds.get('all', 0.0):.2f} s in all, "
        f"{report.seconds.get('takeover', 0.0) * 1000:,.1f} ms for the takeover",
    )
    for difference in report.differences[:5]:
        lines.add_row("[bold red]wrong[/]", Text(difference))
    verdict = (
        Text("The table holds exactly the rows that were acknowledged.", style="bold green")
        if report.verified
        else Text("The table is NOT what was acknowledged.", style="bold red")
    )
    console.print()
    console.print(lines)
    console.print(verdict)
