"""The command as a user runs it: in a process of its own, or, for the many small cases, inside the test's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import hedgerow as hg
from hedgerow.cli.main import app

HEDGEROW = str(Path(sys.executable).parent / "hedgerow")
PROCESS_TIMEOUT_S = 60

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Invoke = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the real command in the test's folder, and expect an exit code."""

    def run(
        *arguments: object, stdin: str | None = None, environment: dict[str, str] | None = None, code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [HEDGEROW, *map(str, arguments)],
            cwd=tmp_path,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PROCESS_TIMEOUT_S,
            env={**os.environ, "COLUMNS": "200", **(environment or {})},
        )
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Start the real command and leave it running."""

    def start(*arguments: object) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return subprocess.Popen([HEDGEROW, *map(str, arguments)], cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe)

    return start


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run the command inside this process, in the test's folder, and expect an exit code."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: object, stdin: str | bytes | None = None, code: int = 0) -> Any:
        result = CliRunner().invoke(app, [str(one) for one in arguments], input=stdin, prog_name="hedgerow")
        assert result.exit_code == code, f"exit code {result.exit_code}\n{result.output}\n{result.exception!r}"
        return result

    return invoke


@pytest.fixture
def orders(tmp_path: Path) -> str:
    """A table with three orders."""
    return orders_in(tmp_path / "orders")


@pytest.fixture(scope="session")
def shared_orders(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same, for tests that change nothing in it."""
    return orders_in(tmp_path_factory.mktemp("shared") / "orders")


def orders_in(folder: Path) -> str:
    amount = pa.decimal128(10, 2)
    schema = pa.schema([("order_id", pa.int64()), ("status", pa.string()), ("amount", amount)])
    with hg.create(folder, schema=schema, key="order_id", partitions=2) as table, table.writer() as writer:
        amounts = pa.array([Decimal("1.50"), Decimal("2.50"), Decimal("3.50")], amount)
        writer.write(pa.table({"order_id": [1, 2, 3], "status": ["new"] * 3, "amount": amounts}))
    return str(folder)
