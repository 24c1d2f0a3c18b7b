"""Columns as a person writes them: ``order_id:int64``, ``amount:decimal(10,2)``, ``placed:timestamptz``.

Every type that ``inspect`` shows can be written back here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

import hedgerow as hg

__all__ = ["column_of", "names_of", "schema_of", "type_of"]

_SHORT = {
    "bytes": pa.binary(),
    "date": pa.date32(),
    "text": pa.string(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "duration": pa.duration("us"),
}
_DECIMAL = re.compile(r"decimal(?:32|64|128|256)?\((\d+),(-?\d+)\)")
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns),(?:tz=)?([^\],]+)\]")
_FIXED = re.compile(r"(?:fixed_size_)?binary[\[(](\d+)[\])]")
_LIST = re.compile(r"list<(?:item:|element:)?(.+)>")
_EXAMPLES = "int64, string, double, bool, binary, date, timestamp[us, tz=UTC], decimal(10,2), list<string>"


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """Several columns.

    >>> schema_of(["order_id:int64", "status:string"]).names
    ['order_id', 'status']
    """
    return pa.schema([column_of(text) for text in columns])


def column_of(text: str) -> pa.Field:
    """One column: a name, a colon, a type, and ``not null`` where it must not be.

    >>> column_of("amount:decimal(10,2) not null")
    pyarrow.Field<amount: decimal128(10, 2) not null>
    """
    name, colon, written = (part.strip() for part in text.partition(":"))
    if not name or not colon or not written:
        raise hg.InvalidInput(f"--column {text!r}: give a name and a type, as in --column order_id:int64.")
    plain = re.sub(r"\s+not\s+null$", "", written, flags=re.IGNORECASE)
    return pa.field(name, type_of(plain, name), nullable=plain == written)


def type_of(text: str, name: str) -> pa.DataType:
    """An Arrow type by its name.

    >>> type_of("timestamp[ms, tz=Europe/Berlin]", "placed")
    TimestampType(timestamp[ms, tz=Europe/Berlin])
    """
    written = re.sub(r"\s+", "", text)
    lower = written.lower()
    try:
        if lower in _SHORT:
            return _SHORT[lower]
        if found := _DECIMAL.fullmatch(lower):
            precision, scale = int(found[1]), int(found[2])
            return pa.decimal256(precision, scale) if precision > 38 else pa.decimal128(precision, scale)
        if found := _ZONED.fullmatch(written):
            return pa.timestamp(found[1], found[2])
        if found := _FIXED.fullmatch(lower):
            return pa.binary(int(found[1]))
        if found := _LIST.fullmatch(written):
            return pa.list_(type_of(found[1], name))
        return pa.type_for_alias(lower)
    except (ValueError, pa.ArrowException):
        raise hg.InvalidInput(
            f"The column {name!r}: {text!r} is not a known type. There are {_EXAMPLES} and so on."
        ) from None


def names_of(texts: Sequence[str] | None) -> list[str]:
    """Names of columns, given one by one or with commas between them.

    >>> names_of(["region,order_id", "line"])
    ['region', 'order_id', 'line']
    """
    return [name.strip() for text in texts or () for name in text.split(",") if name.strip()]
