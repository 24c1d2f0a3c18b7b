"""What ``inspect`` shows: a table's columns, partitions and snapshots."""

from __future__ import annotations

import datetime as dt

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hedgerow.cli.values import text_of
from hedgerow.table.inspect import PartitionReport, SnapshotReport, TableReport

__all__ = ["print_report", "size_text"]


def print_report(report: TableReport, console: Console) -> None:
    """A page for people."""
    partitions = report.partitions
    console.print(Text(text_of(report.url), style="bold"))
    console.print(
        f"table {report.table_id}, manifest {report.manifest}, version {report.version}, "
        f"authority {report.authority}, compactor epoch {report.compactor_epoch}, "
        f"history from manifest {report.floor}",
        style="dim",
        markup=False,
    )
    console.print()
    console.print(_columns(report))
    console.print(_partitions(partitions))
    if report.snapshots:
        console.print(_snapshots(report.snapshots))
    else:
        console.print("No snapshots.")
    console.print()
    live = sum(one.state == "live" for one in partitions)
    files, rows, size_bytes = (
        sum(getattr(one, name) for one in partitions) for name in ("files", "file_rows", "file_bytes")
    )
    console.print(
        f"{len(partitions)} partitions, {live} with a live owner; "
        f"{_plural(files, 'file')} with {_plural(rows, 'row')}, {size_text(size_bytes)}; "
        f"{_plural(len(report.snapshots), 'snapshot')}."
    )


def size_text(size_bytes: float) -> str:
    """Bytes in a unit that can be read.

    >>> size_text(17), size_text(1_500_000)
    ('17 bytes', '1.5 MB')
    """
    if size_bytes < 1000:
        return f"{size_bytes:.0f} bytes"
    for unit in ("kB", "MB", "GB", "TB"):
        size_bytes /= 1000
        if size_bytes < 1000 or unit == "TB":
            break
    return f"{size_bytes:,.1f} {unit}"


def _columns(report: TableReport) -> Table:
    table = _table("Columns", "column", "type", "key")
    for name, type_name in report.columns.items():
        place = f"key {report.key.index(name) + 1}" if name in report.key else ""
        table.add_row(Text(text_of(name)), Text(text_of(type_name)), place)
    return table


def _partitions(partitions: tuple[PartitionReport, ...]) -> Table:
    numbers = ("replay point", "WAL seen", "fences", "files", "rows in files", "bytes")
    table = _table(
        "Partitions", "partition", "epoch", "owner", "state", *numbers, right=("partition", "epoch", *numbers)
    )
    for one in partitions:
        state = "never owned" if one.epoch == 0 else one.state
        table.add_row(
            str(one.partition),
            str(one.epoch),
            Text(text_of(one.owner)),
            Text(state, style="green" if state == "live" else ""),
            f"{one.replay_point:,}",
            f"{one.wal_last_seen:,}",
            f"{one.fences:,}",
            f"{one.files:,}",
            f"{one.file_rows:,}",
            f"{one.file_bytes:,}",
        )
    table.add_section()
    sums = ("fences", "files", "file_rows", "file_bytes")
    totals = [f"{sum(getattr(one, name) for one in partitions):,}" for name in sums]
    table.add_row("total", *[""] * 5, *totals, style="bold")
    return table


def _snapshots(snapshots: tuple[SnapshotReport, ...]) -> Table:
    table = _table("Snapshots", "name", "manifest", "expires", "id", right=("manifest",))
    for one in snapshots:
        table.add_row(Text(text_of(one.name)), str(one.manifest), expiry_text(one.expires_ms), one.id)
    return table


def expiry_text(expires_ms: int, now: dt.datetime | None = None) -> str:
    """When a snapshot ends.

    >>> expiry_text(0)
    'never expires'
    """
    if expires_ms == 0:
        return "never expires"
    try:
        moment = dt.datetime.fromtimestamp(expires_ms / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return "in the far future"
    expired = moment <= (now or dt.datetime.now(dt.UTC))
    return f"{moment:%Y-%m-%d %H:%M:%S}Z{' (expired)' if expired else ''}"


def _table(title: str, *columns: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    return table


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
