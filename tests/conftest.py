"""What every test shares: a fresh seed for the run, and loud words about what could not run."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from needs import missing


def pytest_configure(config: pytest.Config) -> None:
    # Workers inherit the environment, so all of them work on one run's seeds.
    os.environ.setdefault("HEDGEROW_SEED", str(secrets.randbelow(10**9)))


def pytest_report_header(config: pytest.Config) -> str:
    return f"simulation seeds start at HEDGEROW_SEED={os.environ['HEDGEROW_SEED']}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker in item.iter_markers("needs"):
            for what in marker.args:
                if reason := missing(what):
                    item.add_marker(pytest.mark.skip(reason=reason))
