"""The races between writers, as scripts that a person can read and check against the protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from hedgerow.testing.scripts import ScriptError, run_script

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_writers_race_as_written(script: Path) -> None:
    assert run_script(script.read_text()) > 5


def test_a_script_that_claims_too_much_fails_and_names_the_line() -> None:
    text = SCRIPTS[0].read_text().replace("refused c=1", "acknowledged c=1")
    with pytest.raises(ScriptError, match=r"acknowledged c=1: c=1 is refused"):
        run_script(text)


@pytest.mark.parametrize(
    "change",
    [
        ("slot 4  writer 2", "slot 5  writer 2"),
        ("at epoch 2", "at epoch 3"),
        ("reader a=1 b=1", "reader a=1"),
    ],
)
def test_every_kind_of_step_can_fail(change: tuple[str, str]) -> None:
    with pytest.raises(ScriptError):
        run_script(SCRIPTS[0].read_text().replace(*change))


def test_a_line_that_is_no_step_is_refused() -> None:
    with pytest.raises(ScriptError, match="not a step"):
        run_script("writer 1 sings")
