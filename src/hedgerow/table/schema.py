"""From a user's rows to a table's: columns and types are checked, keys encoded, rows sent to their partitions.

Everything that can be wrong with a row is found here, before anything is buffered or written.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
import zoneinfo
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hedgerow.engine.manifest import TableLayout
from hedgerow.errors import HedgerowError, InvalidInput
from hedgerow.keys import PARTITIONS_MAX, KeyEncoder, partition_of, partitions_of
from hedgerow.sst import DELETE, PUT, SstMeta, encode_sst, read_whole, sst_schema, unique_by_key

__all__ = ["ROW_BYTES_MAX", "TableSchema", "plan_layout"]

ROW_BYTES_MAX = 128 << 20
_RESERVED = {"_key", "_op", "_seq", "_commit_version", "_commit_timestamp", "_change"}
_KEY_VALUE_COLUMNS = pa.schema(
    [pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
)
_ROW_OVERHEAD_BYTES = 64
_FLOAT32_MAX = float(np.finfo(np.float32).max)


def plan_layout(schema: pa.Schema | None, key: Sequence[str] | str | None, partitions: int) -> TableLayout:
    """What a new table will be; ``InvalidInput`` where it cannot be that.

    >>> plan_layout(None, None, 4).key
    ('key',)
    """
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidInput(f"partitions={partitions!r}: give a whole number from 1 to {PARTITIONS_MAX:,}.")
    key_value = schema is None
    if schema is None:
        if key is not None:
            raise InvalidInput("A key was named, but no schema. Give both, or neither for a table of bytes to bytes.")
        schema, key = _KEY_VALUE_COLUMNS, ["key"]
    if not isinstance(schema, pa.Schema):
        raise InvalidInput(f"schema: give a pyarrow.Schema, not {type(schema).__name__}.")
    names = [key] if isinstance(key, str) else list(key or ())
    if not names:
        raise InvalidInput("key: name the column or columns that identify a row, as in key=['order_id'].")
    columns = _plain(schema)
    _check_names(columns)
    missing = [name for name in names if name not in columns.names]
    if missing:
        raise InvalidInput(f"The key column {missing[0]!r} is not in the schema ({', '.join(columns.names)}).")
    if len(set(names)) != len(names):
        raise InvalidInput(f"The key names a column twice: {names}.")
    KeyEncoder([(name, columns.field(name).type) for name in names])  # refuses types that have no order
    for field in columns:
        _check_storable(field)
    return TableLayout(
        schema=columns.serialize().to_pybytes(),
        key=tuple(names),
        partitions=partitions,
        field_ids=tuple(range(1, len(columns) + 1)),
        key_value=key_value,
    )


class TableSchema:
    """A table's columns and key, ready to take rows apart."""

    def __init__(self, layout: TableLayout) -> None:
        self.layout = layout
        self.columns = layout.columns
        self.names = tuple(self.columns.names)
        self.key = layout.key
        self.partitions = layout.partitions
        self.key_value = layout.key_value
        self.encoder = KeyEncoder([(name, self.columns.field(name).type) for name in layout.key])
        self.stored = sst_schema(self.columns)
        self._known = frozenset(self.names)
        self._checks = [(field.name, _check_for(field), field.nullable and field.name not in layout.key)
                        for field in self.columns]  # fmt: skip

    # --- keys -----------------------------------------------------------------------------------------------

    def locate(self, key: Any) -> tuple[int, bytes]:
        """Partition and encoded key."""
        encoded = self.encoder.encode(key)
        return partition_of(encoded, self.partitions), encoded

    def key_columns(self, encoded: bytes) -> dict[str, Any]:
        """The key's columns: all that a delete has to say."""
        values = self.encoder.decode(encoded)
        return dict(zip(self.key, values if len(self.key) > 1 else (values,), strict=True))

    def bound(self, key: Any) -> bytes | None:
        """An end of a range; None is open."""
        return None if key is None else self.encoder.encode_bound(key)

    def check_columns(self, columns: Sequence[str] | None) -> list[str] | None:
        """The columns that a read asks for."""
        if columns is None:
            return None
        if isinstance(columns, str):
            raise InvalidInput(f"columns: give a list, as in columns=[{columns!r}].")
        unknown = [name for name in columns if name not in self._known]
        if unknown:
            raise InvalidInput(f"There is no column {unknown[0]!r}. The table has {', '.join(self.names)}.")
        return list(columns)

    # --- rows -----------------------------------------------------------------------------------------------

    def row(self, row: Mapping[str, Any]) -> tuple[int, bytes, dict[str, Any], int]:
        """Partition, encoded key, checked row and its size."""
        if not isinstance(row, Mapping):
            raise InvalidInput(f"A row is a dictionary of columns, not {type(row).__name__}.")
        if not self._known.issuperset(row):
            unknown = next(name for name in row if name not in self._known)
            raise InvalidInput(f"There is no column {unknown!r}. The table has {', '.join(self.names)}.")
        checked = {}
        size_bytes = _ROW_OVERHEAD_BYTES
        for name, check, nullable in self._checks:
            value = row.get(name)
            if value is None:
                if not nullable:
                    raise InvalidInput(f"The column {name!r} must not be null, and this row has no value for it.")
            else:
                value, weight = check(value)
                size_bytes += weight
            checked[name] = value
        if size_bytes > ROW_BYTES_MAX:
            raise InvalidInput(f"A row of {size_bytes:,} bytes is larger than the limit of {ROW_BYTES_MAX:,}.")
        key = self.key
        encoded = self.encoder.encode(checked[key[0]] if len(key) == 1 else tuple([checked[name] for name in key]))
        return partition_of(encoded, self.partitions), encoded, checked, size_bytes

    def rows(self, table: pa.Table, operation: int = PUT) -> list[tuple[int, pa.Table]]:
        """Rows by partition, each sorted by key with the last row of every key, ready to be buffered."""
        if not table.num_rows:
            self._conform(table, operation)
            return []
        columns = self._conform(table, operation)
        keys = self.encoder.encode_columns([columns[name] for name in self.key])
        count = len(keys)
        arrays = [
            keys,
            pa.array(np.full(count, operation, np.int8)),
            pa.array(np.arange(count, dtype=np.int64)),
            *(
                columns[name] if name in columns else pa.nulls(count, self.columns.field(name).type)
                for name in self.names
            ),
        ]
        whole = pa.Table.from_arrays(arrays, schema=self.stored)
        if whole.nbytes // count > ROW_BYTES_MAX // 64:
            self._check_row_sizes(whole)
        if self.partitions == 1:
            return [(0, unique_by_key(whole, keep="last"))]
        numbers = partitions_of(keys, self.partitions)
        order = np.argsort(numbers, kind="stable")
        edges = np.searchsorted(numbers[order], np.arange(self.partitions + 1))
        return [
            (index, unique_by_key(whole.take(pa.array(order[edges[index] : edges[index + 1]])), keep="last"))
            for index in range(self.partitions)
            if edges[index] < edges[index + 1]
        ]

    def deletes(self, keys: Any) -> list[tuple[int, pa.Table]]:
        """The same for keys to delete: a table with the key's columns, or any iterable of keys."""
        if isinstance(keys, pa.RecordBatch):
            keys = pa.Table.from_batches([keys])
        if not isinstance(keys, pa.Table):
            rows = [self.key_columns(self.encoder.encode(key)) for key in keys]
            types = pa.schema([self.columns.field(name) for name in self.key])
            keys = pa.Table.from_pylist(rows, schema=types)
        return self.rows(keys, DELETE)

    def _conform(self, table: pa.Table, operation: int) -> dict[str, pa.Array]:
        """The table's columns in their declared types; an error names the column."""
        if len(set(table.column_names)) != len(table.column_names):
            raise InvalidInput(f"A column stands twice in the rows: {', '.join(table.column_names)}.")
        unknown = [name for name in table.column_names if name not in self._known]
        if unknown:
            raise InvalidInput(f"There is no column {unknown[0]!r}. The table has {', '.join(self.names)}.")
        needed = self.key if operation == DELETE else self.names
        columns = {}
        for name in needed:
            field = self.columns.field(name)
            if name not in table.column_names:
                if name in self.key or not field.nullable:
                    raise InvalidInput(f"The column {name!r} is missing from the rows, and must not be null.")
                continue
            column = _converted(table.column(name).combine_chunks(), field)
            if column.null_count and (name in self.key or not field.nullable):
                row = pc.index(column.is_null(), True).as_py()
                raise InvalidInput(f"The column {name!r} must not be null, and is in row {row}.")
            columns[name] = column
        return columns

    def _check_row_sizes(self, rows: pa.Table) -> None:
        for at in range(rows.num_rows):
            size_bytes = rows.slice(at, 1).nbytes
            if size_bytes > ROW_BYTES_MAX:
                raise InvalidInput(f"Row {at} has {size_bytes:,} bytes, more than the limit of {ROW_BYTES_MAX:,}.")


