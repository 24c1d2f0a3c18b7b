"""Files with rows in them: Parquet, CSV, JSON lines and Arrow, read piece by piece.

A ``RowFile`` knows its format by its ending, or is told. Compressed CSV and JSON lines (``.gz``, ``.zst``,
``.bz2``, ``.lz4``) are read as they are. Everything that can be wrong with a file is an ``InvalidInput`` that
names it.
"""

from __future__ import annotations

import contextlib
import csv
import enum
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import hedgerow as hg
from hedgerow.cli.rows import RowParser, inferred_schema, lines_of
from hedgerow.cli.values import Unfit, array_of, shown, value_of_text

__all__ = ["FileFormat", "Piece", "RowFile"]

_CSV_BLOCK_BYTES = 8 << 20
_JSON_CHUNK_BYTES = 8 << 20
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}


class FileFormat(enum.StrEnum):
    """How rows are written down in a file."""

    PARQUET = "parquet"
    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"
    ARROW = "arrow"


_ENDINGS = {
    ".parquet": FileFormat.PARQUET,
    ".pq": FileFormat.PARQUET,
    ".csv": FileFormat.CSV,
    ".tsv": FileFormat.TSV,
    ".jsonl": FileFormat.JSONL,
    ".ndjson": FileFormat.JSONL,
    ".json": FileFormat.JSONL,
    ".arrow": FileFormat.ARROW,
    ".arrows": FileFormat.ARROW,
    ".ipc": FileFormat.ARROW,
    ".feather": FileFormat.ARROW,
}


class Piece(msgspec.Struct, frozen=True):
    """Some rows of a file, and how many of its bytes were read for them and those before."""

    rows: pa.Table
    read_bytes: int


