"""The long versions, for a night: many more seeds in many more shapes, a SIGKILL at every single step on every kind of
store, and every model in full. Writes docs/soak.md.

``make soak`` or ``python tests/soak.py --minutes 60``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import secrets
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from hedgerow.testing import FaultPlan
from hedgerow.testing.simulation import Plan, run_seed

ROOT = Path(__file__).parent.parent
SHAPES = {
    "one partition, many writers": Plan(partitions=1, writers=5, operations=400),
    "the usual": Plan(),
    "two compactors, two collectors": Plan(writers=3, compactors=2, collectors=2, operations=400),
    "sleepers": Plan(faults=FaultPlan(pause_before=0.02, pause_after=0.02), compactors=2, collectors=2),
    "a terrible store": Plan(
        faults=FaultPlan(lost_response=0.08, lands_later=0.05, server_error=0.08, own_conflict=0.08)
    ),
    "crashes": Plan(faults=FaultPlan(crash_before=0.01, crash_after=0.01), writers=3),
    "a long run": Plan(operations=2_000, keys=20, partitions=4, writers=3, readers=2),
}


def one(job: tuple[str, int]) -> tuple[str, int, str | None, dict[str, int], int]:
    shape, seed = job
    outcome = run_seed(seed, SHAPES[shape])
    return shape, seed, outcome.violation, outcome.happened, outcome.operations


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    arguments = parser.parse_args()
    base = secrets.randbelow(10**9)
    deadline = time.monotonic() + arguments.minutes * 60
    runs: Counter[str] = Counter()
    operations: Counter[str] = Counter()
    happened: Counter[str] = Counter()
    broken: list[str] = []

    def jobs():  # type: ignore[no-untyped-def]
        seed = base
        while time.monotonic() < deadline and not broken:
            for shape in SHAPES:
                yield shape, seed
                seed += 1

    with multiprocessing.get_context("spawn").Pool(os.cpu_count() or 2) as pool:
        for shape, seed, violation, faults, count in pool.imap_unordered(one, jobs(), chunksize=1):
            runs[shape] += 1
            operations[shape] += count
            happened.update(faults)
            if violation:
                broken.append(f"{shape}, seed {seed}: {violation}")
                print(broken[-1], flush=True)
            if sum(runs.values()) % 100 == 0:
                print(f"{sum(runs.values())} runs, {sum(operations.values()):,} operations", flush=True)
    killing = [sys.executable, "-m", "pytest", "-q", "-n", "2", str(ROOT / "tests" / "engine" / "test_kill.py")]
    killed = subprocess.run(killing, env={**os.environ, "HEDGEROW_SOAK": "1"}, check=False).returncode
    if killed:
        broken.append("A process that was killed left something behind that the next one could not use.")
    models = subprocess.run(
        [sys.executable, str(ROOT / "models" / "run.py")], capture_output=True, text=True, check=False
    )
    print(models.stdout)
    write(arguments.minutes, runs, operations, happened, broken, models.stdout)
    return 1 if broken or models.returncode not in (0, 3) else 0


def write(
    minutes: float, runs: Counter[str], operations: Counter[str], happened: Counter[str], broken: list[str], models: str
) -> None:
    lines = [
        "# Soak",
        "",
        f"Written by `make soak`, {minutes:g} minutes on fresh seeds.",
        "",
        "| shape | seeds | operations |",
        "|---|---|---|",
        *(f"| {shape} | {runs[shape]:,} | {operations[shape]:,} |" for shape in SHAPES),
        "",
        "Faults: " + ", ".join(f"{name} {count:,}" for name, count in sorted(happened.items())) + ".",
        "",
        *(broken or ["No promise was broken."]),
        "",
        "```",
        models.strip() or "the models were not checked",
        "```",
        "",
    ]
    (ROOT / "docs" / "soak.md").write_text("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
