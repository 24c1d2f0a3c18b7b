"""Order-preserving encoding of primary keys into bytes.

Theory of operation. A table's rows are sorted by one binary column. For that order to be the one a user expects, every
key value becomes bytes whose unsigned, byte-by-byte order is the order of the values:

===================  =====================================================================================
type                 bytes
===================  =====================================================================================
int8 .. int64        8 bytes, big-endian, sign bit flipped (so a column can be widened without rewriting)
uint8 .. uint64      8 bytes, big-endian
bool                 1 byte, false before true
date32               4 bytes as a signed number of days
date64, time,        8 bytes as a signed number of the type's own unit
timestamp, duration
float16 .. float64   8 bytes: IEEE bits, all flipped if negative, else the sign bit flipped. -0.0 is 0.0;
                     every NaN is one NaN, which sorts after +infinity
decimal (any)        16 or 32 bytes, two's complement, big-endian, sign bit flipped
fixed-size binary    as it is
string, binary       the last column of a key: as it is. Before the last: every 00 becomes 00 01, and 00 00 ends it
===================  =====================================================================================

A composite key is the concatenation of its columns. Every column but the last is either of fixed width or
self-delimiting, so the concatenation sorts as the tuple does, and a *prefix* of the tuple encodes to a byte string
that sorts right before every key that starts with it: that is what makes ``scan(start=("de",))`` work.

A null has no place in a key and is refused. Encoded keys are at most ``KEY_BYTES_MAX`` long.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hedgerow.errors import InvalidInput

__all__ = ["KEY_BYTES_MAX", "KeyEncoder"]

KEY_BYTES_MAX = 2048
"""The longest encoded key. Parquet keeps exact minima and maxima up to 4 KiB: lookups by block rely on them."""

_SIGN_64 = 1 << 63
_NAN_BITS = 0xFFF8_0000_0000_0000
_PACK_DOUBLE = struct.Struct(">d")
_EPOCH_DATE = dt.date(1970, 1, 1)
_EPOCH_NAIVE = dt.datetime(1970, 1, 1)
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_UNIT_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
# Decimal arithmetic must be exact for any number given, whatever the process's own decimal context is.
_DECIMAL = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


class KeyEncoder:
    """Encodes keys of one table, one at a time or a column at a time.

    >>> encoder = KeyEncoder([("region", pa.string()), ("id", pa.int64())])
    >>> encoder.encode(("de", 1)) < encoder.encode(("de", 2)) < encoder.encode(("fr", -5))
    True
    >>> encoder.decode(encoder.encode(("de", 1)))
    ('de', 1)
    """

    def __init__(self, columns: Sequence[tuple[str, pa.DataType]]) -> None:
        if not columns:
            raise InvalidInput("A key needs at least one column.")
        self.columns = tuple(columns)
        last = len(columns) - 1
        self._parts = [_part(name, dtype, terminated=i < last) for i, (name, dtype) in enumerate(columns)]
        self._single = self._parts[0].encode if len(self._parts) == 1 else None

    def encode(self, key: Any) -> bytes:
        """Encode one whole key: a value for a key of one column, else a tuple (or a list) of values.

        >>> KeyEncoder([("id", pa.int64())]).encode(1).hex()
        '8000000000000001'
        """
        if self._single is not None:
            if type(key) is tuple and len(key) == 1:
                key = key[0]
            data = self._single(key)
        else:
            parts = self._tuple(key)
            if len(parts) != len(self._parts):
                raise InvalidInput(
                    f"The key has {len(self._parts)} columns ({self._names()}), but {len(parts)} values were given."
                )
            data = b"".join([part.encode(value) for part, value in zip(self._parts, parts, strict=True)])
        if len(data) > KEY_BYTES_MAX:
            raise self._too_long(len(data))
        return data

    def encode_bound(self, key: Any) -> bytes:
        """Encode a bound of a range: a whole key, or a tuple with only its first columns.

        A shorter tuple sorts right before every key that begins with it.
        """
        if self._single is not None:
            return self.encode(key)
        parts = self._tuple(key) if isinstance(key, tuple | list) else (key,)
        if not 1 <= len(parts) <= len(self._parts):
            raise InvalidInput(f"A bound takes 1 to {len(self._parts)} values ({self._names()}), not {len(parts)}.")
        return b"".join([part.encode(value) for part, value in zip(self._parts, parts, strict=False)])

    def decode(self, data: bytes) -> Any:
        """The key that ``encode`` was given: a value, or a tuple of values for a composite key."""
        values = []
        position = 0
        for part in self._parts:
            try:
                value, position = part.decode(data, position)
            except (IndexError, ValueError, OverflowError) as error:
                raise InvalidInput(f"Not a key: {error}, in the key column {part.name!r}.") from error
            if position > len(data):
                raise InvalidInput(f"Not a key: the bytes end within the key column {part.name!r}.")
            values.append(value)
        if position != len(data):
            raise InvalidInput(f"{len(data) - position} bytes are left over after the key's last column.")
        return values[0] if len(values) == 1 else tuple(values)

    def encode_columns(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Encode whole columns at once; the result is a binary array with one key per row.

        >>> encoder = KeyEncoder([("id", pa.int64())])
        >>> encoder.encode_columns([pa.array([1, 2])])[1].as_py().hex()
        '8000000000000002'
        """
        if len(columns) != len(self._parts):
            raise InvalidInput(
                f"The key has {len(self._parts)} columns ({self._names()}), but {len(columns)} were given."
            )
        rows = len(columns[0])
        encoded = []
        for part, column in zip(self._parts, columns, strict=True):
            if column.type != part.dtype:
                raise InvalidInput(f"The key column {part.name!r} is {part.dtype}, not {column.type}.")
            if len(column) != rows:
                raise InvalidInput(f"The key column {part.name!r} has {len(column)} rows, not {rows}.")
            if column.null_count:
                row = column.is_null().index(True).as_py()
                raise InvalidInput(f"The key column {part.name!r} is null in row {row}; a key is never null.")
            encoded.append(part.encode_column(column))
        if len(encoded) == 1:
            keys = encoded[0]
            if not pa.types.is_binary(keys.type):
                keys = keys.cast(pa.binary())
        elif all(pa.types.is_fixed_size_binary(column.type) for column in encoded):
            keys = _join_fixed(encoded)
        else:
            as_binary = [column.cast(pa.binary()) for column in encoded]
            keys = pc.binary_join_element_wise(*as_binary, b"")
        if len(keys):
            longest = pc.max(pc.binary_length(keys)).as_py()
            if longest > KEY_BYTES_MAX:
                raise self._too_long(longest)
        return keys

    def _tuple(self, key: Any) -> Sequence[Any]:
        if not isinstance(key, tuple | list):
            raise InvalidInput(f"The key has the columns {self._names()}: give a tuple of values, not {key!r}.")
        return key

    def _too_long(self, length: int) -> InvalidInput:
        limit = f"the limit of {KEY_BYTES_MAX}"
        return InvalidInput(f"A key ({self._names()}) of {length} bytes is longer than {limit}.")

    def _names(self) -> str:
        return ", ".join(name for name, _ in self.columns)


