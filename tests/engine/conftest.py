"""The engine's tests run twice: on a store that can create, and on one that cannot, with records beside it."""

from __future__ import annotations

from typing import Any

import pytest

from hedgerow.objects import Environment, MemoryStore, RetryPolicy, TwoPhaseStore
from hedgerow.objects.records import MemoryRecords


class TwoPhaseMemory(TwoPhaseStore):
    """A two-phase store in memory, with the memory store's extra verb."""

    def __init__(self) -> None:
        self.objects = MemoryStore()
        super().__init__(self.objects, MemoryRecords(), Environment(), RetryPolicy(give_up_after_s=1.0))

    def paths(self) -> tuple[str, ...]:
        return tuple(path for path in self.objects.paths() if path.count(".") <= 1)


KINDS = ["create-if-absent", "two-phase"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Only where a module takes its store from here: others would run the same thing twice."""
    chosen = any("kind_of_store" in mark.args for mark in metafunc.definition.iter_markers("parametrize"))
    if "kind_of_store" in metafunc.fixturenames and not chosen:
        both = hasattr(metafunc.module, "MemoryStore") or getattr(metafunc.module, "ON_BOTH_KINDS", False)
        metafunc.parametrize("kind_of_store", KINDS if both else KINDS[:1], indirect=True)


@pytest.fixture(autouse=True)
def kind_of_store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    kind = request.param
    if kind == "two-phase" and hasattr(request.module, "MemoryStore"):
        monkeypatch.setattr(request.module, "MemoryStore", TwoPhaseMemory)
    return kind
