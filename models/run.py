#!/usr/bin/env python3
"""Check the models in this folder with Spin, and compare every outcome with what is expected of it.

    python models/run.py                      every check; about ten minutes on one core, up to 2 GB
    python models/run.py --quick              a selection that takes less than half a minute
    python models/run.py one-slot spec        only the named ones
    python models/run.py --list               what there is, and why
    python models/run.py --trace spec         the shortest way to break it, one step a line

Leaves with 0 if everything is as expected, 1 if something is not, 3 if Spin or a C compiler is missing.
"""

from __future__ import annotations

import argparse
import enum
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODEL = HERE / "writer_fencing.pml"
BUILD = HERE / "build"

MEMORY_LIMIT_MB = 4000
DEPTH_LIMIT = 2000
TIME_LIMIT_SECONDS = 600.0


class Expect(enum.Enum):
    """What a check is for."""

    HOLDS = "The protocol holds: no error, and every reachable state was visited"
    SPARE = "A safeguard taken away, and it still holds: another one covers for it"
    BREAKS = "A safeguard taken away, and it breaks: Spin must find a counterexample"
    REACHED = "Witnesses: Spin must find a way to a state that matters, or the checks above say nothing"

    @property
    def exhaustive(self) -> bool:
        """Whether the check passes by visiting everything and finding nothing."""
        return self in (Expect.HOLDS, Expect.SPARE)


@dataclass(frozen=True)
class Check:
    """One configuration of the model, and what is expected of it."""

    name: str
    expect: Expect
    flags: tuple[str, ...]
    why: str
    breaks: tuple[str, ...] = ()
    """The properties of which one must be the broken one."""
    quick: bool = True


@dataclass(frozen=True)
class Outcome:
    """What Spin said."""

    states: int
    depth: int
    seconds: float
    megabytes: float
    errors: int
    truncated: str
    """Why the search did not visit everything; empty if it did."""
    steps: tuple[str, ...]
    """The counterexample, a line a step; empty if there is none."""
    broken: str
    """The property that it breaks."""


class CheckFailed(Exception):
    """Spin, the compiler or the verifier could not do its work at all."""


def holds(name: str, why: str, *flags: str, quick: bool = True) -> Check:
    """A configuration of the protocol as it is meant to be."""
    return Check(name, Expect.HOLDS, (*flags, "EXPECT_NOTHING_IGNORED"), why, quick=quick)


def spare(name: str, why: str, *flags: str, quick: bool = True) -> Check:
    """The protocol without one safeguard that turns out to be a second line of defence."""
    return Check(name, Expect.SPARE, flags, why, quick=quick)


def breaks(name: str, why: str, *flags: str, by: Sequence[str]) -> Check:
    """The protocol without one safeguard that it cannot do without."""
    return Check(name, Expect.BREAKS, flags, why, tuple(by))


def reached(name: str, why: str, *flags: str, by: str, quick: bool = True) -> Check:
    """A state that must be reachable."""
    return Check(name, Expect.REACHED, flags, why, (by,), quick)


TWO = "PARALLEL=2"
COLLECTING = ("COLLECT_FENCES", "LOOK_AT_EPOCH_AND_REPLAY_POINT", "ROWS=1")

