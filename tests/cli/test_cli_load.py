"""Loading files: what is in the file is in the table, in every format and for every type."""

from __future__ import annotations

import datetime as dt
import decimal
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import hedgerow as hg
from hedgerow.cli import progress as progress_module
from hedgerow.cli.progress import LoadProgress

ROWS = 1_000
NOON = dt.datetime(2025, 3, 31, 12, tzinfo=dt.UTC)


def plain_rows() -> pa.Table:
    numbers = list(range(ROWS))
    return pa.table(
        {
            "region": pa.array(["de" if number % 2 else "f,r" for number in numbers]),
            "order_id": pa.array(numbers, pa.int64()),
            "amount": pa.array([decimal.Decimal(number).scaleb(-2) for number in numbers], pa.decimal128(10, 2)),
            "day": pa.array([dt.date(2025, 1, 1) + dt.timedelta(days=number % 300) for number in numbers]),
            "at": pa.array([NOON + dt.timedelta(seconds=number) for number in numbers], pa.timestamp("us", "UTC")),
            "note": pa.array([None if number % 3 else f'say "{number}"\nor ü' for number in numbers]),
            "paid": pa.array([number % 2 == 0 for number in numbers]),
            "weight": pa.array([number / 7 for number in numbers]),
        }
    )


def json_lines(rows: pa.Table) -> bytes:
    def plain(value: Any) -> Any:
        return (
            value.hex()
            if isinstance(value, bytes)
            else value.isoformat()
            if hasattr(value, "isoformat")
            else str(value)
        )

    return "".join(json.dumps(row, default=plain) + "\n" for row in rows.to_pylist()).encode()  # fmt: skip


def csv_bytes(rows: pa.Table, delimiter: str = ",") -> bytes:
    buffer = io.BytesIO()
    pyarrow.csv.write_csv(rows, buffer, pyarrow.csv.WriteOptions(delimiter=delimiter))
    return buffer.getvalue()


def write_stream(rows: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=100)


def write_arrow(rows: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=100)


WRITERS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "rows.parquet": lambda rows, path: pyarrow.parquet.write_table(rows, path, row_group_size=300),
    "rows.csv": lambda rows, path: path.write_bytes(csv_bytes(rows)),
    "rows.jsonl": lambda rows, path: path.write_bytes(json_lines(rows)),
    "rows.arrow": write_arrow,
    "rows.arrows": write_stream,
    "rows.feather": lambda rows, path: pyarrow.feather.write_feather(rows, path),
    "rows.tsv": lambda rows, path: path.write_bytes(csv_bytes(rows, "\t")),
    "rows.csv.gz": lambda rows, path: path.write_bytes(gzip.compress(csv_bytes(rows))),
    "rows.ndjson.gz": lambda rows, path: path.write_bytes(gzip.compress(json_lines(rows))),
}
IN_A_PROCESS = ("rows.parquet", "rows.csv", "rows.jsonl", "rows.arrow")


def stored(folder: Path) -> pa.Table:
    with hg.open(folder / "table") as table:
        return table.to_arrow()


