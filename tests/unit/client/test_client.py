"""The client as a whole: finding brokers, losing them, deadlines, keep-alive, errors."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import trio

from quire.client.client import Client, open_client
from quire.client.errors import (
    ClosedError,
    NotAllowedError,
)
from quire.client.message_id import MessageId
from quire.client.options import ClientOptions
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.real import real_world
from tests.support.refusals import raises, refuses
from tests.unit.client.fake_broker import TOPIC, B, FakeBroker, story


async def test_everything_shares_one_connection_to_a_broker(client: Client, broker: FakeBroker) -> None:
    async with trio.open_nursery() as nursery:
        for name in ("a", "b", "c"):
            nursery.start_soon(client.reader, name, MessageId.EARLIEST)
            nursery.start_soon(client.subscription, name, "s")
            nursery.start_soon(client.partitions, name)
    assert broker.connections == 1
    ids = [each.subscribe.consumer_id for each in broker.of(B.SUBSCRIBE)]
    assert len(set(ids)) == len(ids) == 6


@pytest.mark.seeded
async def test_an_error_of_the_caller_leaves_the_client_as_it_is() -> None:
    class MineError(Exception):
        pass

    async def body(client: Client, broker: FakeBroker) -> None:
        await client.partitions("t")
        raise MineError

    with pytest.raises(MineError):
        async with story() as (client, broker):
            await body(client, broker)


@pytest.mark.seeded
async def test_what_a_closed_client_opened_says_so() -> None:
    async with story() as (client, _):
        producer = await client.producer(TOPIC)
    await raises(ClosedError, producer.flush(), "closed")
    await raises(ClosedError, client.partitions(TOPIC), "closed")


@pytest.mark.real_clock
async def test_a_url_of_another_scheme_is_refused_when_the_client_is_opened() -> None:
    with pytest.raises(ValueError, match="the web service's scheme"):
        async with open_client(real_world(), "https://h:8443"):
            pass


@pytest.mark.parametrize("wrong", [{"operation_timeout_s": 0}, {"backoff_max_s": 0.01}, {"receive_bytes_max": 0}])
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    refuses(ValueError, lambda: ClientOptions(**wrong), "must be")


def test_the_client_imports_no_server_and_nothing_heavy() -> None:
    code = "import sys, quire.client.client; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    unwanted = {"rocksdict", "structlog", "broker", "bookie", "starlette", "quire.ledger", "quire.metadata", "pyspark"}
    assert unwanted.isdisjoint(loaded)


async def test_a_schema_is_the_newest_or_that_of_a_version_and_none_is_no_error(
    client: Client, broker: FakeBroker
) -> None:
    newest, version = await client.schema("a") or (None, b"")
    assert newest is not None
    assert (newest.type, version) == (pb.Schema.String, b"newest")
    assert (await client.schema("a", b"12345678") or (None, b""))[1] == b"12345678"
    assert await client.schema("bare") is None
    asked = [each.getSchema for each in broker.of(B.GET_SCHEMA)]
    assert [each.HasField("schema_version") for each in asked] == [False, True, False]
    assert asked[0].topic == "persistent://public/default/a"


async def test_a_refused_schema_is_an_error(client: Client, broker: FakeBroker) -> None:
    broker.refuse[B.GET_SCHEMA] = [(pb.AuthorizationError, "no")]
    await raises(NotAllowedError, client.schema("a"), "schema of persistent://public/default/a")
