"""``hedgerow load``: files into a table, through one writer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

import hedgerow as hg
from hedgerow.cli.columns import names_of
from hedgerow.cli.create import Key, Partitions, new_table
from hedgerow.cli.files import FileFormat, RowFile
from hedgerow.cli.progress import LoadProgress
from hedgerow.cli.report import size_text
from hedgerow.cli.session import AsJson, Quiet, Session, StoreOptions, Traceback, Url

__all__ = ["load"]

BATCH_ROWS = 100_000


def load(
    context: typer.Context,
    url: Url,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="Parquet, CSV, TSV, JSON lines, Arrow or Feather files; text may be compressed (.gz, .zst).",
        ),
    ],
    create: Annotated[
        bool, typer.Option("--create", help="Create the table first, with the columns of the first file.")
    ] = False,
    key: Key = None,
    partitions: Partitions = 8,
    file_format: Annotated[
        FileFormat | None,
        typer.Option("--format", show_default=False, help="What the files are, whatever their endings."),
    ] = None,
    batch_rows: Annotated[int, typer.Option("--batch-rows", min=1, help="Rows handed over at a time.")] = BATCH_ROWS,
    options: StoreOptions = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    traceback: Traceback = False,
) -> None:
    """Load files: add their rows, or replace those with the same keys.

    Values are converted to the table's types where nothing is lost. In CSV an empty field is null, and an
    empty string is written as "". In CSV and JSON lines, binary is hex. When the command ends with exit code
    0, every row is durable; after an error, loading the same files again is safe.

    \b
    Examples:
      hedgerow load ./orders orders-2024.parquet orders-2025.parquet
      hedgerow load ./orders orders.csv.gz --create --key order_id
      hedgerow load s3://shop/events export.txt --format jsonl
    """
    session = Session.of(context, options, as_json, quiet)
    sources = [RowFile(path, file_format) for path in files]
    if not create and key:
        raise hg.InvalidInput("--key belongs to --create; a table that is there has its key already.")
    opened = new_table(session, url, sources[0].schema(), names_of(key), partitions) if create else session.open(url)
    with (
        opened as table,
        LoadProgress(sum(source.size_bytes for source in sources), quiet=session.quiet) as progress,
    ):
        _load(table, sources, batch_rows, progress)
    _close(session, len(sources), progress)


def _load(table: hg.Table, sources: list[RowFile], batch_rows: int, progress: LoadProgress) -> None:
    try:
        with table.writer() as writer:
            for source in sources:
                source.check(table, writer)
            before_bytes = 0
            for source in sources:
                for piece in source.pieces(table, batch_rows):
                    _write(writer, piece.rows, source)
                    progress.advance(piece.rows.num_rows, before_bytes + piece.read_bytes, source.path.name)
                before_bytes += source.size_bytes
                progress.advance(0, before_bytes, source.path.name)
    except hg.InvalidInput as error:
        if not progress.rows:
            raise
        raise hg.InvalidInput(
            f"{error} {progress.rows:,} rows before it were taken and may be stored; loading again replaces them."
        ) from error


def _write(writer: hg.Writer, rows: pa.Table, source: RowFile) -> None:
    try:
        writer.write(rows)
    except hg.InvalidInput as error:
        raise hg.InvalidInput(f"{source.path}: {error}") from error


def _close(session: Session, files: int, progress: LoadProgress) -> None:
    session.conclude(
        f"loaded {progress.rows:,} rows ({size_text(progress.total_bytes)}) from {files} "
        f"{'file' if files == 1 else 'files'} in {progress.elapsed_s:.1f} s: "
        f"{progress.rows_per_s:,.0f} rows/s",
        {
            "rows": progress.rows,
            "files": files,
            "file_bytes": progress.total_bytes,
            "seconds": round(progress.elapsed_s, 6),
            "rows_per_second": round(progress.rows_per_s, 1),
        },
    )