@pytest.mark.parametrize("name", WRITERS)
def test_every_format(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> None:
    rows = plain_rows()
    hg.create(tmp_path / "table", schema=rows.schema, key=["region", "order_id"], partitions=3).close()
    WRITERS[name](rows, tmp_path / name)
    command = request.getfixturevalue("run" if name in IN_A_PROCESS else "invoke")
    closing = command("load", "table", name, "--batch-rows", 270).stdout
    assert closing.startswith("loaded 1,000 rows (")
    assert "from 1 file in " in closing
    assert closing.endswith(" rows/s\n")
    assert stored(tmp_path).equals(rows.sort_by([("region", "ascending"), ("order_id", "ascending")]))


@pytest.mark.parametrize("name", [name for name in WRITERS if "tsv" not in name and "gz" not in name])
def test_a_table_made_for_a_file(invoke: Any, tmp_path: Path, name: str) -> None:
    rows = pa.table({"id": list(range(50)), "name": [f"name {number}" for number in range(50)]})
    WRITERS[name](rows, tmp_path / name)
    facts = json.loads(invoke("load", "table", name, "--create", "--key", "id", "--json").stdout)
    assert (facts["rows"], facts["files"]) == (50, 1)
    assert facts["file_bytes"] == (tmp_path / name).stat().st_size
    assert facts["rows_per_second"] > 0
    assert stored(tmp_path).equals(rows)
    invoke("load", "table", name, "--create", "--key", "id", code=3)
    invoke("create", "other", "--schema-from", name, "--key", "id")
    assert hg.open(tmp_path / "other").schema == rows.schema


OTHER_TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.binary(), [b"\x00\xff", b"", None]),
    (pa.binary(2), [b"ab", b"\xff\x00", None]),
    (pa.timestamp("ms"), [dt.datetime(2025, 3, 31, 12, 0, 0, 500_000), None]),
    (pa.timestamp("s", "Europe/Berlin"), [NOON, None]),
    (pa.time32("ms"), [dt.time(1, 2, 3, 4_000), None]),
    (pa.time64("us"), [dt.time(1, 2, 3, 4), None]),
    (pa.duration("us"), [dt.timedelta(days=-1, microseconds=5), None]),
    (pa.date64(), [dt.date(1969, 12, 31), None]),
    (pa.float32(), [0.5, None]),
    (pa.float16(), [0.5, None]),
    (pa.uint64(), [2**64 - 1, None]),
    (pa.decimal256(50, 3), [decimal.Decimal("-1.125"), None]),
    (pa.list_(pa.date32()), [[dt.date(2025, 3, 31), None], [], None]),
    (
        pa.struct([("a", pa.int64()), ("b", pa.binary())]),
        [{"a": 1, "b": b"\xff"}, {"a": None, "b": None}, None],
    ),
    (pa.map_(pa.string(), pa.decimal128(5, 1)), [[("a", decimal.Decimal("1.5"))], [], None]),
]


@pytest.mark.parametrize(("dtype", "values"), OTHER_TYPES, ids=str)
def test_a_column_of_every_type_from_a_file_to_json_and_back(
    invoke: Any, tmp_path: Path, dtype: pa.DataType, values: list[Any]
) -> None:
    rows = pa.table({"id": list(range(len(values))), "value": pa.array(values, dtype)})
    pyarrow.parquet.write_table(rows, tmp_path / "rows.parquet")
    invoke("create", "one", "--schema-from", "rows.parquet", "--key", "id", "--partitions", 1)
    invoke("create", "table", "--schema-from", "rows.parquet", "--key", "id", "--partitions", 1)
    invoke("load", "one", "rows.parquet")
    (tmp_path / "rows.jsonl").write_text(invoke("scan", "one", "--json").stdout)
    invoke("load", "table", "rows.jsonl")
    assert stored(tmp_path).to_pylist() == rows.to_pylist()
    assert len(invoke("scan", "one").stdout.splitlines()) == len(values) + 2


def test_a_csv_file_with_types_that_are_written_as_text(invoke: Any, tmp_path: Path) -> None:
    columns = ("id:int64", "data:binary", "at:timestamp[ms]", "length:duration", "tags:list<int64>")
    arguments = [one for column in columns for one in ("--column", column)]
    invoke("create", "table", *arguments, "--key", "id")
    (tmp_path / "rows.csv").write_text(
        'id,data,at,length,tags\n1,00ff,2025-03-31 12:00:00.500000,PT5S,"[1, 2]"\n2,,,,\n'
    )
    invoke("load", "table", "rows.csv")
    assert stored(tmp_path).to_pylist() == [
        {
            "id": 1,
            "data": b"\x00\xff",
            "at": dt.datetime(2025, 3, 31, 12, 0, 0, 500_000),
            "length": dt.timedelta(seconds=5),
            "tags": [1, 2],
        },
        {"id": 2, "data": None, "at": None, "length": None, "tags": None},
    ]
    (tmp_path / "bad.csv").write_text("id,data\n3,00ff\n4,xyz\n")
    assert (
        "bad.csv: the column 'data' is of type binary; 'xyz' is not"
        in invoke("load", "table", "bad.csv", code=2).stderr
    )


def test_empty_fields_and_empty_strings_in_csv(invoke: Any, tmp_path: Path) -> None:
    invoke("create", "table", "--column", "id:int64", "--column", "name:string", "--key", "id")
    (tmp_path / "rows.csv").write_bytes('\ufeffid,name\n1,\n2,""\n3,NA\n4,null\n'.encode())
    invoke("load", "table", "rows.csv")
    assert stored(tmp_path)["name"].to_pylist() == [None, "", "NA", "null"]