class _Part:
    """One key column: how a value, a column of values, and its bytes turn into one another."""

    def __init__(
        self,
        name: str,
        dtype: pa.DataType,
        encode: Callable[[Any], bytes],
        encode_column: Callable[[pa.Array], pa.Array],
        decode: Callable[[bytes, int], tuple[Any, int]],
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.encode = encode
        self.encode_column = encode_column
        self.decode = decode


def _part(name: str, dtype: pa.DataType, *, terminated: bool) -> _Part:
    types = pa.types
    if types.is_boolean(dtype):
        return _bool_part(name, dtype)
    if types.is_integer(dtype):
        return _integer_part(name, dtype)
    if types.is_floating(dtype):
        return _float_part(name, dtype)
    if types.is_decimal(dtype):
        return _decimal_part(name, dtype)
    if types.is_temporal(dtype) and not types.is_interval(dtype):
        return _temporal_part(name, dtype)
    if types.is_fixed_size_binary(dtype):
        return _fixed_binary_part(name, dtype)
    if types.is_string(dtype) or types.is_binary(dtype):
        return _bytes_part(name, dtype, terminated=terminated)
    raise InvalidInput(
        f"Column {name!r} of type {dtype} cannot be part of a key. Keys take integers, floats, decimals, strings, "
        "binary, booleans, dates, times, timestamps and durations."
    )


def _wrong(name: str, dtype: pa.DataType, value: Any, why: str = "") -> InvalidInput:
    if value is None:
        return InvalidInput(f"The key column {name!r} is null; a key is never null.")
    try:
        shown = repr(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        shown = "a number too long to show"
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return InvalidInput(
        f"The key column {name!r} is of type {dtype}; {shown} ({type(value).__name__}) {why or 'is not'}."
    )


def _fixed_from_uint64(values: np.ndarray[Any, Any]) -> pa.Array:
    """Big-endian 8-byte keys from an array of uint64, without a loop over rows."""
    data = np.ascontiguousarray(values.astype(">u8"))
    return pa.Array.from_buffers(pa.binary(8), len(values), [None, pa.py_buffer(data)])


def _join_fixed(columns: Sequence[pa.Array]) -> pa.Array:
    """Concatenate fixed-width columns row by row, as one copy into a matrix of bytes."""
    rows = len(columns[0])
    width = sum(column.type.byte_width for column in columns)
    matrix = np.empty((rows, width), np.uint8)
    at = 0
    for column in columns:
        w = column.type.byte_width
        view = np.frombuffer(column.buffers()[1], np.uint8, count=rows * w, offset=column.offset * w)
        matrix[:, at : at + w] = view.reshape(rows, w)
        at += w
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(matrix)])