def _plain(schema: pa.Schema) -> pa.Schema:
    """The same columns in types that every reader of Parquet agrees on."""
    return pa.schema([pa.field(field.name, _plain_type(field.type, field.name), field.nullable) for field in schema])


def _plain_type(dtype: pa.DataType, name: str) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(dtype):
        return _plain_type(dtype.value_type, name)
    if types.is_large_string(dtype) or types.is_string_view(dtype):
        return pa.string()
    if types.is_large_binary(dtype) or types.is_binary_view(dtype):
        return pa.binary()
    if types.is_large_list(dtype) or types.is_list(dtype):
        return pa.list_(_plain_type(dtype.value_type, name))
    if types.is_struct(dtype):
        return pa.struct([pa.field(f.name, _plain_type(f.type, name), f.nullable) for f in dtype])
    if types.is_null(dtype):
        raise InvalidInput(f"The column {name!r} has the type null. Give it a real type.")
    if types.is_timestamp(dtype) and dtype.tz is not None and not _known_zone(dtype.tz):
        raise InvalidInput(f"The column {name!r} has the time zone {dtype.tz!r}, which is not known here.")
    if types.is_union(dtype) or types.is_interval(dtype) or types.is_run_end_encoded(dtype):
        raise InvalidInput(f"The column {name!r} has the type {dtype}, which Parquet cannot hold.")
    return dtype


