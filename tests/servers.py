"""Real servers for tests, each started once per worker, on a free port, and stopped at the end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

CACHE = Path(__file__).parent.parent / ".cache"
NPM_TIMEOUT_S = 120
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextlib.contextmanager
def s3_server() -> Iterator[dict[str, Any]]:
    """A server that speaks S3's API over HTTP; yields the options to reach it, with a bucket named 'bucket'."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        client.create_bucket(Bucket="bucket")
        yield {
            "endpoint": endpoint,
            "region": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "test",
            "virtual_hosted_style_request": "false",
        }
    finally:
        server.stop()


@contextlib.contextmanager
def azure_server(folder: Path) -> Iterator[dict[str, Any]]:
    """Azure's own storage emulator; yields the options to reach it, with a container named 'bucket'."""
    program = _azurite()
    port = free_port()
    log = (folder / "azurite.log").open("wb")
    process = subprocess.Popen(
        ["node", str(program), "--silent", "--skipApiVersionCheck", "--disableTelemetry", "--blobHost", "127.0.0.1",
         "--blobPort", str(port), "--inMemoryPersistence"],
        stdout=log, stderr=log,
    )  # fmt: skip
    try:
        wait_for_port(port, process)
        options = {
            "account_name": AZURITE_ACCOUNT,
            "account_key": AZURITE_KEY,
            "endpoint": f"http://127.0.0.1:{port}/{AZURITE_ACCOUNT}",
        }
        _make_container(port)
        yield options
    finally:
        process.terminate()
        process.wait()
        log.close()


def _azurite() -> Path:
    """Installed by npm into the project's cache, once."""
    home = CACHE / "azurite"
    program = home / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers of one run share the installation
        if not program.exists():
            _npm_install(home)
    return program


def _npm_install(home: Path) -> None:
    try:
        subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(home), "azurite@3"],
            check=True,
            timeout=NPM_TIMEOUT_S,
            env={**os.environ, "npm_config_update_notifier": "false"},
        )
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"SKIPPED FOR LACK OF A PACKAGE: npm could not install azurite, Azure's storage emulator ({error})")


def _make_container(port: int) -> None:
    """Containers are made by a signed request, which the store library has no call for."""
    import base64
    import hashlib
    import hmac
    import urllib.request
    from email.utils import formatdate

    date = formatdate(usegmt=True)
    path = f"/{AZURITE_ACCOUNT}/bucket"
    headers = f"x-ms-date:{date}\nx-ms-version:2021-08-06"
    to_sign = "PUT\n" + "\n" * 11 + headers + f"\n/{AZURITE_ACCOUNT}{path}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(AZURITE_KEY), to_sign.encode(), hashlib.sha256)).decode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}?restype=container",
        method="PUT",
        headers={
            "x-ms-date": date,
            "x-ms-version": "2021-08-06",
            "Authorization": f"SharedKey {AZURITE_ACCOUNT}:{signature}",
        },
    )
    urllib.request.urlopen(request, timeout=30).close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], timeout_s: float = 60.0) -> None:
    """Wait until a server accepts connections, or say that it ended."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with code {process.returncode}")
        with socket.socket() as probe:
            probe.settimeout(0.2)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise TimeoutError("the server did not come up")