def _bool_part(name: str, dtype: pa.DataType) -> _Part:
    def encode(value: Any) -> bytes:
        if value is True:
            return b"\x01"
        if value is False:
            return b"\x00"
        raise _wrong(name, dtype, value)

    def encode_column(column: pa.Array) -> pa.Array:
        data = column.cast(pa.uint8())
        return pa.Array.from_buffers(
            pa.binary(1),
            len(data),
            [None, pa.py_buffer(np.ascontiguousarray(data.to_numpy(zero_copy_only=False)))],
        )

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        return data[at] == 1, at + 1

    return _Part(name, dtype, encode, encode_column, decode)


def _integer_part(name: str, dtype: pa.DataType) -> _Part:
    bits = dtype.bit_width
    signed = pa.types.is_signed_integer(dtype)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    shift = _SIGN_64 if signed else 0

    def encode(value: Any) -> bytes:
        if type(value) is not int:
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise _wrong(name, dtype, value)
            try:
                value = value.__index__()
            except TypeError:  # an array of NumPy's
                raise _wrong(name, dtype, value) from None
        if not low <= value <= high:
            raise _wrong(name, dtype, value, "is out of its range")
        return (value + shift).to_bytes(8, "big")  # type: ignore[no-any-return]

    def encode_column(column: pa.Array) -> pa.Array:
        if signed:
            numbers = column.cast(pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64) ^ np.uint64(_SIGN_64)
        else:
            numbers = column.cast(pa.uint64()).to_numpy(zero_copy_only=False)
        return _fixed_from_uint64(numbers)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        return int.from_bytes(data[at : at + 8], "big") - shift, at + 8

    return _Part(name, dtype, encode, encode_column, decode)


def _float_part(name: str, dtype: pa.DataType) -> _Part:
    narrow = {16: np.float16, 32: np.float32, 64: np.float64}[dtype.bit_width]

    def encode(value: Any) -> bytes:
        if type(value) is not float:
            if isinstance(value, bool) or not hasattr(value, "__float__") or isinstance(value, str):
                raise _wrong(name, dtype, value)
            try:
                value = float(value)
            except OverflowError:
                raise _wrong(name, dtype, value, "is out of its range") from None
            except (TypeError, ValueError):  # an array of NumPy's; a signalling NaN
                raise _wrong(name, dtype, value) from None
        if narrow is not np.float64 and not math.isnan(value):
            # A float32 column holds only float32 values: the key of 0.1 is the key of float32(0.1).
            with np.errstate(over="ignore"):
                narrowed = float(narrow(value))  # type: ignore[arg-type]
            if math.isinf(narrowed) and not math.isinf(value):
                raise _wrong(name, dtype, value, "is out of its range")
            value = narrowed
        if value != value:
            return _NAN_BITS.to_bytes(8, "big")
        bits = int.from_bytes(_PACK_DOUBLE.pack(value + 0.0), "big")  # -0.0 + 0.0 is 0.0
        bits = bits ^ 0xFFFF_FFFF_FFFF_FFFF if bits & _SIGN_64 else bits | _SIGN_64
        return bits.to_bytes(8, "big")

    def encode_column(column: pa.Array) -> pa.Array:
        with np.errstate(invalid="ignore"):  # a signalling NaN is as good as any
            values = column.to_numpy(zero_copy_only=False).astype(np.float64) + 0.0
        bits = values.view(np.uint64)
        sign = np.uint64(_SIGN_64)
        keys = np.where(bits & sign, ~bits, bits | sign)
        keys[np.isnan(values)] = np.uint64(_NAN_BITS)
        return _fixed_from_uint64(keys)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        bits = int.from_bytes(data[at : at + 8], "big")
        bits = bits & ~_SIGN_64 if bits & _SIGN_64 else bits ^ 0xFFFF_FFFF_FFFF_FFFF
        return _PACK_DOUBLE.unpack(bits.to_bytes(8, "big"))[0], at + 8

    return _Part(name, dtype, encode, encode_column, decode)