def _check_storable(field: pa.Field) -> None:
    """Whether a file can hold this type: better asked now than when the first rows are flushed."""
    nothing = SstMeta(kind="level", table="", partition=0, epoch=0, write_id="")
    try:
        columns = pa.schema([pa.field(field.name, field.type)])
        read_whole(encode_sst(sst_schema(columns).empty_table(), nothing).data, field.name, None, columns)
    except (pa.ArrowException, HedgerowError, OSError, ValueError, OverflowError) as error:
        raise InvalidInput(
            f"The column {field.name!r} has the type {field.type}, which Parquet cannot hold: {error}"
        ) from None


def _known_zone(zone: str) -> bool:
    if re.fullmatch(r"[+-]\d\d:\d\d", zone):
        return True
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _check_names(columns: pa.Schema) -> None:
    if not len(columns):
        raise InvalidInput("The schema has no columns.")
    seen: dict[str, str] = {}
    for name in columns.names:
        if not name or not name.isprintable():
            raise InvalidInput(f"{name!r} is not a name for a column.")
        if name.lower() in _RESERVED:
            raise InvalidInput(f"The column name {name!r} is Hedgerow's own. Rename the column.")
        if name.lower() in seen:
            raise InvalidInput(
                f"The columns {seen[name.lower()]!r} and {name!r} differ only in case, if at all. Rename one."
            )
        seen[name.lower()] = name


def _wrong(field: pa.Field, value: Any, why: str = "is not") -> InvalidInput:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return InvalidInput(f"The column {field.name!r} is of type {field.type}; {shown} ({type(value).__name__}) {why}.")


def _check_for(field: pa.Field) -> Callable[[Any], tuple[Any, int]]:
    """A quick check for one column's values, which also says how many bytes a value takes."""
    dtype, types = field.type, pa.types
    if types.is_integer(dtype):
        bits = dtype.bit_width
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if types.is_signed_integer(dtype) else (0, (1 << bits) - 1)

        def integer(value: Any) -> tuple[Any, int]:
            if type(value) is not int:
                if isinstance(value, bool) or not hasattr(value, "__index__"):
                    raise _wrong(field, value)
                value = value.__index__()
            if not low <= value <= high:
                raise _wrong(field, value, "is out of its range")
            return value, 8

        return integer
    if types.is_string(dtype):

        def text(value: Any) -> tuple[Any, int]:
            if not isinstance(value, str):
                raise _wrong(field, value)
            if not value.isascii():
                try:
                    return value, len(value.encode())
                except UnicodeEncodeError:
                    raise _wrong(field, value, "is not valid Unicode") from None
            return value, len(value)

        return text
    if types.is_binary(dtype):

        def binary(value: Any) -> tuple[Any, int]:
            if type(value) is not bytes:
                if not isinstance(value, bytearray | memoryview):
                    raise _wrong(field, value)
                value = bytes(value)
            return value, len(value)

        return binary
    if types.is_float64(dtype) or types.is_float32(dtype):
        single = types.is_float32(dtype)

        def number(value: Any) -> tuple[Any, int]:
            if type(value) is not float:
                if isinstance(value, bool | str | decimal.Decimal) or not hasattr(value, "__float__"):
                    raise _wrong(field, value)
                value = float(value)
            if single and math.isfinite(value) and abs(value) > _FLOAT32_MAX:
                raise _wrong(field, value, "is out of its range")
            return value, 8

        return number
    if types.is_boolean(dtype):

        def boolean(value: Any) -> tuple[Any, int]:
            if value is not True and value is not False:
                raise _wrong(field, value)
            return value, 1

        return boolean
    if types.is_timestamp(dtype) or types.is_date(dtype):
        return _date_check(field)
    return _arrow_check(field)


