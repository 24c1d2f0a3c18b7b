"""Every safeguard removed, one at a time: then, and only then, something must break.

A safeguard that can be removed without anything breaking is either not needed or not tested. The table in
docs/promises.md lists them; the names there are the names here.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from safeguards import SWITCHES

from hedgerow.errors import HedgerowError
from hedgerow.testing import Deadlock
from hedgerow.testing.scripts import ScriptError, run_script
from hedgerow.testing.simulation import Plan, run_seed

SCRIPTS = Path(__file__).parent.parent / "engine" / "scripts"

# Found by random runs, within this many seeds.
BY_SEEDS = {
    "without_own_write_recognition": (60, Plan()),
    "probing_for_the_newest_entry": (80, Plan()),
    "acknowledging_out_of_order": (60, Plan()),
    "reading_beyond_a_gap": (80, Plan()),
    "publishing_over_a_moved_replay_point": (120, Plan(compactors=2)),
    "without_the_staging_floor": (120, Plan(compactors=2, collectors=2)),
    "keeping_no_lost_answers_apart": (60, Plan()),
}

# Found by a script that walks straight into the hole.
BY_SCRIPT = {
    "counting_fences_below_the_replay_point": "8-a-fence-into-a-collected-hole-counts-for-nothing",
    "without_reading_the_epoch_again": "9-the-epoch-is-read-again-after-the-fence",
    "with_a_single_fence": "4-two-writes-in-flight",
    "collecting_fences": "10-an-idle-writer-wakes-up-years-later",
    "acknowledging_out_of_order": "4-two-writes-in-flight",
}

# Shown where they live: the log's own simulation, and a reader that is interrupted at the worst moment.
ELSEWHERE = {
    "without_the_listing_after_a_create": "tests/objects/test_log.py",
    "without_looking_at_the_manifest_after_the_tail": "tests/engine/test_reader.py",
}


def test_every_switch_has_its_test() -> None:
    assert set(SWITCHES) == {*BY_SEEDS, *BY_SCRIPT, *ELSEWHERE}


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_SEEDS)
def test_without_it_a_seed_breaks_a_promise(name: str) -> None:
    limit, plan = BY_SEEDS[name]
    with SWITCHES[name]():
        for seed in range(limit):
            try:
                if run_seed(seed, plan).violation is not None:
                    return
            except (HedgerowError, Deadlock):
                return  # the engine itself noticed that it was being broken; any other error is the switch's own
    pytest.fail(f"{limit} seeds ran well without this safeguard")


@pytest.mark.parametrize("name", BY_SCRIPT)
def test_without_it_a_script_goes_wrong(name: str) -> None:
    script = (SCRIPTS / f"{BY_SCRIPT[name]}.txt").read_text()
    run_script(script)
    with SWITCHES[name](), pytest.raises((ScriptError, HedgerowError)):
        run_script(script)


@pytest.mark.parametrize("harm", sorted((Path(__file__).parent / "harm").glob("*.txt")), ids=lambda path: path.stem)
def test_without_it_an_acknowledged_row_is_lost(harm: Path) -> None:
    """The script ends with a row that was acknowledged and that no reader sees: it only runs with the safeguard gone."""
    with pytest.raises(ScriptError):
        run_script(harm.read_text())
    with SWITCHES[harm.stem]():
        run_script(harm.read_text())
