"""Keys of every type: written as JSON, found again by the text that a person types."""

from __future__ import annotations

import json
from typing import Any

import pytest

# type, the key in JSON, the key as typed, the options that go with it, the key as --json prints it
KEY_TYPES = [
    ("int8", "-128", "-128", [], -128),
    ("int64", "17", "+17", [], 17),
    ("uint64", "18446744073709551615", "18446744073709551615", [], 2**64 - 1),
    ("bool", "true", "TRUE", [], True),
    ("double", "0.1", "0.1", [], 0.1),
    ("double", "-2.5", "-2.5", [], -2.5),
    ("float", "0.5", "5e-1", [], 0.5),
    ("string", '"grün, \\"17\\""', 'grün, "17"', [], 'grün, "17"'),
    ("string", '"[17]"', "[17]", [], "[17]"),
    ("string", '""', "", [], ""),
    ("binary", '"00ff"', "00ff", ["--hex"], "00ff"),
    ("binary", '"6b6579"', "key", [], "6b6579"),
    ("binary[3]", '"6b6579"', "key", [], "6b6579"),
    ("date", '"2025-03-31"', "2025-03-31", [], "2025-03-31"),
    ("date64", '"1969-12-31"', "1969-12-31", [], "1969-12-31"),
    ("time", '"12:34:56.5"', "12:34:56.500", [], "12:34:56.500000"),
    ("time32[s]", '"12:34:56"', "12:34:56", [], "12:34:56"),
    ("timestamp", '"2025-03-31T12:00:00"', "2025-03-31 12:00:00", [], "2025-03-31T12:00:00"),
    ("timestamp[s]", '"2025-03-31T12:00:00"', "2025-03-31T12:00:00.000", [], "2025-03-31T12:00:00"),
    ("timestamp[ms]", '"2025-03-31T12:00:00.5"', "2025-03-31T12:00:00.50000", [], "2025-03-31T12:00:00.500000"),
    ("timestamp[ns]", '"2025-03-31T12:00:00.12"', "2025-03-31T12:00:00.1200", [], "2025-03-31T12:00:00.120000"),
    ("timestamptz", '"2025-03-31T12:00:00Z"', "2025-03-31T14:00:00+02:00", [], "2025-03-31T12:00:00Z"),
    ("timestamp[s, tz=Europe/Berlin]", '"2025-03-31T12:00Z"', "2025-03-31T12:00Z", [], "2025-03-31T12:00:00Z"),
    ("duration", '"PT1.5S"', "PT1.5S", [], "PT1.5S"),
    ("decimal(10,2)", "-12.5", "-12.50", [], "-12.50"),
    ("decimal(50,3)", '"1.125"', "1.125", [], "1.125"),
]  # fmt: skip


@pytest.mark.parametrize(("type_name", "written", "typed", "options", "printed"), KEY_TYPES)
def test_a_key_of_every_type(
    invoke: Any, type_name: str, written: str, typed: str, options: list[str], printed: Any
) -> None:
    invoke(
        "create",
        "table",
        "--column",
        f"k:{type_name}",
        "--column",
        "v:int64",
        "--key",
        "k",
        "--partitions",
        1,
    )
    invoke("put", "table", f'{{"k": {written}, "v": 1}}')
    row = {"k": printed, "v": 1}
    assert json.loads(invoke("get", "table", typed, *options, "--json").stdout) == row
    assert json.loads(invoke("scan", "table", "--start", typed, *options, "--json").stdout) == row
    assert invoke("scan", "table", "--end", typed, *options, "--json").stdout == ""
    assert len(invoke("get", "table", typed, *options).stdout.splitlines()) == 3
    invoke("delete", "table", typed, *options)
    invoke("get", "table", typed, *options, code=1)


BAD_KEYS = [
    ("int8", "128", [], "does not fit"),
    ("uint8", "-1", [], "does not fit"),
    ("int64", "1_000", [], "is not a whole number"),
    ("bool", "yes", [], "is not true or false"),
    ("double", "much", [], "is not a number"),
    ("binary", "xyz", ["--hex"], "is not binary in hex"),
    ("binary[3]", "four", [], "does not fit"),
    ("date", "31.3.2025", [], "is not a date in ISO format"),
    ("date", "2025-03-31T12:00:00", [], "is not a date in ISO format"),
    ("time", "noon", [], "is not a time of day"),
    ("time32[s]", "12:00:00.5", [], "does not fit"),
    ("timestamp", "2025-03-31T12:00:00Z", [], "with no zone"),
    ("timestamptz", "2025-03-31T12:00:00", [], "with Z or an offset"),
    ("timestamp[ms]", "2025-03-31T12:00:00.123456", [], "does not fit"),
    ("duration", "an hour", [], "is not a duration"),
    ("decimal(10,2)", "1.005", [], "does not fit"),
    ("decimal(10,2)", "1,5", [], "does not fit"),
]