CHECKS: tuple[Check, ...] = (
    holds("one-slot", "one slot in flight", "SLOTS=10"),
    holds("two-slots", "two slots in flight", TWO, "SLOTS=13"),
    holds("three-slots", "three slots in flight", "PARALLEL=3", "SLOTS=16", quick=False),
    holds("two-slots-sliding", "more rows than slots in flight", TWO, "ROWS=3", "SLOTS=16", quick=False),
    holds("four-writers", "one more writer", "WRITERS=4", "ROWS=1", "SLOTS=12", quick=False),
    holds("lost-responses", "any create may succeed unheard", "LOST_RESPONSES", "SLOTS=11", quick=False),
    holds("lost-responses-two", "the same, two slots in flight", "LOST_RESPONSES", TWO, "SLOTS=13", quick=False),
    holds("lowering", "writer 2 lowers two slots to one", "LOWER_PARALLEL", TWO, "SLOTS=14", quick=False),
    holds("raising", "writer 2 raises one slot to two", "RAISE_PARALLEL", "SLOTS=12", quick=False),
    holds(
        "two-compactors",
        "two compactors that stall between reading and publishing",
        "STALLING_COMPACTOR",
        "COMPACTORS=2",
        "SLOTS=8",
        quick=False,
    ),
    holds("reader", "a slow reader that confirms", "READER", "WRITERS=2", "SLOTS=8"),
    holds("reader-two", "the same, two slots in flight", "READER", "WRITERS=2", TWO, "SLOTS=12", quick=False),
    holds("reader-three-writers", "the same, three writers", "READER", "ROWS=1", "SLOTS=8", quick=False),
    holds(
        "reader-fences",
        "a reader that confirms only what holds a fence: a prefix, perhaps an old one",
        "READER",
        "READER_CONFIRMS_FENCES",
        "WRITERS=2",
        "SLOTS=10",
        quick=False,
    ),
    Check(
        "collecting-fences",
        Expect.HOLDS,
        (*COLLECTING, "SLOTS=8"),
        "fences are collected; each create is followed by a look at epoch and replay point",
        quick=False,
    ),
    Check(
        "collecting-fences-two",
        Expect.HOLDS,
        (*COLLECTING, TWO, "SLOTS=9"),
        "the same, two slots in flight",
        quick=False,
    ),
    spare("note-after-claim", "the open slot noted after the claim", "NOTE_AFTER_CLAIM", quick=False),
    spare("ignore-nothing", "no row is ever ignored", "IGNORE_NOTHING", TWO, "SLOTS=12", quick=False),
    spare("cut-runs", "the replay point may cut a run of fences", "CUT_RUNS", TWO, "SLOTS=12", quick=False),
    spare(
        "scattered-fences",
        "a walk goes on counting after a step over",
        "SCATTERED_FENCES",
        TWO,
        "SLOTS=12",
        quick=False,
    ),
    spare(
        "forget-fence-epoch",
        "the manifest does not keep the epoch of the fences it passed",
        "FORGET_FENCE_EPOCH",
        TWO,
        "SLOTS=12",
        quick=False,
    ),
    spare(
        "walk-again-from-listing",
        "a walk starts again at a slot listed after the claim",
        "WALK_AGAIN_FROM_LISTING",
        TWO,
        "SLOTS=12",
        quick=False,
    ),
    spare(
        "one-write-too-many-kept",
        "an unanswered create no longer counts as in flight; but ignored rows are never collected",
        "ONE_WRITE_TOO_MANY",
        "KEEP_IGNORED_ROWS",
        quick=False,
    ),
    spare(
        "lower-before-fences-kept",
        "max_parallel_writes lowered together with the claim; but ignored rows are never collected",
        "LOWER_BEFORE_FENCES",
        "KEEP_IGNORED_ROWS",
        TWO,
        "SLOTS=12",
        quick=False,
    ),
    spare(
        "five-at-once",
        "the first five at once",
        "NOTE_AFTER_CLAIM",
        "IGNORE_NOTHING",
        "CUT_RUNS",
        "SCATTERED_FENCES",
        "FORGET_FENCE_EPOCH",
        TWO,
        "SLOTS=10",
        quick=False,
    ),
    breaks("spec", "no safeguard at all", "SPEC", "SLOTS=8", by=("durable", "fenced", "monotone")),
    breaks(
        "spec-in-turn",
        "the same, though no two takeovers overlap: the idle writer",
        "SPEC",
        "TAKEOVERS_DO_NOT_OVERLAP",
        "SLOTS=8",
        by=("durable", "fenced"),
    ),
    breaks(
        "collect-fences",
        "fences are collected like rows",
        "COLLECT_FENCES",
        "SLOTS=8",
        by=("durable", "fenced"),
    ),
    breaks(
        "collect-fences-look-at-epoch",
        "fences are collected, and the look after a create sees only the epoch",
        "COLLECT_FENCES",
        "LOOK_AT_EPOCH",
        "SLOTS=8",
        by=("durable",),
    ),
    breaks("no-recheck", "no second look after the fences", "NO_RECHECK", "SLOTS=8", by=("durable", "fenced")),
    breaks(
        "no-epoch-recheck",
        "the second look passes over the epoch",
        "NO_EPOCH_RECHECK",
        "SLOTS=8",
        by=("durable", "fenced"),
    ),
    breaks(
        "fence-below-replay-counts",
        "the second look passes over the replay point",
        "FENCE_BELOW_REPLAY_COUNTS",
        "SLOTS=8",
        by=("durable", "fenced"),
    ),
    breaks(
        "reader-counts-fence-below-replay",
        "readers heed fences at or below the replay point",
        "READER_COUNTS_FENCES_BELOW_REPLAY",
        "SLOTS=8",
        by=("durable", "stable"),
    ),
    breaks(
        "ack-out-of-order",
        "rows are acknowledged as they are created",
        "ACK_OUT_OF_ORDER",
        TWO,
        "SLOTS=8",
        by=("no_gap", "durable"),
    ),
    breaks(
        "one-fence-for-two",
        "one fence, two slots in flight",
        "ONE_FENCE_FOR_K2",
        TWO,
        "SLOTS=8",
        by=("fenced",),
    ),
    breaks(
        "one-write-too-many",
        "an unanswered create no longer counts as in flight",
        "ONE_WRITE_TOO_MANY",
        "SLOTS=8",
        by=("durable",),
    ),
    breaks(
        "lower-before-fences",
        "max_parallel_writes lowered together with the claim",
        "LOWER_BEFORE_FENCES",
        TWO,
        "SLOTS=8",
        by=("durable",),
    ),
    breaks(
        "walk-again-in-the-way",
        "a walk starts again at a slot listed after the claim: a loser's fence stands in the owner's next slot",
        "WALK_AGAIN_FROM_LISTING",
        "EXPECT_NOTHING_IGNORED",
        TWO,
        "SLOTS=8",
        by=("nothing_in_the_way",),
    ),
    breaks(
        "reader-trusts-tail",
        "a reader goes back to the manifest only when a slot vanished",
        "READER",
        "READER_TRUSTS_TAIL",
        "WRITERS=2",
        "ROWS=1",
        "SLOTS=8",
        by=("prefix",),
    ),
    breaks(
        "refuse-without-look",
        "a slot taken by a newer epoch is reported as 'not written'",
        "LOST_RESPONSES",
        "REFUSE_WITHOUT_LOOK",
        "WRITERS=2",
        "SLOTS=8",
        by=("truthful",),
    ),
    reached(
        "everybody-finishes",
        "every row acknowledged and carried",
        "WITNESS_ALL_ACKNOWLEDGED",
        "SLOTS=9",
        by="not_all_acknowledged",
    ),
    reached(
        "everybody-finishes-two",
        "the same, two slots in flight",
        "WITNESS_ALL_ACKNOWLEDGED",
        TWO,
        "SLOTS=12",
        by="not_all_acknowledged",
        quick=False,
    ),
    reached(
        "stray-fence",
        "a slow walker's fence lands in a collected slot",
        "WITNESS_STRAY_FENCE",
        "WRITERS=2",
        "SLOTS=8",
        by="no_stray_fence",
    ),
)


