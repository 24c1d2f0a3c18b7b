"""Everything that tests need beyond Python and PyPI, in one place: what it is, and how to get it."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

NEEDS = {
    "npm": "npm is not installed, so Azure's storage emulator (azurite) cannot be: install Node.js",
    "java": "Java 17 or newer is not installed, so Spark cannot start: install a JRE or set JAVA_HOME",
    "spin": "spin or gcc is not installed, so the models are not checked: apt-get install spin gcc",
    "root": "not running as root, so a server cannot be started as another user",
}


@functools.cache
def missing(what: str) -> str | None:
    """Why a test that needs this cannot run, or None."""
    return None if _present(what) else f"SKIPPED FOR LACK OF {what.upper()}: {NEEDS[what]}"


def _present(what: str) -> bool:
    if what == "npm":
        return shutil.which("npm") is not None and shutil.which("node") is not None
    if what == "spin":
        return shutil.which("spin") is not None and shutil.which("gcc") is not None
    if what == "root":
        return os.geteuid() == 0
    java = str(Path(os.environ["JAVA_HOME"]) / "bin" / "java") if "JAVA_HOME" in os.environ else "java"
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return False
    words = shown.stderr.replace('"', " ").split()
    numbers = [word.split(".")[0] for word in words if word[:1].isdigit()]
    return bool(numbers) and numbers[0].isdigit() and int(numbers[0]) >= 17