def test_values_are_converted_where_nothing_is_lost(invoke: Any, tmp_path: Path) -> None:
    invoke("create", "table", "--column", "id:int64", "--column", "value:int8", "--key", "id")
    small = pa.table({"id": pa.array([1], pa.uint16()), "value": pa.array([5], pa.int64())})
    pyarrow.parquet.write_table(small, tmp_path / "small.parquet")
    invoke("load", "table", "small.parquet")
    assert stored(tmp_path).to_pylist() == [{"id": 1, "value": 5}]
    pyarrow.parquet.write_table(pa.table({"id": [2], "value": [500]}), tmp_path / "large.parquet")
    assert "the rows' int64 does not fit" in invoke("load", "table", "large.parquet", code=2).stderr


def test_several_files_columns_left_out_and_a_format_that_is_told(invoke: Any, tmp_path: Path) -> None:
    invoke("create", "table", "--column", "id:int64", "--column", "name:string", "--key", "id")
    (tmp_path / "one.txt").write_text("name,id\nhazel,1\nrowan,2\n")
    (tmp_path / "two.txt").write_text("id\n2\n3\n")
    (tmp_path / "none.txt").write_text("id,name\n")
    done = invoke("load", "table", "one.txt", "two.txt", "none.txt", "--format", "csv")
    assert "loaded 4 rows" in done.stdout
    assert "from 3 files" in done.stdout
    assert stored(tmp_path).to_pylist() == [
        {"id": 1, "name": "hazel"},
        {"id": 2, "name": None},
        {"id": 3, "name": None},
    ]


def test_json_lines_take_the_columns_of_all_lines(invoke: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(
        '{"id": 1}\n\n{"id": 2, "value": 1.5, "when": "2025-03-31"}\n{"id": 3, "value": 2}'
    )
    invoke("load", "table", "rows.jsonl", "--create", "--key", "id")
    assert stored(tmp_path).schema == pa.schema([("id", pa.int64()), ("value", pa.float64()), ("when", pa.string())])
    (tmp_path / "mixed.jsonl").write_text('{"id": 1}\n{"id": "one"}\n')
    failed = invoke("load", "mixed", "mixed.jsonl", "--create", "--key", "id", code=2)
    assert "The column 'id' holds values of several kinds" in failed.stderr


# --- progress -----------------------------------------------------------------------------------------------


def test_without_a_terminal_there_are_no_control_codes(run: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id\n" + "".join(f"{number}\n" for number in range(5_000)))
    done = run("load", "table", "rows.csv", "--create", "--key", "id", "--batch-rows", 100)
    assert "\x1b" not in done.stdout + done.stderr
    assert "\r" not in done.stdout + done.stderr
    assert done.stderr == ""


def test_without_a_terminal_a_line_appears_every_few_seconds() -> None:
    now_s = [0.0]
    stream = io.StringIO()
    with LoadProgress(4_000_000, stream=stream, clock=lambda: now_s[0]) as progress:
        for step in range(1, 13):
            now_s[0] = step
            progress.advance(1_000, step * 300_000, "orders.csv")
    assert stream.getvalue().splitlines() == [
        "orders.csv: 5,000 rows, 1,000 rows/s, 1.5 MB of 4.0 MB",
        "orders.csv: 10,000 rows, 1,000 rows/s, 3.0 MB of 4.0 MB",
    ]


def test_quiet_is_quiet(invoke: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "LINE_INTERVAL_S", 0.0)
    (tmp_path / "rows.csv").write_text("id\n1\n")
    loud = invoke("load", "table", "rows.csv", "--create", "--key", "id")
    assert "rows.csv: 1 rows" in loud.stderr
    assert "loaded 1 rows" in loud.stdout
    assert invoke("load", "table", "rows.csv", "--quiet").output == ""
    assert invoke("-q", "load", "table", "rows.csv").output == ""


def test_on_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with LoadProgress(1_000) as progress:
        progress.advance(10, 500, "orders.csv")
    assert "orders.csv" in stream.getvalue()
    assert "50%" in stream.getvalue()
    assert "\x1b[" in stream.getvalue()