def spin_flags(check: Check) -> list[str]:
    """The check's flags as Spin wants them."""
    return [f"-D{flag}" for flag in check.flags]


def call(command: Sequence[str], folder: Path) -> str:
    """Run one tool in `folder`, and give back what it printed."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIME_LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise CheckFailed(f"{command[0]} took longer than {TIME_LIMIT_SECONDS:.0f} s") from late
    if done.returncode != 0 and Path(command[0]).name != "pan":
        raise CheckFailed(f"{' '.join(command)} failed:\n{done.stdout}")
    return done.stdout


def verify(check: Check) -> Outcome:
    """Generate the verifier, compile it, run it, and read its report."""
    folder = BUILD / check.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    call(["spin", "-a", *spin_flags(check), str(MODEL)], folder)
    # Nearly every step touches the store, so partial-order reduction gains nothing here; without it there is one
    # argument fewer to trust. A short search is compiled in a hurry. Counterexamples are made as short as can be.
    optimize = "-O0" if not check.expect.exhaustive else "-O1" if check.quick else "-O2"
    search, options = (["-DREACH"], ["-i", "-w20"]) if check.expect is Expect.BREAKS else (["-DCOLLAPSE"], [])
    defines = ["-DSAFETY", "-DNOREDUCE", *search, f"-DMEMLIM={MEMORY_LIMIT_MB}"]
    call(["gcc", optimize, "-w", *defines, "-o", "pan", "pan.c"], folder)
    started = time.monotonic()
    report = call([str(folder / "pan"), f"-m{DEPTH_LIMIT}", *options], folder)
    seconds = time.monotonic() - started
    (folder / "report.txt").write_text(report)
    return read_report(report, seconds, *replay(check))


def replay(check: Check) -> tuple[list[str], str]:
    """The counterexample that was found, a line a step, and the property that it breaks; both empty if none was."""
    folder = BUILD / check.name
    trails = list(folder.glob("*.trail"))
    if not trails:
        return [], ""
    newest = max(trails, key=lambda trail: trail.stat().st_mtime_ns)
    steps: list[str] = []
    for line in call(["spin", "-t", "-k", newest.name, *spin_flags(check), str(MODEL)], folder).splitlines():
        if failed := re.search(r"text of failed assertion: assert\((.+)\)", line):
            return steps, failed.group(1).strip("()")
        if line.strip().startswith(("writer ", "the ")):
            steps.append(line.strip())
    return steps, ""


def read_report(report: str, seconds: float, steps: Sequence[str], broken: str) -> Outcome:
    """Find the numbers in the verifier's report.

    >>> text = "State-vector 9 byte, depth reached 7, errors: 0\\n  12 states, stored\\n 1.5 total actual memory usage"
    >>> read_report(text, 0.5, [], "")
    Outcome(states=12, depth=7, seconds=0.5, megabytes=1.5, errors=0, truncated='', steps=(), broken='')
    """

    def number(pattern: str) -> float:
        found = re.search(pattern, report)
        if found is None:
            raise CheckFailed(f"the verifier's report lacks {pattern!r}:\n{report}")
        return float(found.group(1))

    errors = int(number(r"errors: (\d+)"))
    truncated = ""
    if "max search depth too small" in report:
        truncated = "depth limit hit"
    elif errors == 0 and "Search not completed" in report:
        truncated = "memory limit hit" if "limit" in report else "not completed"
    return Outcome(
        states=int(number(r"([\d.e+]+) states, stored")),
        depth=int(number(r"depth reached (\d+)")),
        seconds=seconds,
        megabytes=number(r"([\d.]+)\s+total actual memory usage"),
        errors=errors,
        truncated=truncated,
        steps=tuple(steps),
        broken=broken,
    )


def judge(check: Check, outcome: Outcome) -> tuple[bool, str]:
    """Whether the outcome is the expected one, and how to say it."""
    if check.expect.exhaustive:
        if outcome.errors:
            return False, f"UNEXPECTED: breaks {outcome.broken or 'something'}"
        if outcome.truncated:
            return False, f"UNEXPECTED: search truncated, {outcome.truncated}"
        return True, "holds, exhaustive"
    if not outcome.errors:
        return False, "UNEXPECTED: no counterexample"
    if outcome.broken not in check.breaks:
        return False, f"UNEXPECTED: breaks {outcome.broken or 'something'}, not {' or '.join(check.breaks)}"
    verb = "reached" if check.expect is Expect.REACHED else f"breaks {outcome.broken}"
    return True, f"{verb} in {len(outcome.steps)} steps"


def run(checks: Sequence[Check]) -> bool:
    """Run the checks, print the table, and tell whether all is as expected."""
    width = max(len("configuration"), *(len(check.name) for check in checks))
    failures: list[str] = []
    for expect in Expect:
        group = [check for check in checks if check.expect is expect]
        if not group:
            continue
        print(f"\n{expect.value}.")
        print(f"{'configuration':<{width}}  {'states':>11}  {'depth':>5}  {'seconds':>7}  {'MB':>5}  verdict")
        for check in group:
            print(f"{check.name:<{width}}  ", end="", flush=True)
            try:
                outcome = verify(check)
            except CheckFailed as problem:
                failures.append(check.name)
                print(f"FAILED: {problem}")
                continue
            expected, verdict = judge(check, outcome)
            if not expected:
                failures.append(check.name)
            print(
                f"{outcome.states:>11,}  {outcome.depth:>5}  {outcome.seconds:>7.1f}  {outcome.megabytes:>5.0f}  {verdict}",
                flush=True,
            )
    print(f"\nNot as expected: {', '.join(failures)}." if failures else f"\nAll {len(checks)} as expected.")
    return not failures


def trace(check: Check) -> bool:
    """Print the counterexample, one step a line."""
    outcome = verify(check)
    print(f"{check.name}: {check.why}")
    for step in outcome.steps:
        print(f"  {step}")
    print(f"  -> {outcome.broken} does not hold" if outcome.steps else f"  none in {outcome.states:,} states")
    return judge(check, outcome)[0]


def describe(checks: Iterable[Check]) -> None:
    """Print what each check is for."""
    for check in checks:
        quick = "quick" if check.quick else ""
        print(f"{check.name:<34}{check.expect.name.lower():<9}{quick:<7}{check.why}\n{'':<50}{' '.join(check.flags)}")


def missing_tools() -> list[str]:
    """The tools that are not installed."""
    return [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Check the models with Spin.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="checks to run; all of them if none is named")
    parser.add_argument("--quick", action="store_true", help="only those that take seconds")
    parser.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    parser.add_argument("--trace", metavar="NAME", help="print the shortest counterexample of one check")
    options = parser.parse_args(arguments)

    known = {check.name: check for check in CHECKS}
    named: list[str] = [*options.names, *([options.trace] if options.trace else [])]
    unknown = [name for name in named if name not in known]
    if unknown:
        parser.error(f"no such check: {', '.join(unknown)}; --list shows them all")
    if options.list:
        describe(CHECKS)
        return 0
    if missing := missing_tools():
        print(
            f"Not installed: {', '.join(missing)}. On Debian or Ubuntu: apt-get install spin gcc",
            file=sys.stderr,
        )
        return 3
    if options.trace:
        return 0 if trace(known[options.trace]) else 1
    chosen = [known[name] for name in options.names] or list(CHECKS)
    if options.quick:
        chosen = [check for check in chosen if check.quick]
    if not chosen:
        parser.error("nothing to run: none of the named checks is a quick one")
    return 0 if run(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
