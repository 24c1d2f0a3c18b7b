"""Rows as JSON: lines of text to a table's columns, and back.

A row that does not fit is named by its line, so that it can be found in a file of millions.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

import hedgerow as hg
from hedgerow.cli.values import Unfit, array_of, json_values, shown

__all__ = ["LINE_BYTES_MAX", "RowParser", "inferred_schema", "json_lines", "lines_of"]

LINE_BYTES_MAX = 256 << 20
CHUNK_BYTES = 1 << 20
_ENCODER = msgspec.json.Encoder()


class RowParser:
    """Makes a table's rows of JSON objects.

    >>> parser = RowParser(pa.schema([("id", pa.int64()), ("name", pa.string())]), ("id",))
    >>> parser.table([(1, b'{"id": 7, "name": "hazel"}')]).to_pylist()
    [{'id': 7, 'name': 'hazel'}]
    """

    def __init__(self, schema: pa.Schema, key: Sequence[str], *, place: str = "line {}") -> None:
        self._schema = schema
        self._required = {field.name for field in schema if field.name in key or not field.nullable}
        self._known = frozenset(schema.names)
        self._place = place
        self._decode = _decoder(exact=any(map(_has_decimals, schema.types)))

    def table(self, lines: Sequence[tuple[int, bytes]]) -> pa.Table:
        """Numbered lines as rows; ``InvalidInput`` names the first line that is wrong."""
        numbers = [number for number, _ in lines]
        rows = [self._row(number, line) for number, line in lines]
        columns = [self._column(field, [row.get(field.name) for row in rows], numbers) for field in self._schema]
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _row(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            row = self._decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._wrong(number, f"{_excerpt(line)} is not JSON: {error}") from None
        if type(row) is not dict:
            raise self._wrong(number, f"a row is a JSON object with its columns, not {_excerpt(line)}")
        if not self._known.issuperset(row):
            unknown = next(name for name in row if name not in self._known)
            raise self._wrong(number, f"there is no column {unknown!r}; the table has {', '.join(self._schema.names)}")
        return row

    def _column(self, field: pa.Field, values: list[Any], numbers: Sequence[int]) -> pa.Array:
        if field.name in self._required and None in values:
            raise self._wrong(
                numbers[values.index(None)], f"the column {field.name!r} is missing or null, and must not be"
            )
        try:
            return array_of(values, field.type)
        except Unfit as error:
            for number, value in zip(numbers, values, strict=True):
                try:
                    array_of([value], field.type)
                except Unfit as found:
                    sentence = f"the column {field.name!r} is of type {field.type}; {shown(value)} {found}"
                    raise self._wrong(number, sentence) from None
            raise hg.InvalidInput(f"The column {field.name!r} is of type {field.type}; a value {error}.") from None

    def _wrong(self, number: int, sentence: str) -> hg.InvalidInput:
        return hg.InvalidInput(f"{self._place.format(number)}: {sentence}.")


def lines_of(read: Callable[[int], bytes], chunk_bytes: int = CHUNK_BYTES) -> Iterator[list[tuple[int, bytes]]]:
    """Numbered lines that are not blank, in groups as they come: a slow pipe is not held up."""
    rest, number = b"", 1
    while chunk := read(chunk_bytes):
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            rest += chunk
            if len(rest) > LINE_BYTES_MAX:
                raise hg.InvalidInput(f"line {number} is longer than {LINE_BYTES_MAX:,} bytes.")
            continue
        lines = (rest + head).split(b"\n")
        rest = tail
        yield [(at, line) for at, line in enumerate(lines, number) if not line.isspace() and line]
        number += len(lines)
    if rest.strip():
        yield [(number, rest)]


def inferred_schema(lines: Iterable[tuple[int, bytes]]) -> pa.Schema:
    """The columns of rows as they are in JSON: strings stay strings, whatever they look like.

    >>> inferred_schema([(1, b'{"id": 7}'), (2, b'{"id": 8, "name": "hazel"}')]).names
    ['id', 'name']
    """
    columns: dict[str, list[Any]] = {}
    decode = _decoder(exact=False)
    for number, line in lines:
        try:
            row = decode(line)
        except msgspec.DecodeError as error:
            raise hg.InvalidInput(f"line {number}: {_excerpt(line)} is not JSON: {error}.") from None
        if type(row) is not dict:
            raise hg.InvalidInput(f"line {number}: a row is a JSON object with its columns, not {_excerpt(line)}.")
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    fields = []
    for name, values in columns.items():
        try:
            fields.append(pa.field(name, pa.array(values).type))
        except (pa.ArrowException, OverflowError) as error:
            reason = " ".join(str(error).split())
            raise hg.InvalidInput(f"The column {name!r} holds values of several kinds: {reason}") from None
    return pa.schema(fields)


def json_lines(batch: pa.RecordBatch) -> bytes:
    """Rows as JSON lines.

    >>> json_lines(pa.record_batch({"id": [7], "name": ["hazel"]}))
    b'{"id":7,"name":"hazel"}\\n'
    """
    names = batch.schema.names
    columns = [json_values(column) for column in batch.columns]
    return _ENCODER.encode_lines([dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)])


def _decoder(*, exact: bool) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(float_hook=decimal.Decimal if exact else None).decode


def _has_decimals(dtype: pa.DataType) -> bool:
    return pa.types.is_decimal(dtype) or any(_has_decimals(dtype.field(at).type) for at in range(dtype.num_fields))


def _excerpt(line: bytes) -> str:
    return shown(line.strip().decode(errors="replace"))
