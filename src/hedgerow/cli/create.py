"""``hedgerow create``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

import hedgerow as hg
from hedgerow.cli.columns import names_of, schema_of
from hedgerow.cli.files import RowFile
from hedgerow.cli.session import AsJson, Quiet, Session, StoreOptions, Traceback, Url

__all__ = ["Key", "Partitions", "create", "new_table"]

Key = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        metavar="COLUMN",
        show_default=False,
        help="A column that identifies a row. Repeat it, or use commas, for a key of several columns.",
    ),
]
Partitions = Annotated[int, typer.Option("--partitions", help="How many owners can write at the same time.")]


def create(
    context: typer.Context,
    url: Url,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="NAME:TYPE",
            show_default=False,
            help="Name and Arrow type of a column, and 'not null' where it must not be. Repeatable.",
        ),
    ] = None,
    key: Key = None,
    schema_from: Annotated[
        Path | None,
        typer.Option(
            "--schema-from",
            metavar="FILE",
            show_default=False,
            help="Take the columns of a Parquet, CSV, JSON lines or Arrow file instead.",
        ),
    ] = None,
    partitions: Partitions = 8,
    options: StoreOptions = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> None:
    """Create a table.

    Types are Arrow's: int64, string, double, bool, binary, date, timestamp, timestamp[us, tz=UTC],
    decimal(10,2), list<string> and so on. Without columns, the table maps bytes to bytes.

    \b
    Examples:
      hedgerow create ./orders --column order_id:int64 --column status:string --key order_id
      hedgerow create s3://shop/lines --schema-from lines.parquet --key order_id,line --partitions 16
      hedgerow create file:///var/cache/blobs
    """
    session = Session.of(context, options, as_json, quiet)
    if column and schema_from:
        raise hg.InvalidInput("Give --column or --schema-from, not both.")
    schema = RowFile(schema_from).schema() if schema_from else schema_of(column) if column else None
    with new_table(session, url, schema, names_of(key), partitions) as table:
        shape = f"{len(table.schema)} columns, key {', '.join(table.key)}" if schema else "bytes to bytes"
        session.conclude(
            f"created {table.url}: {shape}, {table.partitions} partitions",
            {"url": table.url, "key": table.key, "partitions": table.partitions,
             "columns": {field.name: str(field.type) for field in table.schema}},
        )  # fmt: skip


def new_table(session: Session, url: str, schema: pa.Schema | None, key: list[str], partitions: int) -> hg.Table:
    """A table with these columns, or one of bytes to bytes."""
    if schema is None and key:
        raise hg.InvalidInput("--key names columns, and there are none. Give --column or --schema-from as well.")
    if schema is not None and not key:
        raise hg.InvalidInput(
            f"Give --key with the column or columns that identify a row; there are {', '.join(schema.names)}."
        )
    return hg.create(
        url,
        schema=schema,
        key=key or None,
        partitions=partitions,
        options=session.options or None,
        refresh_interval_s=None,
    )
