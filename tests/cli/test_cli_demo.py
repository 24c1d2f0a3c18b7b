"""The demo: it shows the fence, and notices where the table is not what it must be."""

from __future__ import annotations

import json
from typing import Any

import pytest

import hedgerow as hg
from hedgerow.cli import demo


def test_the_demo_tells_its_story(run: Any) -> None:
    text = run("demo").stdout
    for phrase in (
        "takes over all partitions: epochs [2, 2, 2, 2]",
        "hedgerow.Fenced",
        "this writer's epoch 1 was fenced by epoch 2",
        "300 of its 300 unflushed orders were refused",
        "The table holds exactly the rows that were acknowledged.",
    ):
        assert phrase in " ".join(text.split())


def test_the_demo_in_numbers(invoke: Any) -> None:
    facts = json.loads(invoke("demo", "--json").stdout)
    assert facts["verified"] is True
    assert facts["differences"] == []
    assert facts["refused"] == facts["unflushed"] == demo.UNFLUSHED_ORDERS
    assert facts["rows_read"] == facts["rows_expected"]
    assert facts["epochs_before"] == [1] * demo.PARTITIONS
    assert facts["epochs_after"] == [2] * demo.PARTITIONS


def test_a_row_that_is_read_wrongly_fails_the_demo(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = hg.Table.get_many

    def lie(self: hg.Table, keys: Any) -> Any:
        return [None, *honest(self, keys)[1:]]

    monkeypatch.setattr(hg.Table, "get_many", lie)
    text = invoke("demo", code=1).stdout
    assert "order 1: read None" in text
    assert "NOT what was acknowledged" in text


def test_a_fence_that_does_not_hold_fails_the_demo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = hg.Writer.flush

    def forgive(self: hg.Writer) -> None:
        try:
            honest(self)
        except hg.Fenced:
            return

    monkeypatch.setattr(hg.Writer, "flush", forgive)
    assert demo.run(quiet=True) == 1
    assert capsys.readouterr().out == ""
