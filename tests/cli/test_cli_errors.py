"""Whatever goes wrong: one clear line, the right exit code, no traceback, and nothing on standard output."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import hedgerow as hg
from hedgerow.cli import main as command_line
from hedgerow.errors import StaleEpoch


def said(result: Any) -> str:
    """The one line."""
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    text: str = result.stderr
    assert text.startswith("hedgerow: ")
    assert text.endswith("\n")
    assert text.count("\n") == 1, text
    return text


def placed(arguments: list[str], url: str) -> list[str]:
    """The table's place in the place of its name."""
    return [url if text == "orders" else text for text in arguments]


def unchanged(url: str) -> bool:
    with hg.open(url) as table:
        return table.to_arrow().num_rows == 3


USAGE = [
    (["gte", "orders", "1"], "No such command 'gte'. Did you mean 'get'? Try 'hedgerow --help'."),
    (["get"], "Missing argument 'URL'"),
    (["get", "orders"], "Missing argument 'KEY'"),
    (["get", "orders", "1", "--hexx"], "No such option: --hexx"),
    (["scan", "orders", "--limit", "many"], "--limit"),
    (["scan", "orders", "--limit", "-1"], "'--limit': Input should be greater"),
    (["load", "orders", "a.csv", "--format", "xlsx"], "xlsx"),
    (["create", "new", "--partitions", "x"], "--partitions"),
    (["scan", "orders", "--columns", ""], "--columns: name at least one column"),
    (["--option", "secret", "get", "orders", "1"], "--option region=eu-central-1"),
]


@pytest.mark.parametrize(("arguments", "phrase"), USAGE)
def test_usage(invoke: Any, shared_orders: str, arguments: list[str], phrase: str) -> None:
    assert phrase in said(invoke(*placed(arguments, shared_orders), code=2))


def test_a_secret_in_a_malformed_option_is_not_printed(invoke: Any, shared_orders: str) -> None:
    assert "hunter2" not in said(invoke("get", shared_orders, "1", "--option", "hunter2", code=2))


