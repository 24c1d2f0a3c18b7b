"""Against a server that speaks S3, with its options in the environment or on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

BUCKET = "hedgerow-shop"
CREDENTIALS = {"access_key_id": "test", "secret_access_key": "test", "region": "us-east-1"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    client = boto3.client(
        "s3",
        endpoint_url=url,
        region_name=CREDENTIALS["region"],
        aws_access_key_id=CREDENTIALS["access_key_id"],
        aws_secret_access_key=CREDENTIALS["secret_access_key"],
    )
    client.create_bucket(Bucket=BUCKET)
    yield url
    server.stop()


@pytest.fixture
def options(endpoint: str) -> list[str]:
    settings = {"endpoint": endpoint, **CREDENTIALS}
    return [one for name, value in settings.items() for one in ("--option", f"{name}={value}")]


@pytest.fixture
def environment(endpoint: str) -> dict[str, str]:
    names = {f"AWS_{name.upper()}": value for name, value in CREDENTIALS.items()}
    return {**names, "AWS_ENDPOINT_URL": endpoint}


def test_options_before_and_after_the_command(run: Any, options: list[str]) -> None:
    url = f"s3://{BUCKET}/by-option"
    run(
        *options,
        "create",
        url,
        "--column",
        "id:int64",
        "--column",
        "name:string",
        "--key",
        "id",
        "--partitions",
        2,
    )
    run("put", url, '{"id": 1, "name": "hazel"}', *options)
    got = run(*options[:2], "get", url, "1", "--json", *options[2:])
    assert json.loads(got.stdout) == {"id": 1, "name": "hazel"}


def test_options_in_the_environment(run: Any, environment: dict[str, str]) -> None:
    url = f"s3://{BUCKET}/by-environment"
    run("create", url, environment=environment)
    run("put", url, "key", "value", environment=environment)
    assert run("get", url, "key", environment=environment).stdout == "value\n"
    assert json.loads(run("inspect", url, "--json", environment=environment).stdout)["url"] == url


def test_a_bucket_a_table_and_an_option_that_are_not_there(invoke: Any, options: list[str]) -> None:
    assert "no such bucket" in invoke("inspect", "s3://hedgerow-nowhere/orders", *options, code=2).stderr
    invoke("inspect", f"s3://{BUCKET}/nowhere", *options, code=3)
    failed = invoke("inspect", f"s3://{BUCKET}/nowhere", *options, "--option", "colour=red", code=2)
    assert "colour" in failed.stderr
    assert failed.stderr.count("\n") == 1