@pytest.mark.parametrize(("type_name", "typed", "options", "phrase"), BAD_KEYS)
def test_text_that_is_no_key(invoke: Any, type_name: str, typed: str, options: list[str], phrase: str) -> None:
    invoke("create", "table", "--column", f"k:{type_name}", "--key", "k", "--partitions", 1)
    failed = invoke("get", "table", typed, *options, code=2)
    assert phrase in failed.stderr
    assert "The key column 'k' is of type " in failed.stderr
    assert repr(typed) in failed.stderr
    assert failed.stderr.count("\n") == 1


@pytest.fixture
def lines(invoke: Any) -> str:
    """A table with a key of three columns."""
    columns = ("region:string", "day:date", "line:int32", "amount:double")
    arguments = [one for column in columns for one in ("--column", column)]
    invoke("create", "lines", *arguments, "--key", "region,day", "--key", "line", "--partitions", 3)
    rows = [
        f'{{"region": "{region}", "day": "2025-03-{day}", "line": {line}, "amount": {line}.5}}'
        for region in ("de", "fr")
        for day in (30, 31)
        for line in (1, 2)
    ]
    invoke("put", "lines", "-", stdin="\n".join(rows))
    return "lines"


def found(result: Any) -> list[tuple[Any, ...]]:
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return [(row["region"], row["day"][-2:], row["line"]) for row in rows]


def test_a_key_of_several_columns(invoke: Any, lines: str) -> None:
    got = invoke("get", lines, '["fr", "2025-03-31", 2]', ' ["de", "2025-03-30", 1]', "--json")
    assert found(got) == [("fr", "31", 2), ("de", "30", 1)]
    between = ("--start", '["de", "2025-03-31"]', "--end", '["fr", "2025-03-31"]')
    inside = [("de", "31", 1), ("de", "31", 2), ("fr", "30", 1), ("fr", "30", 2)]
    assert found(invoke("scan", lines, "--json", *between)) == inside
    assert len(found(invoke("scan", lines, "--json", "--start", "fr"))) == 4
    assert len(found(invoke("scan", lines, "--json", "--end", '["de", "2025-03-30", 2]'))) == 1
    invoke("delete", lines, '["fr", "2025-03-31", 2]')
    assert len(found(invoke("scan", lines, "--json"))) == 7


@pytest.mark.parametrize(
    ("typed", "phrase"),
    [
        ("de", "The key has the columns region, day, line: give a JSON array"),
        ('["de"', "is not a JSON array of a key's values"),
        ('["de"]', "the key takes 3 values (region, day, line), not 1"),
        ('["de", "2025-03-31", 1, 2]', "takes 3 values"),
        ('["de", "2025-03-31", "1"]', "'line' is of type int32; '1' is not a whole number"),
        ('["de", "yesterday", 1]', "'yesterday' is not a date"),
        ('["de", null, 1]', "'day' is null"),
    ],
)
def test_text_that_is_no_key_of_several_columns(invoke: Any, lines: str, typed: str, phrase: str) -> None:
    assert phrase in invoke("get", lines, typed, code=2).stderr


def test_a_bound_takes_at_most_the_key(invoke: Any, lines: str) -> None:
    assert "takes 1 to 3 values" in invoke("scan", lines, "--start", "[]", code=2).stderr


def test_text_that_begins_with_a_dash(invoke: Any) -> None:
    invoke("create", "table", "--column", "k:string", "--key", "k")
    invoke("put", "table", '{"k": "--json"}', '{"k": "-5"}')
    assert json.loads(invoke("get", "table", "--json", "--", "--json").stdout) == {"k": "--json"}
    assert json.loads(invoke("get", "table", "-5", "--json").stdout) == {"k": "-5"}


def test_a_nanosecond_is_not_lost(invoke: Any) -> None:
    invoke("create", "table", "--column", "k:timestamp[ns]", "--column", "v:time64[ns]", "--key", "k")
    row = '{"k":"2025-03-31T12:00:00.123456789","v":"01:02:03.000000004"}'
    invoke("put", "table", row)
    assert invoke("scan", "table", "--json", "--start", "2025-03-31T12:00:00.123456789").stdout == row + "\n"
    assert invoke("scan", "table", "--json", "--start", "2025-03-31T12:00:00.123456790").stdout == ""