def _decimal_part(name: str, dtype: pa.DataType) -> _Part:
    wide = dtype.bit_width == 256
    width = 32 if wide else 16
    scale, precision = dtype.scale, dtype.precision
    storage = pa.decimal256(precision, scale) if wide else pa.decimal128(precision, scale)
    bias = 1 << (width * 8 - 1)

    def encode(value: Any) -> bytes:
        if isinstance(value, bool) or not isinstance(value, int | decimal.Decimal):
            raise _wrong(name, dtype, value)
        number = decimal.Decimal(value)
        if not number.is_finite():
            raise _wrong(name, dtype, value, "is not a finite number")
        if not number:
            return bias.to_bytes(width, "big")
        # How many digits the unscaled number has: looked at before it is made, for it may be astronomical.
        digits = number.adjusted() + scale + 1
        if digits > precision:
            raise _wrong(name, dtype, value, "is out of its range")
        scaled = _DECIMAL.scaleb(number, scale) if digits > 0 else None
        if scaled is None or scaled != _DECIMAL.to_integral_value(scaled):
            raise _wrong(name, dtype, value, f"has more than {scale} digits after the point")
        return (int(scaled) + bias).to_bytes(width, "big")

    def encode_column(column: pa.Array) -> pa.Array:
        column = column.cast(storage)
        rows = len(column)
        raw = np.frombuffer(column.buffers()[1], np.uint8, count=rows * width, offset=column.offset * width)
        big_endian = raw.reshape(rows, width)[:, ::-1].copy()
        big_endian[:, 0] ^= 0x80
        return pa.Array.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(big_endian)])

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        unscaled = int.from_bytes(data[at : at + width], "big") - bias
        return _DECIMAL.scaleb(decimal.Decimal(unscaled), -scale), at + width

    return _Part(name, dtype, encode, encode_column, decode)


def _temporal_part(name: str, dtype: pa.DataType) -> _Part:
    to_number, from_number = _temporal_numbers(name, dtype)
    days = pa.types.is_date32(dtype)
    width = 4 if days else 8
    bias = 1 << (width * 8 - 1)
    storage = pa.int32() if dtype.bit_width == 32 else pa.int64()

    def encode(value: Any) -> bytes:
        number = to_number(value)
        if not -bias <= number < bias:
            raise _wrong(name, dtype, value, "is out of its range")
        return (number + bias).to_bytes(width, "big")

    def encode_column(column: pa.Array) -> pa.Array:
        numbers = column.view(storage)
        if days:
            data = numbers.to_numpy(zero_copy_only=False).view(np.uint32) ^ np.uint32(1 << 31)
            big_endian = np.ascontiguousarray(data.astype(">u4"))
            return pa.Array.from_buffers(pa.binary(4), len(column), [None, pa.py_buffer(big_endian)])
        data = numbers.cast(pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64) ^ np.uint64(_SIGN_64)
        return _fixed_from_uint64(data)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        return from_number(int.from_bytes(data[at : at + width], "big") - bias), at + width

    return _Part(name, dtype, encode, encode_column, decode)


