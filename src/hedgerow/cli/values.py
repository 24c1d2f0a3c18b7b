"""Between text and a table's types, in both directions.

Theory of operation. What comes in is JSON: numbers, strings, booleans, lists, objects. A column says what it
takes; a value of another kind is refused, never guessed at, and one that would lose digits is refused as
well:

===================  =================================================================================
integers             JSON integers
floats               JSON numbers
decimals             JSON numbers, or strings (``"12.50"``)
dates and times      ISO 8601 in strings; with a zone exactly where the column has one
durations            ISO 8601 in strings (``"PT1.5S"``)
binary               hex in strings
lists, structs,      arrays, objects, and objects or arrays of pairs
maps
===================  =================================================================================

A key on the command line is bare text, and becomes such a value first. What goes out follows the same table,
so that printed rows can be read again. Whole columns are converted at once.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import hedgerow as hg

__all__ = ["Unfit", "array_of", "json_values", "key_of", "shown", "text_of", "value_of_text"]

types = pa.types
_INTEGER = re.compile(r"[+-]?\d+")
_DAY = "1970-01-01T"


class Unfit(ValueError):
    """A value is not one of its column's; the message says why, to go after the value."""


# --- in -----------------------------------------------------------------------------------------------------


def array_of(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    """JSON values as a column; ``Unfit`` where one is not of the type.

    >>> array_of(["12.50", None, 3], pa.decimal128(10, 2)).to_pylist()
    [Decimal('12.50'), None, Decimal('3.00')]
    """
    wanted, expected, build = _recipe(dtype)
    if not wanted.issuperset(set(map(type, values))):
        raise Unfit(f"is not {expected}")
    try:
        return build(values, dtype)
    except (pa.ArrowException, OverflowError, msgspec.ValidationError) as error:
        raise Unfit(f"does not fit ({_brief(error)})") from None
    except ValueError as error:
        raise error if isinstance(error, Unfit) else Unfit(f"is not {expected}") from None


def value_of_text(text: str, dtype: pa.DataType, *, as_hex: bool = True) -> Any:
    """Bare text, from a command line or a CSV file, as the JSON value that it stands for.

    >>> value_of_text("17", pa.int64()), value_of_text("17", pa.string())
    (17, '17')
    """
    if types.is_integer(dtype) and _INTEGER.fullmatch(text):
        return int(text)
    if types.is_floating(dtype):
        try:
            return float(text)
        except ValueError:
            return text
    if types.is_boolean(dtype):
        return {"true": True, "false": False}.get(text.lower(), text)
    if _is_bytes(dtype) and not as_hex:
        return text.encode(errors="surrogateescape").hex()
    if types.is_nested(dtype):
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text
    return text


def key_of(text: str, fields: Sequence[pa.Field], *, as_hex: bool = False, prefix: bool = False) -> Any:
    """A key from the command line: bare text, or a JSON array for a key of several columns.

    With ``prefix`` the array may leave out the last columns, and bare text is the first column's value.

    >>> key_of("17", [pa.field("id", pa.int64())])
    17
    >>> key_of('["de", 17]', [pa.field("region", pa.string()), pa.field("id", pa.int64())])
    ('de', 17)
    """
    if len(fields) == 1:
        return _key_value(value_of_text(text, fields[0].type, as_hex=as_hex), fields[0], text)
    names = ", ".join(field.name for field in fields)
    if not text.lstrip().startswith("["):
        if prefix:
            return (_key_value(value_of_text(text, fields[0].type, as_hex=as_hex), fields[0], text),)
        raise hg.InvalidInput(
            f"The key has the columns {names}: give a JSON array with their values, not {shown(text)}."
        )
    try:
        parts = msgspec.json.Decoder(list, float_hook=decimal.Decimal).decode(text)
    except msgspec.DecodeError as error:
        raise hg.InvalidInput(f"{shown(text)} is not a JSON array of a key's values ({names}): {error}.") from None
    if not parts or len(parts) > len(fields) or (len(parts) < len(fields) and not prefix):
        few = "1 to " if prefix else ""
        raise hg.InvalidInput(f"{shown(text)}: the key takes {few}{len(fields)} values ({names}), not {len(parts)}.")
    return tuple(
        _key_value(_hexed(part, field.type, as_hex), field, part) for part, field in zip(parts, fields, strict=False)
    )


def _key_value(value: Any, field: pa.Field, typed: Any) -> Any:
    """What the library takes as a key: a Python value, or NumPy's where only that is fine enough."""
    if value is None:
        raise hg.InvalidInput(f"The key column {field.name!r} is null; a key is never null.")
    if types.is_floating(field.type) and isinstance(value, float):
        return value
    try:
        scalar = array_of([value], field.type)[0]
    except Unfit as error:
        raise hg.InvalidInput(
            f"The key column {field.name!r} is of type {field.type}; {shown(typed)} {error}."
        ) from None
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        number = scalar.value
        return np.timedelta64(number, "ns") if types.is_duration(field.type) else np.datetime64(number, field.type.unit)


def _hexed(value: Any, dtype: pa.DataType, as_hex: bool) -> Any:
    return value.encode().hex() if _is_bytes(dtype) and not as_hex and isinstance(value, str) else value


_Build = Callable[[Sequence[Any], pa.DataType], pa.Array]
_NULL = type(None)


def _recipe(dtype: pa.DataType) -> tuple[set[type], str, _Build]:
    """The kinds of JSON values that a type takes, what to call them, and how a column of it is made."""
    if types.is_integer(dtype):
        return {int, _NULL}, "a whole number", _plain
    if types.is_floating(dtype):
        return {int, float, decimal.Decimal, _NULL}, "a number", _floats
    if types.is_boolean(dtype):
        return {bool, _NULL}, "true or false", _plain
    if types.is_string(dtype) or types.is_large_string(dtype):
        return {str, _NULL}, "a string", _plain
    if _is_bytes(dtype):
        return {str, _NULL}, "binary in hex, two digits for each byte", _bytes
    if types.is_decimal(dtype):
        return {int, decimal.Decimal, str, _NULL}, "a decimal number", _decimals
    if types.is_date(dtype):
        return {str, _NULL}, "a date in ISO format, like 2025-03-31", _parsed
    if types.is_timestamp(dtype):
        zone = "Z or an offset like +02:00 at its end" if dtype.tz else "no zone"
        return {str, _NULL}, f"a time in ISO format, like 2025-03-31T12:00:00, with {zone}", _timestamps
    if types.is_time(dtype):
        return {str, _NULL}, "a time of day in ISO format, like 12:00:00", _times
    if types.is_duration(dtype):
        return {str, _NULL}, "a duration in ISO format, like PT1.5S", _durations
    if types.is_map(dtype):
        return {dict, list, _NULL}, "an object", _maps
    if types.is_list(dtype) or types.is_large_list(dtype) or types.is_fixed_size_list(dtype):
        return {list, _NULL}, "an array", _lists
    if types.is_struct(dtype):
        return {dict, _NULL}, "an object", _structs
    raise hg.InvalidInput(f"Values of type {dtype} cannot be given as text. Load them from Parquet or Arrow.")


def _plain(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    return pa.array(values, dtype)


def _floats(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    wide = pa.array([float(value) if type(value) is decimal.Decimal else value for value in values], pa.float64())
    column = wide.cast(dtype)
    if dtype != pa.float64() and pc.any(pc.and_(pc.is_inf(column.cast(pa.float64())), pc.is_finite(wide))).as_py():
        raise Unfit("is out of its range")
    return column


def _bytes(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    return pa.array([None if value is None else bytes.fromhex(value) for value in values], dtype)


def _decimals(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    return pa.array([None if value is None else str(value) for value in values], pa.string()).cast(dtype)


def _parsed(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    texts = pa.array(values, pa.string())
    try:
        return texts.cast(dtype)
    except pa.ArrowException:
        raise ValueError from None


def _timestamps(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    try:
        return _parsed(values, dtype)
    except ValueError:
        # More digits than the unit has, but zeros: 12:00:00.500000 is a good time in milliseconds.
        finer = _parsed(values, pa.timestamp("us", dtype.tz))
        return finer.cast(dtype)


def _times(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    moments = _parsed([None if value is None else _DAY + value for value in values], pa.timestamp("ns"))
    return moments.cast(pa.time64("ns")).cast(dtype)


def _durations(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    try:
        exact = [None if value is None else msgspec.convert(value, dt.timedelta) for value in values]
    except msgspec.ValidationError:
        raise ValueError from None
    return pa.array(exact, pa.duration("us")).cast(dtype)


def _lists(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    flat = [one for value in values if value is not None for one in value]
    items = array_of(flat, dtype.value_type)
    column = pa.ListArray.from_arrays(_offsets(values), items, pa.list_(dtype.value_field))
    return column if column.type == dtype else column.cast(dtype)


def _maps(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    pairs = [list(value.items()) if isinstance(value, dict) else value for value in values]
    flat = [pair for one in pairs if one is not None for pair in one]
    if any(not isinstance(pair, list | tuple) or len(pair) != 2 for pair in flat):
        raise ValueError
    keys = array_of([pair[0] for pair in flat], dtype.key_type)
    if keys.null_count:
        raise Unfit("has a key that is null")
    items = array_of([pair[1] for pair in flat], dtype.item_type)
    return pa.MapArray.from_arrays(_offsets(pairs), keys, items, dtype)


def _structs(values: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    fields = [dtype.field(at) for at in range(dtype.num_fields)]
    known = {field.name for field in fields}
    unknown = next((name for value in values if value is not None for name in value if name not in known), None)
    if unknown is not None:
        raise Unfit(f"has a field {unknown!r}, and the column none of that name")
    parts = [
        array_of([None if value is None else value.get(field.name) for value in values], field.type) for field in fields
    ]
    absent = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(parts, fields=fields, mask=absent)


def _offsets(values: Sequence[Any]) -> pa.Array:
    """Where each value's items begin; null where the value itself is null."""
    offsets: list[int | None] = []
    at = 0
    for value in values:
        offsets.append(None if value is None else at)
        at += 0 if value is None else len(value)
    return pa.array([*offsets, at], pa.int32())


# --- out ----------------------------------------------------------------------------------------------------


def json_values(column: pa.Array) -> list[Any]:
    """A column as values that msgspec writes as JSON.

    >>> json_values(pa.array([b"hedge", None]))
    ['6865646765', None]
    """
    dtype = column.type
    if types.is_timestamp(dtype) and dtype.tz:
        # An instant is written in UTC: offsets of long ago have seconds, which ISO 8601 cannot say.
        column = column.cast(pa.timestamp(dtype.unit, "UTC"))
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):
        # Finer than Python's microseconds, or beyond its calendar: Arrow writes the text itself.
        if types.is_duration(dtype):
            return [
                None if value is None else _seconds_text(value, dtype.unit)
                for value in column.cast(pa.int64()).to_pylist()
            ]
        return [None if text is None else text.replace(" ", "T") for text in column.cast(pa.string()).to_pylist()]
    if _is_bytes(dtype):
        return [None if value is None else value.hex() for value in values]
    return [plain_value(value) for value in values] if types.is_nested(dtype) else values


def plain_value(value: Any) -> Any:
    """The same for one value, and what is inside of it."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC)
    if isinstance(value, list | tuple):
        return [plain_value(one) for one in value]
    if isinstance(value, dict):
        return {name: plain_value(one) for name, one in value.items()}
    return value


def text_of(value: Any) -> str:
    """A value for a person's eyes, on one line and without control characters.

    >>> text_of(dt.date(2025, 3, 31)), text_of(None), text_of("a\\nb")
    ('2025-03-31', 'null', 'a\\\\nb')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value if value.isprintable() else _escaped(value)
    if isinstance(value, dt.date | dt.time):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple | dict | dt.timedelta):
        text = msgspec.json.encode(plain_value(value)).decode()
        return text.strip('"') if isinstance(value, dt.timedelta) else text
    return str(value)


def shown(value: Any) -> str:
    """A value inside an error's message: quoted, and not too long."""
    text = repr(value) if not isinstance(value, decimal.Decimal) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _escaped(text: str) -> str:
    return "".join(one if one.isprintable() else one.encode("unicode_escape", "surrogatepass").decode() for one in text)


def _seconds_text(number: int, unit: str) -> str:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    whole, rest = divmod(abs(number), per_second)
    digits = f".{rest:0{len(str(per_second)) - 1}d}" if rest else ""
    return f"{'-' if number < 0 else ''}PT{whole}{digits}S"


def _is_bytes(dtype: pa.DataType) -> bool:
    return bool(types.is_binary(dtype) or types.is_large_binary(dtype) or types.is_fixed_size_binary(dtype))


def _brief(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    return text if len(text) <= 160 else text[:157] + "..."
