"""Real servers for the record stores: PostgreSQL from this machine (or from PyPI), and moto's DynamoDB over HTTP."""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

_START_TIMEOUT_S = 60


class Postgres:
    """A server of our own, reached through a socket in a folder of its own, so that no port is fought over."""

    def __init__(self, bin_folder: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hedgerow-pg-"))
        self._bin_folder = bin_folder
        self._user = _other_user() if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
        if self._user:
            shutil.chown(self.folder, *self._user)
        self._data = self.folder / "data"
        self._process: subprocess.Popen | None = None
        arguments = ["-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
        made = subprocess.run([bin_folder / "initdb", *arguments], capture_output=True, text=True, **self._as_user())
        assert made.returncode == 0, made.stderr
        rules = "local all guarded scram-sha-256\nlocal all all trust\n"
        (self._data / "pg_hba.conf").write_text(rules)

    def start(self) -> None:
        settings = ["-c", "listen_addresses=", "-c", "fsync=off", "-k", self.folder]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin_folder / "postgres", "-D", self._data, *settings],
                stdout=log,
                stderr=log,
                **self._as_user(),
            )
        until_s = time.monotonic() + _START_TIMEOUT_S
        asked = [self._bin_folder / "pg_isready", "-q", "-h", self.folder]
        while subprocess.run(asked).returncode != 0:
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < until_s, "PostgreSQL does not come up"

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)  # at once, as in a crash
            self._process.wait(_START_TIMEOUT_S)
            self._process = None

    def url(self, user: str = "postgres", password: str = "") -> str:
        who = f"{user}:{password}" if password else user
        return f"postgresql://{who}@/postgres?host={self.folder}"

    def run(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    def _as_user(self) -> dict:
        if self._user is None:
            return {}
        user, group = self._user
        return {"user": user, "group": group, "extra_groups": [], "cwd": "/"}


def _other_user() -> tuple[int, int]:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return entry.pw_uid, entry.pw_gid
    pytest.skip("SKIPPED FOR LACK OF POSTGRESQL: it does not run as root, and there is no user 'postgres' or 'nobody'")


def _bin_folder() -> Path | None:
    """The machine's own PostgreSQL, newest first; else the one inside PyPI's pgserver."""
    on_path = shutil.which("initdb")
    candidates = [Path(on_path).resolve().parent] if on_path else []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    with contextlib.suppress(ImportError):
        import pgserver

        candidates.append(Path(pgserver.__file__).parent / "pginstall" / "bin")
    needed = ("initdb", "postgres", "pg_isready")
    return next((folder for folder in candidates if all((folder / name).exists() for name in needed)), None)


@pytest.fixture(scope="session")
def postgres():
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'hedgerow[postgres]'")
    bin_folder = _bin_folder()
    if bin_folder is None:
        pytest.skip("SKIPPED FOR LACK OF POSTGRESQL: install Debian's 'postgresql' or PyPI's 'pgserver'")
    server = Postgres(bin_folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def dynamodb():
    """The address of DynamoDB's API; S3's answers there too."""
    pytest.importorskip("boto3", reason="boto3 is not installed: pip install 'hedgerow[dynamodb]'")
    servers = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[server]'")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = servers.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    server.stop()