ROWS = [
    ("{", "row 1: '{' is not JSON"),
    ("", "row 1: '' is not JSON"),
    ("[1]", "row 1: a row is a JSON object"),
    ("17", "row 1: a row is a JSON object"),
    ("{}", "row 1: the column 'order_id' is missing or null"),
    ('{"order_id": null}', "row 1: the column 'order_id' is missing or null"),
    ('{"order_id": 1, "colour": "red"}', "row 1: there is no column 'colour'; the table has order_id"),
    ('{"order_id": "1"}', "row 1: the column 'order_id' is of type int64; '1' is not a whole number"),
    ('{"order_id": 1.5}', "1.5 is not a whole number"),
    ('{"order_id": true}', "True is not a whole number"),
    ('{"order_id": 9223372036854775808}', "9223372036854775808 does not fit"),
    ('{"order_id": 1, "status": 5}', "5 is not a string"),
    ('{"order_id": 1, "amount": "1.255"}', "'1.255' does not fit"),
    ('{"order_id": 1, "amount": 123456789.5}', "123456789.5 does not fit"),
    ('{"order_id": 1, "amount": "much"}', "'much' does not fit"),
    ('{"order_id": 1, "amount": NaN}', "is not JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "phrase"), ROWS)
def test_rows(invoke: Any, shared_orders: str, row: str, phrase: str) -> None:
    assert phrase in said(invoke("put", shared_orders, row, code=2))
    assert invoke("scan", shared_orders, "--json").stdout.count("\n") == 3


def test_a_line_of_standard_input_is_named(invoke: Any, shared_orders: str) -> None:
    text = '{"order_id": 7}\n\n{"order_id": 8}\n{"order_id": 9, "amount": "x"}\n{"order_id": 10}'
    assert "line 4: the column 'amount'" in said(invoke("put", shared_orders, "-", stdin=text, code=2))
    assert "line 1: '\ufffd' is not JSON" in said(invoke("put", shared_orders, "-", stdin=b"\xff\n", code=2))


def test_nothing_on_standard_input_is_no_rows(invoke: Any, orders: str) -> None:
    assert invoke("put", orders, "-", stdin="").stdout == "put 0 rows\n"
    assert invoke("put", orders, "-", stdin="\n \n").stdout == "put 0 rows\n"


KEYS = [
    (["get", "orders", "abc"], "The key column 'order_id' is of type int64; 'abc' is not a whole number."),
    (["get", "orders", "1.5"], "'1.5' is not a whole number"),
    (["get", "orders", "99999999999999999999"], "does not fit"),
    (["get", "orders", "[1]"], "'[1]' is not a whole number"),
    (["delete", "orders", "x"], "'x' is not a whole number"),
    (["scan", "orders", "--start", "x"], "'x' is not a whole number"),
    (["scan", "orders", "--columns", "order_id,colour"], "There is no column 'colour'"),
]


@pytest.mark.parametrize(("arguments", "phrase"), KEYS)
def test_keys(invoke: Any, shared_orders: str, arguments: list[str], phrase: str) -> None:
    assert phrase in said(invoke(*placed(arguments, shared_orders), code=2))


CREATE = [
    (["--column", "id"], "give a name and a type"),
    (["--column", ":int64"], "give a name and a type"),
    (["--column", "id:int65", "--key", "id"], "'int65' is not a known type"),
    (["--column", "id:decimal(99,2)", "--key", "id"], "'decimal(99,2)' is not a known type"),
    (["--column", "id:int64"], "Give --key with the column or columns that identify a row; there are id."),
    (["--key", "id"], "--key names columns, and there are none"),
    (["--column", "id:int64", "--key", "idd"], "'idd'"),
    (["--column", "id:list<string>", "--key", "id"], "cannot be part of a key"),
    (["--column", "id:int64", "--column", "ID:int64", "--key", "id"], "differ only in case"),
    (["--partitions", "0"], "partitions=0"),
    (["--column", "id:int64", "--key", "id", "--schema-from", "x.csv"], "not both"),
    (["--schema-from", "nowhere.csv", "--key", "id"], "There is no file nowhere.csv."),
]


@pytest.mark.parametrize(("arguments", "phrase"), CREATE)
def test_creating(invoke: Any, tmp_path: Path, arguments: list[str], phrase: str) -> None:
    assert phrase in said(invoke("create", "new", *arguments, code=2))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("url", ["", "ftp://host/x", "s3://", "s3://bucket", "file://host/x", "file:///x?y=1"])
def test_addresses(invoke: Any, url: str) -> None:
    said(invoke("inspect", url, code=2))


def test_a_password_in_an_address_is_not_printed(invoke: Any) -> None:
    assert "hunter2" not in said(invoke("inspect", "s3://me:hunter2@bucket/orders", code=2))


def test_tables_that_are_there_and_that_are_not(invoke: Any, shared_orders: str) -> None:
    said(invoke("create", shared_orders, code=3))
    for arguments in (
        ["get", "nowhere", "1"],
        ["scan", "nowhere"],
        ["inspect", "nowhere"],
        ["put", "nowhere", "{}"],
    ):
        said(invoke(*arguments, code=3))


# --- files --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_files(folder)
    return folder


def write_files(folder: Path) -> None:
    (folder / "empty.csv").write_text("")
    (folder / "empty.jsonl").write_text("")
    (folder / "blank.jsonl").write_text("\n\n")
    (folder / "noise.parquet").write_bytes(b"noise" * 100)
    (folder / "noise.arrow").write_bytes(b"noise" * 100)
    (folder / "old.feather").write_bytes(b"FEA1" + bytes(100))
    (folder / "noise.csv.gz").write_bytes(b"noise" * 100)
    (folder / "cut.csv.gz").write_bytes(gzip.compress(b"order_id\n" + os.urandom(5_000).hex().encode())[:-600])
    (folder / "rows.xlsx").write_text("order_id\n1\n")
    (folder / "noending").write_text("order_id\n1\n")
    (folder / "folder.csv").mkdir()
    (folder / "other.csv").write_text("order_id,colour\n1,red\n")
    (folder / "nokey.csv").write_text("status\nnew\n")
    (folder / "twice.csv").write_text("order_id,order_id\n1,2\n")
    (folder / "word.csv").write_text("order_id,status\n1,new\nword,new\n")
    (folder / "ragged.csv").write_text("order_id,status\n1,new\n2\n")
    (folder / "nullkey.csv").write_text("order_id,status\n,new\n")
    (folder / "cents.csv").write_text("order_id,amount\n1,1.255\n")
    (folder / "latin.csv").write_bytes("order_id,status\n1,groß\n".encode("latin-1"))
    (folder / "array.json").write_text('[{"order_id": 1}]')
    (folder / "bad.jsonl").write_text('{"order_id": 1}\n{"order_id": }\n')
    (folder / "other.jsonl").write_text('{"order_id": 1}\n{"colour": 1}\n')
    pyarrow.parquet.write_table(pa.table({"order_id": ["a"]}), folder / "text.parquet")
    pyarrow.parquet.write_table(pa.table({"order_id": [1], "colour": ["red"]}), folder / "other.parquet")
    pyarrow.parquet.write_table(pa.table({"order_id": pa.array([1, None])}), folder / "nullkey.parquet")
    pyarrow.parquet.write_table(pa.table({"status": ["new"]}), folder / "nokey.parquet")


FILES = [
    ("nowhere.csv", "There is no file nowhere.csv."),
    ("empty.csv", "empty.csv is empty"),
    ("empty.jsonl", "empty.jsonl is empty"),
    ("noise.parquet", "noise.parquet: "),
    ("noise.arrow", "noise.arrow: "),
    ("old.feather", "old.feather: this is Feather version 1"),
    ("noise.csv.gz", "noise.csv.gz: "),
    ("cut.csv.gz", "cut.csv.gz: "),
    ("rows.xlsx", "rows.xlsx: the ending does not tell the format"),
    ("noending", "noending: the ending does not tell the format"),
    ("folder.csv", "folder.csv is a folder"),
    ("other.csv", "other.csv: There is no column 'colour'"),
    ("nokey.csv", "nokey.csv: The column 'order_id' is missing"),
    ("twice.csv", "twice.csv: a column stands twice"),
    ("word.csv", "word.csv: the column 'order_id': CSV conversion error to int64: invalid value 'word'"),
    ("ragged.csv", "ragged.csv: CSV parse error"),
    ("nullkey.csv", "nullkey.csv: The column 'order_id' must not be null"),
    ("cents.csv", "cents.csv: the column 'amount': Rescaling Decimal value would cause data loss"),
    ("latin.csv", "latin.csv: "),
    ("array.json", "array.json: it holds a JSON array. Give JSON lines"),
    ("bad.jsonl", "bad.jsonl: line 2: "),
    ("other.jsonl", "other.jsonl: line 2: there is no column 'colour'"),
    ("text.parquet", "text.parquet: The column 'order_id' is of type int64; the rows have string"),
    ("other.parquet", "other.parquet: There is no column 'colour'"),
    ("nullkey.parquet", "nullkey.parquet: The column 'order_id' must not be null"),
    ("nokey.parquet", "nokey.parquet: The column 'order_id' is missing"),
]


@pytest.mark.parametrize(("name", "phrase"), FILES)
def test_files(
    invoke: Any, shared_orders: str, files: Path, monkeypatch: pytest.MonkeyPatch, name: str, phrase: str
) -> None:
    monkeypatch.chdir(files)
    assert phrase in said(invoke("load", shared_orders, name, code=2))
    assert invoke("scan", shared_orders, "--json").stdout.count("\n") == 3


def test_a_bad_file_is_found_before_a_good_one_is_loaded(invoke: Any, shared_orders: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "good.csv").write_text("order_id\n100\n")
    for bad in ("other.parquet", "other.csv", "text.parquet", "nowhere.csv"):
        said(invoke("load", shared_orders, "good.csv", bad, code=2))
    assert invoke("scan", shared_orders, "--json").stdout.count("\n") == 3


def test_an_error_in_the_middle_says_what_became_of_the_rows_before(invoke: Any, orders: str, tmp_path: Path) -> None:
    lines = [f'{{"order_id": {number}}}' for number in range(10)] + ["oops", ""]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    line = said(invoke("load", orders, "rows.jsonl", "--batch-rows", 4, code=2))
    assert "line 11: 'oops' is not JSON" in line
    assert "8 rows before it were taken and may be stored" in line


@pytest.mark.parametrize("name", ["blank.jsonl", "noise.parquet", "empty.csv", "rows.xlsx"])
def test_columns_of_a_file_that_has_none(invoke: Any, tmp_path: Path, name: str) -> None:
    write_files(tmp_path)
    assert name in said(invoke("create", "new", "--schema-from", name, "--key", "order_id", code=2))
    assert name in said(invoke("load", "new", name, "--create", "--key", "order_id", code=2))
    assert not (tmp_path / "new").exists()


def test_a_key_without_create(invoke: Any, shared_orders: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    assert "--key belongs to --create" in said(invoke("load", shared_orders, "word.csv", "--key", "order_id", code=2))


# --- every error of the library -----------------------------------------------------------------------------

ERRORS = [
    (hg.InvalidInput("no good"), 2),
    (hg.TableNotFound("not there"), 3),
    (hg.TableExists("there"), 3),
    (hg.Unauthorized("refused"), 4),
    (hg.StoreUnavailable("away"), 4),
    (hg.UnsafeStore("overwrites"), 4),
    (hg.Fenced("fenced"), 5),
    (StaleEpoch("fenced, too"), 5),
    (hg.Corrupt("damaged"), 6),
    (hg.UnsupportedFormat("newer"), 6),
    (hg.Conflict("busy"), 7),
    (hg.OutcomeUnknown("who knows"), 7),
    (RuntimeError("a bug\nwith two lines"), 7),
]


@pytest.mark.parametrize(("error", "code"), ERRORS, ids=lambda one: type(one).__name__)
def test_exit_codes(invoke: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(hg, "open", fail)
    assert " ".join(str(error).split()) in said(invoke("inspect", "somewhere", code=code))
    shown = invoke("inspect", "somewhere", "--traceback", code=code)
    assert "Traceback (most recent call last)" in shown.stderr
    assert shown.stderr.splitlines()[-1].startswith("hedgerow: ")


def test_interrupted(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(hg, "open", interrupt)
    assert invoke("inspect", "somewhere", code=130).output == ""


def test_the_real_command_shows_no_traceback(run: Any) -> None:
    failed = run("get", "nowhere", "1", code=3)
    assert failed.stdout == ""
    assert failed.stderr.startswith("hedgerow: ")
    assert failed.stderr.count("\n") == 1
    assert "Traceback" in run("get", "nowhere", "1", "--traceback", code=3).stderr


def test_a_damaged_object_is_named(invoke: Any, orders: str, tmp_path: Path) -> None:
    stored = [path for path in Path(orders).rglob("*.sst") if path.parent.name == "wal"]
    assert stored
    for path in stored:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
    assert "wal/" in said(invoke("scan", orders, "--json", code=6))


def test_control_characters_in_an_error_do_not_reach_the_terminal() -> None:
    assert command_line._one_line("a\x1b[31mb\r\nc") == "a?[31mb c"
