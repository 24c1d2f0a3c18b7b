"""``hedgerow get``, ``hedgerow scan`` and ``hedgerow inspect``."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import typer

import hedgerow as hg
from hedgerow.cli.columns import names_of
from hedgerow.cli.report import print_report
from hedgerow.cli.rows import json_lines
from hedgerow.cli.session import (
    AsHex,
    AsJson,
    Quiet,
    Session,
    StoreOptions,
    Traceback,
    Url,
    console_of,
    print_json,
)
from hedgerow.cli.show import RowTable, bytes_text
from hedgerow.cli.values import key_of, text_of
from hedgerow.cli.write import Keys

__all__ = ["get", "inspect", "scan"]

_PRINTED_ROWS = 1_000


def get(
    context: typer.Context,
    url: Url,
    keys: Keys,
    as_hex: AsHex = False,
    options: StoreOptions = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> None:
    """Print the rows with these keys.

    A key is read as its column's type says: whole numbers, text, dates and times in ISO format, decimals.
    Keys that are not there are named on standard error, and the exit code is 1. Of a table of bytes, the
    values alone are printed.

    \b
    Examples:
      hedgerow get ./orders 17 18
      hedgerow get ./lines '["de", 17]' --json
      hedgerow get ./readings 2025-03-31T12:00:00Z
    """
    session = Session.of(context, options, as_json, quiet)
    with session.open(url) as table:
        fields = [table.schema.field(name) for name in table.key]
        wanted = [key_of(text, fields, as_hex=as_hex) for text in keys]
        rows = table.get_many(wanted)
        found = [_whole(row, key) for row, key in zip(rows, wanted, strict=True) if row is not None]
        of_bytes = table.key_value
        batch = pa.RecordBatch.from_pylist(found, schema=table.schema)
    if session.json:
        print_json(json_lines(batch))
    elif of_bytes:
        for row in found:
            print(row["value"].hex() if as_hex else bytes_text(row["value"]))
    elif found:
        shown = RowTable(batch.schema)
        shown.add(batch)
        shown.finish()
    missing = [text for text, row in zip(keys, rows, strict=True) if row is None]
    for text in missing:
        print(f"hedgerow: not found: {text_of(text)}", file=sys.stderr)
    if missing:
        raise typer.Exit(1)


def scan(
    context: typer.Context,
    url: Url,
    start: Annotated[
        str | None,
        typer.Option("--start", metavar="KEY", show_default=False, help="The first key, if it is there."),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--end", metavar="KEY", show_default=False, help="Stop before this key.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", metavar="A,B", show_default=False, help="Only these columns, in this order."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=0, show_default=False, help="At most so many rows."),
    ] = None,
    as_hex: AsHex = False,
    options: StoreOptions = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> None:
    """Print rows in the order of their keys.

    Rows are printed as they are read, so a table of any size can be scanned. Of a key of several columns, a
    bound may be a JSON array with the first of them.

    \b
    Examples:
      hedgerow scan ./orders --start 100 --end 200
      hedgerow scan ./lines --start '["de"]' --end '["df"]' --columns region,amount
      hedgerow scan ./orders --json | head -3
    """
    session = Session.of(context, options, as_json, quiet)
    chosen = None if columns is None else names_of(columns)
    if chosen == []:
        raise hg.InvalidInput("--columns: name at least one column.")
    with session.open(url) as table:
        fields = [table.schema.field(name) for name in table.key]
        low, high = (
            None if text is None else key_of(text, fields, as_hex=as_hex, prefix=True) for text in (start, end)
        )
        reader = table.scan(start=low, end=high, columns=chosen)
        output = None if session.json else RowTable(reader.schema, binary_as_text=table.key_value and not as_hex)
        left = limit
        for batch in _slices(reader):
            rows = batch if left is None else batch.slice(0, left)
            if left is not None:
                left -= rows.num_rows
            if output is not None:
                output.add(rows)
            else:
                print_json(json_lines(rows))
            if left == 0:
                break
        if output is not None:
            output.finish()


def inspect(
    context: typer.Context,
    url: Url,
    options: StoreOptions = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> None:
    """Show columns, partitions, owners, files and snapshots.

    For every partition: the epoch of its owner, whether that owner may still be writing, the replay point
    (rows up to there are in files, later ones in the WAL), and its files.

    \b
    Examples:
      hedgerow inspect ./orders
      hedgerow inspect s3://shop/orders --json
    """
    session = Session.of(context, options, as_json, quiet)
    with session.open(url) as table:
        report = table.inspect()
    if session.json:
        print_json(msgspec.json.encode(report) + b"\n")
    else:
        print_report(report, console_of())


def _whole(row: Any, key: Any) -> dict[str, Any]:
    """A table of bytes answers with the value alone."""
    return row if isinstance(row, dict) else {"key": key, "value": row}


def _slices(reader: pa.RecordBatchReader) -> Any:
    """Small pieces, so that the first rows are on the screen before the last ones are formatted."""
    for batch in reader:
        for at in range(0, batch.num_rows, _PRINTED_ROWS):
            yield batch.slice(at, _PRINTED_ROWS)