def _date_check(field: pa.Field) -> Callable[[Any], tuple[Any, int]]:
    general = _arrow_check(field)
    dates = pa.types.is_date(field.type)

    def date(value: Any) -> tuple[Any, int]:
        if isinstance(value, dt.datetime):
            if dates:
                raise _wrong(field, value, "has a time of day")
            if (value.tzinfo is None) != (field.type.tz is None):
                need = "needs a time zone" if field.type.tz else "has a time zone, and the column none"
                raise _wrong(field, value, need)
        elif isinstance(value, dt.date) and not dates:
            raise _wrong(field, value, "has no time of day")
        return general(value)

    return date


def _arrow_check(field: pa.Field) -> Callable[[Any], tuple[Any, int]]:
    """For every other type, Arrow itself is asked."""
    nested = pa.types.is_nested(field.type)

    def general(value: Any) -> tuple[Any, int]:
        try:
            array = pa.array([value], field.type)
            if pa.types.is_temporal(field.type):
                # Arrow cuts off what does not fit the unit; a safe cast from the value's own type refuses instead.
                pa.array([value]).cast(field.type, safe=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise _wrong(field, value, f"does not fit ({error})") from None
        # Lists and structs are taken as they are now: what the caller does to its own later is not a write.
        return (array[0].as_py() if nested else value), max(8, array.nbytes)

    return general


def _converted(column: pa.Array, field: pa.Field) -> pa.Array:
    """A column in its declared type, where that loses nothing and guesses nothing."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type == field.type:
        return column
    if not _compatible(column.type, field.type):
        raise InvalidInput(
            f"The column {field.name!r} is of type {field.type}; the rows have {column.type}. Cast it first."
        )
    try:
        converted = column.cast(field.type, safe=True)
        if pa.types.is_floating(column.type) and column.type.bit_width > field.type.bit_width:
            _expect_the_same(column, converted, field)
        return converted
    except pa.ArrowException as error:
        raise InvalidInput(
            f"The column {field.name!r} is of type {field.type}, and the rows' {column.type} does not fit: {error}"
        ) from None


def _expect_the_same(column: pa.Array, narrowed: pa.Array, field: pa.Field) -> None:
    """Arrow's safe cast does not look at what a narrower float loses."""
    before, after = column.drop_null().to_numpy(), narrowed.drop_null().to_numpy().astype(np.float64)
    if not np.array_equal(before, after, equal_nan=True):
        raise InvalidInput(
            f"The column {field.name!r} is of type {field.type}, which cannot hold these numbers exactly. Cast it first."
        )


def _compatible(given: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    families: tuple[Callable[[pa.DataType], bool], ...] = (
        types.is_integer,
        types.is_decimal,
        types.is_date,
        types.is_time,
        types.is_duration,
        types.is_nested,
        lambda t: types.is_string(t) or types.is_large_string(t) or types.is_string_view(t),
        lambda t: (
            types.is_binary(t) or types.is_large_binary(t) or types.is_binary_view(t) or types.is_fixed_size_binary(t)
        ),
    )
    if types.is_null(given) or any(family(given) and family(wanted) for family in families):
        return True
    if types.is_timestamp(given) and types.is_timestamp(wanted):
        return bool((given.tz is None) == (wanted.tz is None))
    return bool(types.is_floating(wanted) and (types.is_floating(given) or types.is_integer(given)))
