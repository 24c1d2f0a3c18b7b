"""Everything that must hold, in one command: style, types, import rules, doctests, tests, models.

``make test`` runs this; ``make test-fast`` leaves out what is marked slow. The last lines say what could not run, and why.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
REPORT = ROOT / ".cache" / "tests.xml"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="leave out tests marked slow, and the models")
    parser.add_argument("--jobs", default="2", help="how many tests run at once")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    REPORT.parent.mkdir(exist_ok=True)
    os.environ.setdefault("HEDGEROW_SEED", str(secrets.randbelow(10**9)))
    steps: list[tuple[str, list[str]]] = [
        ("style", [str(BIN / "ruff"), "check", "."]),
        ("form", [str(BIN / "ruff"), "format", "--check", "."]),
        ("types", [str(BIN / "mypy")]),
        ("import rules", [str(BIN / "lint-imports"), "--no-logo"]),
    ]
    if not arguments.fast:
        steps.append(("models", [sys.executable, "models/run.py", "--quick"]))
    steps.append(("examples", [sys.executable, "-m", "pytest", "--doctest-modules", "src/hedgerow", "-q"]))
    tests = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        arguments.jobs,
        "--dist",
        "worksteal",
        "tests",
        f"--junitxml={REPORT}",
        "-q",
    ]
    if arguments.fast:
        tests += ["-m", "not slow"]
    steps.append(("tests", tests))
    results = [(name, *timed(name, command)) for name, command in steps]
    print("\n--- what ran ---")
    for name, code, seconds in results:
        print(f"{name:14} {'ok' if code == 0 else 'left out' if code == 3 else 'FAILED':8} {seconds:7.1f} s")
    say_what_was_left_out(any(code == 3 for _, code, _ in results))
    return 1 if any(code not in (0, 3) for _, code, _ in results) else 0


def timed(name: str, command: list[str]) -> tuple[int, float]:
    print(f"\n--- {name} ---", flush=True)
    started = time.monotonic()
    code = subprocess.run(command, check=False).returncode
    return code, time.monotonic() - started


def say_what_was_left_out(models: bool) -> None:
    """Loudly, and last, so that nobody takes a short run for a whole one."""
    reasons: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    if REPORT.exists():
        for case in ElementTree.parse(REPORT).iter("testcase"):
            skipped = case.find("skipped")
            failed = case.find("failure") is not None or case.find("error") is not None
            counts["failed" if failed else "skipped" if skipped is not None else "passed"] += 1
            if skipped is not None:
                reasons[skipped.get("message") or "no reason given"] += 1
    if models:
        reasons["the models were not checked: spin or gcc is missing (apt-get install spin gcc)"] += 1
    print("\n--- what was left out ---")
    for reason, count in sorted(reasons.items()):
        print(f"{count:4} x {reason}")
    if not reasons:
        print("nothing")
    print(f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")


if __name__ == "__main__":
    sys.exit(main())
