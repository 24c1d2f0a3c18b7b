"""``hedgerow put`` and ``hedgerow delete``: a few rows, or a stream of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import pyarrow as pa
import typer

import hedgerow as hg
from hedgerow.cli.rows import RowParser, lines_of
from hedgerow.cli.session import AsHex, AsJson, Quiet, Session, StoreOptions, Traceback, Url
from hedgerow.cli.values import key_of

__all__ = ["Keys", "delete", "put"]

Keys = Annotated[
    list[str],
    typer.Argument(
        metavar="KEY",
        show_default=False,
        help="Keys; a JSON array for a key of several columns. Put -- before text that begins with a dash.",
    ),
]


def put(
    context: typer.Context,
    url: Url,
    rows: Annotated[
        list[str],
        typer.Argument(
            metavar="ROW",
            show_default=False,
            help="Rows as JSON objects, or - for JSON lines from standard input. Of bytes: KEY VALUE.",
        ),
    ],
    as_hex: AsHex = False,
    options: StoreOptions = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> None:
    """Add rows, or replace those with the same keys.

    When the command ends with exit code 0, every row is durable. In JSON, dates and times are strings in ISO
    format, decimals are numbers or strings, and binary is hex.

    \b
    Examples:
      hedgerow put ./orders '{"order_id": 17, "status": "paid"}' '{"order_id": 18, "status": "new"}'
      hedgerow scan ./orders --json | hedgerow put ./copy -
      hedgerow put ./blobs greeting hello
    """
    session = Session.of(context, options, as_json, quiet)
    with session.open(url) as table:
        count = 0
        with table.writer() as writer:
            for piece in _pieces(table, rows, as_hex):
                writer.write(piece)
                count += piece.num_rows
    session.conclude(f"put {count:,} {'row' if count == 1 else 'rows'}", {"rows": count})


def delete(
    context: typer.Context,
    url: Url,
    keys: Keys,
    as_hex: AsHex = False,
    options: StoreOptions = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> None:
    """Delete the rows with these keys, whether they are there or not.

    When the command ends with exit code 0, every delete is durable.

    \b
    Examples:
      hedgerow delete ./orders 17 18
      hedgerow delete ./lines '["de", 17]'
    """
    session = Session.of(context, options, as_json, quiet)
    with session.open(url) as table:
        fields = [table.schema.field(name) for name in table.key]
        gone = [key_of(text, fields, as_hex=as_hex) for text in keys]
        with table.writer() as writer:
            writer.delete_many(gone)
    session.conclude(f"deleted {len(gone):,} {'key' if len(gone) == 1 else 'keys'}", {"keys": len(gone)})


def _pieces(table: hg.Table, rows: list[str], as_hex: bool) -> Iterator[pa.Table]:
    of_bytes = table.key_value
    required = table.schema.names if of_bytes else table.key
    if rows == ["-"]:
        parser = RowParser(table.schema, required)
        # A pipe hands over what it has, so rows of a slow producer do not wait for a full buffer.
        for lines in lines_of(getattr(sys.stdin.buffer, "read1", sys.stdin.buffer.read)):
            yield parser.table(lines)
    elif of_bytes:
        yield _key_value_rows(table, rows, as_hex)
    else:
        parser = RowParser(table.schema, required, place="row {}")
        yield parser.table([(number, row.encode(errors="surrogateescape")) for number, row in enumerate(rows, 1)])


def _key_value_rows(table: hg.Table, texts: list[str], as_hex: bool) -> pa.Table:
    if len(texts) % 2:
        raise hg.InvalidInput(
            "This table maps bytes to bytes: give a key and a value, as in 'hedgerow put URL KEY VALUE', or "
            "- for JSON lines from standard input."
        )
    fields = [[table.schema.field("key")], [table.schema.field("value")]]
    values = [key_of(text, fields[at % 2], as_hex=as_hex) for at, text in enumerate(texts)]
    return pa.table({"key": values[::2], "value": values[1::2]}, schema=table.schema)
