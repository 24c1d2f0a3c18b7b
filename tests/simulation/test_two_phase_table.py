"""The same promises on a store that cannot create, with records in a database beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import hedgerow as hg
from hedgerow.testing.simulation import Plan, run_seed

BASE = int(os.environ.get("HEDGEROW_SEED", "0"))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_no_seed_breaks_a_promise_on_two_phase_writes(block: int) -> None:
    acknowledged = 0
    for at in range(25):
        seed = BASE + block * 25 + at
        outcome = run_seed(seed, Plan(two_phase=True))
        assert outcome.violation is None, f"seed {seed}, two-phase:\n{outcome.violation}"
        acknowledged += outcome.acknowledged
    assert acknowledged > 200


def test_a_table_with_records_is_not_opened_without_them(tmp_path: Path) -> None:
    """Two clients that ask different authorities who has a slot would both get it."""
    url, records = f"file://{tmp_path}/table", f"sqlite:///{tmp_path}/records.db"
    with hg.create(url, records=records, partitions=2).writer() as writer:
        writer.put(b"a", b"1")
    assert hg.open(url, records=records).get(b"a") == b"1"
    with pytest.raises(hg.InvalidInput, match="with records="):
        hg.open(url)
    hg.create(f"file://{tmp_path}/plain")
    with pytest.raises(hg.InvalidInput, match="without records"):
        hg.open(f"file://{tmp_path}/plain", records=records)


def test_a_takeover_on_two_phase_writes(tmp_path: Path) -> None:
    url, records = f"file://{tmp_path}/table", f"sqlite:///{tmp_path}/records.db"
    table = hg.create(url, records=records, partitions=1)
    first = table.writer(name="first")
    first.put(b"a", b"first")
    first.flush()
    with hg.open(url, records=records).writer(name="second") as second:
        assert second.get(b"a") == b"first"
        second.put(b"a", b"second")
    first.put(b"a", b"zombie")
    with pytest.raises(hg.Fenced):
        first.flush()
    table.refresh()
    assert table.get(b"a") == b"second"
