"""Replay a seed: ``python -m hedgerow.testing SEED [--trace | --digest] [--operations N]``."""

from __future__ import annotations

import argparse
import sys

from hedgerow.testing.simulation import Plan, run_seed


def main() -> int:
    """Run one seed and say what came of it; exit code 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m hedgerow.testing", description="Replay one simulated run.")
    parser.add_argument("seed", type=int, help="the run to replay")
    parser.add_argument("--operations", type=int, default=Plan().operations, help="how many operations it has")
    parser.add_argument("--trace", action="store_true", help="print every request that reached the store")
    parser.add_argument("--digest", action="store_true", help="print only a hash of everything that happened")
    arguments = parser.parse_args()
    trace: list[str] | None = [] if arguments.trace else None
    outcome = run_seed(arguments.seed, Plan(operations=arguments.operations), trace=trace)
    if arguments.digest:
        print(outcome.digest)
        return 0
    for line in trace or ():
        print(line)
    print(f"seed {outcome.seed}: {outcome.operations} operations, {outcome.acknowledged} acknowledged, "
          f"{outcome.fenced} fenced, {outcome.reads} reads, {outcome.takeovers} takeovers")  # fmt: skip
    print("faults:", ", ".join(f"{name} {count}" for name, count in sorted(outcome.happened.items())))
    print(outcome.violation or "every promise held")
    return 1 if outcome.violation else 0


if __name__ == "__main__":
    sys.exit(main())