def _temporal_numbers(name: str, dtype: pa.DataType) -> tuple[Callable[[Any], int], Callable[[int], Any]]:
    """Python value to the type's own integer, and back; exact, without pandas and for every unit."""
    types = pa.types

    def exact_units(value: Any, micros: int, unit: str) -> int:
        scaled, rest = divmod(micros * _UNIT_PER_SECOND[unit], 1_000_000)
        if rest:
            raise _wrong(name, dtype, value, f"is finer than its unit ({unit})")
        return scaled

    def scalar(number: int) -> Any:
        try:
            return pa.scalar(number, pa.int32() if dtype.bit_width == 32 else pa.int64()).cast(dtype).as_py()
        except (ValueError, OverflowError):
            # Nanoseconds, and years beyond 9999, are more than Python's own types can carry.
            if types.is_time(dtype):
                raise
            unit: Any = "D" if types.is_date32(dtype) else "ms" if types.is_date64(dtype) else dtype.unit
            return np.timedelta64(number, unit) if types.is_duration(dtype) else np.datetime64(number, unit)

    def plain(value: Any, unit: str) -> int | None:
        """The number of units in NumPy's and pandas' values, which know units that Python does not."""
        kind = np.timedelta64 if types.is_duration(dtype) else np.datetime64
        given = value
        if convert := getattr(value, f"to_{kind.__name__}", None):
            given = convert()
        if not isinstance(given, kind):
            return None
        if np.isnat(given):
            raise _wrong(name, dtype, None)
        if kind is np.timedelta64 and np.datetime_data(given.dtype)[0] in ("Y", "M", "generic"):
            raise _wrong(name, dtype, value, "has no fixed length")
        converted = given.astype(f"{kind.__name__}[{unit}]")
        if converted.astype(given.dtype) != given:  # rounded, or too large and wrapped around
            raise _wrong(name, dtype, value, f"does not fit its unit ({unit})")
        return int(converted.astype(np.int64))

    def date_to_number(value: Any) -> int:
        if getattr(value, "tzinfo", None) is not None:
            raise _wrong(name, dtype, value, "has a time zone, and the column has none")
        days = plain(value, "D")
        if days is None:
            if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
                raise _wrong(name, dtype, value)
            days = (value - _EPOCH_DATE).days
        return days if types.is_date32(dtype) else days * 86_400_000

    def timestamp_to_number(value: Any) -> int:
        # NumPy's datetime64 has no time zone to disagree with: where the column has one, it is taken as UTC.
        if isinstance(value, dt.datetime):
            if dtype.tz and value.utcoffset() is None:
                raise _wrong(name, dtype, value, "needs a time zone")
            if not dtype.tz and value.tzinfo is not None:
                raise _wrong(name, dtype, value, "has a time zone, and the column has none")
        if (number := plain(value, dtype.unit)) is not None:
            return number
        if not isinstance(value, dt.datetime):
            raise _wrong(name, dtype, value)
        delta = value - (_EPOCH_UTC if dtype.tz else _EPOCH_NAIVE)
        return exact_units(value, delta // dt.timedelta(microseconds=1), dtype.unit)

    def time_to_number(value: Any) -> int:
        if not isinstance(value, dt.time) or value.tzinfo is not None:
            raise _wrong(name, dtype, value)
        micros = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        return exact_units(value, micros, dtype.unit)

    def duration_to_number(value: Any) -> int:
        if (number := plain(value, dtype.unit)) is not None:
            return number
        if not isinstance(value, dt.timedelta):
            raise _wrong(name, dtype, value)
        return exact_units(value, value // dt.timedelta(microseconds=1), dtype.unit)

    if types.is_date(dtype):
        return date_to_number, scalar
    if types.is_timestamp(dtype):
        return timestamp_to_number, scalar
    if types.is_time(dtype):
        return time_to_number, scalar
    return duration_to_number, scalar


def _fixed_binary_part(name: str, dtype: pa.DataType) -> _Part:
    width = dtype.byte_width

    def encode(value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise _wrong(name, dtype, value)
        data = bytes(value)
        if len(data) != width:
            raise _wrong(name, dtype, value, f"has {len(data)} bytes")
        return data

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        return data[at : at + width], at + width

    return _Part(name, dtype, encode, lambda column: column, decode)


def _bytes_part(name: str, dtype: pa.DataType, *, terminated: bool) -> _Part:
    text = pa.types.is_string(dtype)

    def encode(value: Any) -> bytes:
        if text:
            if not isinstance(value, str):
                raise _wrong(name, dtype, value)
            try:
                data = value.encode()
            except UnicodeEncodeError as error:
                raise _wrong(name, dtype, value, f"is not valid Unicode: {error.reason}") from None
        else:
            if not isinstance(value, bytes | bytearray | memoryview):
                raise _wrong(name, dtype, value)
            data = bytes(value)
        return data.replace(b"\x00", b"\x00\x01") + b"\x00\x00" if terminated else data

    def encode_column(column: pa.Array) -> pa.Array:
        data = column.cast(pa.binary())
        if not terminated:
            return data
        if pc.any(pc.match_substring(data, pattern=b"\x00")).as_py():
            data = pc.replace_substring(data, pattern=b"\x00", replacement=b"\x00\x01")
        return pc.binary_join_element_wise(data, pa.scalar(b"\x00\x00"), b"")

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        if not terminated:
            raw, end = data[at:], len(data)
        else:
            stop = at
            while (stop := data.index(b"\x00", stop)) + 1 < len(data) and data[stop + 1] == 1:
                stop += 2
            raw, end = data[at:stop].replace(b"\x00\x01", b"\x00"), stop + 2
        return (raw.decode() if text else raw), end

    return _Part(name, dtype, encode, encode_column, decode)
