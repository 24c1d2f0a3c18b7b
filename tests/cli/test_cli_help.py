"""Help: every command tells what it does, and shows how."""

from __future__ import annotations

from typing import Any

import pytest

COMMANDS = ("create", "put", "delete", "get", "scan", "load", "inspect", "demo")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example(invoke: Any, command: str) -> None:
    text = invoke(command, "--help").stdout
    assert "Example" in text
    assert f"hedgerow {command}" in text.split("Example")[1]
    assert "--traceback" in text
    if command != "demo":
        assert "--option" in text
        assert "--json" in text


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_the_overview_lists_commands_and_exit_codes(invoke: Any, arguments: list[str]) -> None:
    text = invoke(*arguments).stdout
    for command in COMMANDS:
        assert f"\n  {command} " in text
    for line in ("0  done", "2  the command", "3  there is no such table", "5  fenced", "130  interrupted"):
        assert line in text


def test_the_real_command_has_help(run: Any) -> None:
    assert "hedgerow demo" in run("--help").stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_summaries_fit_on_a_line(invoke: Any, command: str) -> None:
    line = next(line for line in invoke().stdout.splitlines() if line.startswith(f"  {command} "))
    assert line.endswith(".")
    assert not line.endswith("...")
