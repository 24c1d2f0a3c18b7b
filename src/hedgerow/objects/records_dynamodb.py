"""Records in a DynamoDB table, for any number of machines of one region.

A table holds any number of *namespaces*, one for each bucket or folder that Hedgerow keeps objects in. The namespace is
the partition key, the destination the sort key, and every write carries a condition.

Finding the unfinished records must be consistent: one that was inserted a moment ago and is overlooked is an object
missing from a listing. Global secondary indexes never are, and a consistent scan pays for every record there is. So
there is a *local* secondary index, which can be read consistently, on an attribute that only unfinished records have.

What that costs, in units of DynamoDB's own: a create writes 4 (the insert and the commit, each to table and index), a
delete 4, and finding the unfinished reads 1 for each 4 KB of them, at least 1. Only ``spent`` reads a whole prefix.
What it limits: all of a namespace is one partition, with 1,000 write units a second (about 250 creates) and 10 GB.

Not for global tables: two regions would each give the slot away.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from hedgerow.errors import HedgerowError, InvalidInput, StoreUnavailable, Unauthorized
from hedgerow.objects.records import UNFINISHED, Record, State, check_removal, check_step

__all__ = ["DynamoRecords"]

_TABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_INDEX = "unfinished"
_INSERTS_MAX = 10
# Every attribute goes by a stand-in, because some of their names are words of DynamoDB's own.
_NAMES = {"#n": "namespace", "#d": "destination", "#source": "source", "#state": "state", "#u": "unfinished"}
_REFUSALS = [
    "AccessDenied",
    "ExpiredToken",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignature",
    "MissingAuthenticationToken",
    "NotAuthorized",
    "OptInRequired",
    "UnrecognizedClient",
]


class DynamoRecords:
    """Records in a table.

    Credentials are found by boto3, in the environment or the machine's role. The table is made once, by
    ``create_table``.

    >>> DynamoRecords("ledger", region="eu-west-1", namespace="orders").url
    'dynamodb://ledger?namespace=orders'
    """

    def __init__(
        self,
        table: str,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        namespace: str = "hedgerow",
        timeout_s: float = 30.0,
    ) -> None:
        try:
            import boto3
            import botocore.exceptions
        except ImportError:
            raise InvalidInput("DynamoDB records need boto3. Install it: pip install 'hedgerow[dynamodb]'") from None
        if not _TABLE_NAME.fullmatch(table):
            raise InvalidInput(f"{table!r} is not a table's name: 3 to 255 letters, digits, '_', '-' and '.'.")
        if not namespace:
            raise InvalidInput("A namespace of DynamoDB records has at least one character.")
        self._boto3 = boto3
        self._problems = botocore.exceptions
        self._table = table
        self._region = region
        self._endpoint = endpoint
        self._namespace = namespace
        self._timeout_s = timeout_s
        self._client: Any = None
        self._opening = threading.Lock()

    @property
    def url(self) -> str:
        """Where this is."""
        return f"dynamodb://{self._table}?namespace={self._namespace}"

    async def create_table(self) -> None:
        """Make the table, paid by request, and wait until it can be used; one that is there is left as it is."""
        key = {"AttributeName": "namespace", "KeyType": "HASH"}
        try:
            await self._call(
                "create_table",
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[
                    {"AttributeName": name, "AttributeType": "S"} for name in ("namespace", "destination", _INDEX)
                ],
                KeySchema=[key, {"AttributeName": "destination", "KeyType": "RANGE"}],
                LocalSecondaryIndexes=[
                    {
                        "IndexName": _INDEX,
                        "KeySchema": [key, {"AttributeName": _INDEX, "KeyType": "RANGE"}],
                        "Projection": {"ProjectionType": "ALL"},
                    }
                ],
            )
        except _Refused as refusal:
            if refusal.code != "ResourceInUseException":
                raise self._translated(refusal.error) from refusal.error
        await asyncio.get_running_loop().run_in_executor(None, self._wait_for_table)

    async def insert(self, record: Record) -> Record:
        """Insert a record if its destination has none; the one that holds the slot."""
        item = {**self._key(record.destination), "source": record.source, "checksum": record.checksum}
        item |= {
            "state": record.state,
            **({"unfinished": record.destination} if record.state in UNFINISHED else {}),
        }
        for _ in range(_INSERTS_MAX):
            if await self._write("put_item", Item=_typed(item), ConditionExpression="attribute_not_exists(#d)"):
                return record
            if (holder := await self.get(record.destination)) is not None:
                return holder
        raise StoreUnavailable(f"{self.url}: the record of {record.destination!r} comes and goes.")

    async def get(self, destination: str) -> Record | None:
        """The record of a destination."""
        answer = await self._read("get_item", Key=_typed(self._key(destination)))
        return _record(answer["Item"]) if answer.get("Item") else None

    async def unfinished(self, prefix: str) -> Sequence[Record]:
        """The pending, deleting and abandoned records under a prefix: a consistent read of a small index."""
        return await self._query("#u", prefix, IndexName=_INDEX)

    async def spent(self, prefix: str) -> Sequence[Record]:
        """The spent records under a prefix; reads, and pays for, every record under it."""
        return [record for record in await self._query("#d", prefix) if record.state == "spent"]

    async def mark(self, destination: str, source: str, from_state: State, to_state: State) -> bool:
        """Take one step, if the record has that source and state."""
        check_step(from_state, to_state)
        update, values = "SET #state = :to REMOVE #u", {":to": to_state, ":source": source, ":from": from_state}
        if to_state in UNFINISHED:
            update, values[":u"] = "SET #state = :to, #u = :u", destination
        return await self._write(
            "update_item",
            Key=_typed(self._key(destination)),
            UpdateExpression=update,
            ConditionExpression="#source = :source AND #state = :from",
            ExpressionAttributeValues=_typed(values),
        )

    async def delete(self, destination: str, source: str, state: State) -> bool:
        """Remove the record, if it has that source and state."""
        check_removal(state)
        return await self._write(
            "delete_item",
            Key=_typed(self._key(destination)),
            ConditionExpression="#source = :source AND #state = :state",
            ExpressionAttributeValues=_typed({":source": source, ":state": state}),
        )

    async def close(self) -> None:
        """Close connections."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # --- requests, in worker threads ------------------------------------------------------------------------

    def _key(self, destination: str) -> dict[str, str]:
        return {"namespace": self._namespace, "destination": destination}

    async def _write(self, verb: str, **arguments: Any) -> bool:
        """A conditional write; False where its condition does not hold."""
        try:
            await self._call(verb, **_named(arguments))
        except _Refused as refusal:
            if refusal.code == "ConditionalCheckFailedException":
                return False
            raise self._translated(refusal.error) from refusal.error
        return True

    async def _read(self, verb: str, **arguments: Any) -> Mapping[str, Any]:
        try:
            return await self._call(verb, ConsistentRead=True, **_named(arguments))
        except _Refused as refusal:
            raise self._translated(refusal.error) from refusal.error

    async def _query(self, attribute: str, prefix: str, **arguments: Any) -> list[Record]:
        condition, values = "#n = :n", {":n": self._namespace}
        if prefix:
            condition += f" AND begins_with({attribute}, :prefix)"
            values[":prefix"] = prefix
        arguments |= {"KeyConditionExpression": condition, "ExpressionAttributeValues": _typed(values)}
        records: list[Record] = []
        while True:
            answer = await self._read("query", **arguments)
            records.extend(_record(item) for item in answer["Items"])
            if "LastEvaluatedKey" not in answer:
                return records
            arguments["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    async def _call(self, verb: str, **arguments: Any) -> Mapping[str, Any]:
        return await asyncio.get_running_loop().run_in_executor(None, self._ask, verb, arguments)

    def _ask(self, verb: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            answer: Mapping[str, Any] = getattr(self._open(), verb)(TableName=self._table, **arguments)
            return answer
        except self._problems.ClientError as error:
            raise _Refused(error) from error
        except (self._problems.BotoCoreError, OSError, ValueError) as error:
            raise self._translated(error) from error

    def _open(self) -> Any:
        with self._opening:
            if self._client is None:
                # One attempt for each request: whoever asks again must know that the first may have been carried out.
                settings = self._boto3.session.Config(
                    retries={"total_max_attempts": 1},
                    connect_timeout=min(self._timeout_s, 5.0),
                    read_timeout=self._timeout_s,
                    max_pool_connections=32,
                )
                session = self._boto3.session.Session(region_name=self._region)
                self._client = session.client("dynamodb", endpoint_url=self._endpoint, config=settings)
            return self._client

    def _wait_for_table(self) -> None:
        try:
            self._open().get_waiter("table_exists").wait(TableName=self._table)
        except (self._problems.BotoCoreError, self._problems.ClientError) as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> HedgerowError:
        problem = f"{self.url}: {error}"
        code = error.response["Error"]["Code"] if isinstance(error, self._problems.ClientError) else ""
        if code.removesuffix("Exception") in _REFUSALS or isinstance(
            error, self._problems.NoCredentialsError | self._problems.PartialCredentialsError
        ):
            return Unauthorized(f"{problem} Check the credentials and their rights to the table.")
        if code == "ResourceNotFoundException":
            return InvalidInput(f"{self.url}: there is no such table. Make it with DynamoRecords.create_table.")
        if code == "ValidationException":
            return InvalidInput(f"{problem} Is the table one that DynamoRecords.create_table made?")
        wrong = (self._problems.NoRegionError, self._problems.ParamValidationError, ValueError)
        if isinstance(error, wrong):
            return InvalidInput(f"{problem} Check the region, the endpoint and the path.")
        return StoreUnavailable(problem)


class _Refused(Exception):
    """The service answered with an error; what it means depends on what was asked."""

    def __init__(self, error: Any) -> None:
        super().__init__(str(error))
        self.error = error
        self.code = str(error.response["Error"]["Code"])


def _typed(values: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {name: {"S": value} for name, value in values.items()}


def _record(item: Mapping[str, Mapping[str, Any]]) -> Record:
    return Record(*(item[name]["S"] for name in Record.__struct_fields__))


def _named(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments, with the stand-ins that their expressions use, and no others: one too many is an error."""
    text = " ".join(value for name, value in arguments.items() if name.endswith("Expression"))
    used = {name: _NAMES[name] for name in re.findall(r"#\w+", text)}
    return {**arguments, "ExpressionAttributeNames": used} if used else arguments