class RowFile:
    """A file with rows, its format and size known; ``InvalidInput`` where there is no such thing."""

    def __init__(self, path: Path, file_format: FileFormat | None = None) -> None:
        self.path = path
        with self._problems():
            if path.is_dir():
                raise hg.InvalidInput(f"{path} is a folder. Name the files in it.")
            self.size_bytes = path.stat().st_size
        self.compression = _COMPRESSIONS.get(path.suffix.lower())
        self.format = file_format or self._known_by_ending()
        if self.size_bytes == 0:
            raise hg.InvalidInput(f"{path} is empty: there is nothing in it, not even names of columns.")
        if self.compression and self.format in (FileFormat.PARQUET, FileFormat.ARROW):
            raise hg.InvalidInput(f"{path}: {self.format} is compressed inside; unpack the file first.")

    def schema(self) -> pa.Schema:
        """The file's own columns; those of CSV and JSON lines are taken from its beginning."""
        with self._problems():
            if self.format is FileFormat.PARQUET:
                return pyarrow.parquet.read_schema(self.path)
            if self.format is FileFormat.ARROW:
                with pa.OSFile(str(self.path)) as raw:
                    return _arrow_reader(raw).schema
            with self._opened() as (stream, _):
                if self.format is FileFormat.JSONL:
                    lines = next(filter(None, lines_of(self._json_stream(stream).read)), None)
                    if lines is None:
                        raise hg.InvalidInput("there are no rows in it, so its columns cannot be told.")
                    return inferred_schema(lines)
                return self._csv_reader(stream, {}).schema

    def check(self, table: hg.Table, writer: hg.Writer) -> None:
        """Refuse a file whose columns are not the table's, before any of its rows is written."""
        if self.format is FileFormat.JSONL:
            return  # every line is checked when its turn comes: a line may leave out columns
        with self._problems():
            if self.format in (FileFormat.CSV, FileFormat.TSV):
                names = self._csv_names()
                known = [field if field.name in names else None for field in table.schema]
                unknown = [pa.field(name, pa.string()) for name in names if name not in table.schema.names]
                schema = pa.schema([*filter(None, known), *unknown])
                if len(set(names)) != len(names):
                    raise hg.InvalidInput(f"a column stands twice in its first line: {', '.join(names)}.")
            else:
                schema = self.schema()
            writer.write(schema.empty_table())

    def pieces(self, table: hg.Table, batch_rows: int) -> Iterator[Piece]:
        """The rows, at most ``batch_rows`` at a time; what is text in the file comes in the table's types."""
        read = {
            FileFormat.PARQUET: self._parquet_pieces,
            FileFormat.ARROW: self._arrow_pieces,
            FileFormat.JSONL: self._json_pieces,
        }.get(self.format, self._csv_pieces)
        with self._problems():
            for piece in read(table, batch_rows):
                for at in range(0, piece.rows.num_rows, batch_rows):
                    yield Piece(piece.rows.slice(at, batch_rows), piece.read_bytes)

    # --- formats --------------------------------------------------------------------------------------------

    def _parquet_pieces(self, table: hg.Table, batch_rows: int) -> Iterator[Piece]:
        with pyarrow.parquet.ParquetFile(self.path) as file:
            total, seen = max(1, file.metadata.num_rows), 0
            for batch in file.iter_batches(batch_size=batch_rows):
                seen += batch.num_rows
                yield Piece(pa.Table.from_batches([batch]), self.size_bytes * seen // total)

    def _arrow_pieces(self, table: hg.Table, batch_rows: int) -> Iterator[Piece]:
        with pa.memory_map(str(self.path)) as raw:
            reader = _arrow_reader(raw)
            if isinstance(reader, pa.ipc.RecordBatchFileReader):
                count = reader.num_record_batches
                for at in range(count):
                    rows = pa.Table.from_batches([reader.get_batch(at)])
                    yield Piece(rows, self.size_bytes * (at + 1) // count)
            else:
                for batch in reader:
                    yield Piece(pa.Table.from_batches([batch]), raw.tell())

    def _json_pieces(self, table: hg.Table, batch_rows: int) -> Iterator[Piece]:
        parser = RowParser(table.schema, table.key)
        with self._opened() as (stream, raw):
            for lines in lines_of(self._json_stream(stream).read, _JSON_CHUNK_BYTES):
                for at in range(0, len(lines), batch_rows):
                    yield Piece(parser.table(lines[at : at + batch_rows]), raw.tell())

    def _csv_pieces(self, table: hg.Table, batch_rows: int) -> Iterator[Piece]:
        fields = {field.name: field for field in table.schema}
        column_types = {name: field.type if _csv_reads(field.type) else pa.string() for name, field in fields.items()}
        with self._opened() as (stream, raw):
            for batch in self._csv_reader(stream, column_types):
                columns = {
                    name: _of_texts(column, fields[name])
                    if name in fields and column.type != fields[name].type
                    else column
                    for name, column in zip(batch.schema.names, batch.columns, strict=True)
                }
                yield Piece(pa.table(columns), raw.tell())

    def _csv_reader(self, stream: Any, column_types: dict[str, pa.DataType]) -> Any:
        return pyarrow.csv.open_csv(
            stream,
            read_options=pyarrow.csv.ReadOptions(block_size=_CSV_BLOCK_BYTES),
            parse_options=pyarrow.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            # An empty field is null, an empty string in quotes is one. "NA" is a word like every other.
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=column_types,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _csv_names(self) -> list[str]:
        with self._opened() as (stream, _):
            text = io.TextIOWrapper(io.BufferedReader(_Readable(stream)), encoding="utf-8-sig", newline="")
            return next(csv.reader(text, delimiter=self._delimiter), [])

    @property
    def _delimiter(self) -> str:
        return "\t" if self.format is FileFormat.TSV else ","

    def _json_stream(self, stream: Any) -> Any:
        buffered = io.BufferedReader(_Readable(stream))
        if buffered.peek(64).lstrip()[:1] == b"[":
            raise hg.InvalidInput("it holds a JSON array. Give JSON lines: one object on each line, without brackets.")
        return buffered

    # --- opening, and what can go wrong ---------------------------------------------------------------------

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[Any, Any]]:
        """The file's text, unpacked, and the file itself, which knows how far it was read."""
        with pa.OSFile(str(self.path)) as raw:
            yield (pa.CompressedInputStream(raw, self.compression) if self.compression else raw), raw

    @contextlib.contextmanager
    def _problems(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise hg.InvalidInput(f"There is no file {self.path}.") from None
        except hg.InvalidInput as error:
            text = str(error)
            raise hg.InvalidInput(text if text.startswith(str(self.path)) else f"{self.path}: {text}") from None
        except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error) as error:
            raise hg.InvalidInput(f"{self.path}: {self._reason(error)}") from error

    def _reason(self, error: Exception) -> str:
        if isinstance(error, OSError) and error.strerror:
            return f"{error.strerror}."
        text = " ".join(str(error).split()) or type(error).__name__
        if found := re.match(r"In CSV column #(\d+): ", text):
            with contextlib.suppress(Exception):
                text = f"the column {self._csv_names()[int(found[1])]!r}: {text[found.end() :]}"
        return text if len(text) <= 300 else text[:297] + "..."

    def _known_by_ending(self) -> FileFormat:
        inner = Path(self.path.stem) if self.compression else self.path
        found = _ENDINGS.get(inner.suffix.lower())
        if found is None:
            raise hg.InvalidInput(
                f"{self.path}: the ending does not tell the format. Known are {', '.join(_ENDINGS)}; or give "
                f"--format with one of {', '.join(FileFormat)}."
            )
        return found


class _Readable(io.RawIOBase):
    """An Arrow stream as a file of Python's."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data: bytes = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _arrow_reader(raw: Any) -> Any:
    """The file format where its magic bytes are, else the streaming format."""
    magic = raw.read(6)
    raw.seek(0)
    if magic[:4] == b"FEA1":
        raise hg.InvalidInput("this is Feather version 1. Write it again as version 2, or as Parquet.")
    return pa.ipc.open_file(raw) if magic == b"ARROW1" else pa.ipc.open_stream(raw)


def _csv_reads(dtype: pa.DataType) -> bool:
    """Types that Arrow's reader of CSV takes as they are; the others are read as text and then converted."""
    types = pa.types
    if types.is_timestamp(dtype):
        return dtype.unit in ("us", "ns")
    plain = (types.is_integer, types.is_float32, types.is_float64, types.is_boolean, types.is_string,
             types.is_decimal128, types.is_decimal256, types.is_date)  # fmt: skip
    return any(test(dtype) for test in plain)


def _of_texts(column: pa.Array, field: pa.Field) -> pa.Array:
    texts: Sequence[str | None] = column.to_pylist()
    values = [None if text is None else value_of_text(text, field.type) for text in texts]
    try:
        return array_of(values, field.type)
    except Unfit:
        for text, value in zip(texts, values, strict=True):
            try:
                array_of([value], field.type)
            except Unfit as error:
                sentence = f"the column {field.name!r} is of type {field.type}; {shown(text)} {error}."
                raise hg.InvalidInput(sentence) from None
        raise
