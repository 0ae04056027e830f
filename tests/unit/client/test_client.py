"""The client as a whole: finding brokers, losing them, deadlines, keep-alive, errors."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import trio

from quire.client.client import Client, open_client
from quire.client.errors import (
    ClientError,
    ClosedError,
    NotAllowedError,
    ServerRefusedError,
    ServiceUnavailableError,
    TopicNotFoundError,
)
from quire.client.message_id import MessageId
from quire.client.options import ClientOptions
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.real import real_world
from tests.unit.client.fake_broker import HOST, PORT, TOPIC, URL, B, FakeBroker, Session, story


async def test_topics_and_partitions_are_asked_for_by_their_full_names(client: Client, broker: FakeBroker) -> None:
    assert await client.partitions("t") == 3
    assert await client.partitions("t", create=True) == 3
    assert await client.topics("public/default") == [
        "persistent://public/default/a",
        "persistent://public/default/b",
    ]
    asked = [each.partitionMetadata for each in broker.of(B.PARTITIONED_METADATA)]
    assert [each.topic for each in asked] == [TOPIC, TOPIC]
    assert [each.metadata_auto_creation_enabled for each in asked] == [False, True]
    assert broker.of(B.GET_TOPICS_OF_NAMESPACE)[0].getTopicsOfNamespace.namespace == "public/default"


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
async def test_the_next_host_is_tried_when_one_cannot_be_reached() -> None:
    async with story(url=f"pulsar://nowhere:1,elsewhere:2,{HOST}:{PORT}") as (client, _):
        assert await client.partitions("t") == 3


async def test_a_redirect_is_followed_with_its_authority(client: Client, broker: FakeBroker) -> None:

    def redirect(session: Session, command: pb.BaseCommand, payload: bytes) -> bool:
        if command.lookupTopic.authoritative:
            return False
        answer = B(type=B.LOOKUP_RESPONSE)
        answer.lookupTopicResponse.request_id = command.lookupTopic.request_id
        answer.lookupTopicResponse.response = pb.CommandLookupTopicResponse.Redirect
        answer.lookupTopicResponse.brokerServiceUrl = URL
        answer.lookupTopicResponse.authoritative = True
        session.send(answer)
        return True

    broker.on[B.LOOKUP] = redirect
    await client.reader(TOPIC, MessageId.EARLIEST)
    assert [each.lookupTopic.authoritative for each in broker.of(B.LOOKUP)] == [False, True]


@pytest.mark.seeded
async def test_redirects_without_end_are_given_up() -> None:
    async with story(operation_timeout_s=3) as (client, broker):

        def redirect(session: Session, command: pb.BaseCommand, payload: bytes) -> bool:
            answer = B(type=B.LOOKUP_RESPONSE)
            answer.lookupTopicResponse.request_id = command.lookupTopic.request_id
            answer.lookupTopicResponse.response = pb.CommandLookupTopicResponse.Redirect
            answer.lookupTopicResponse.brokerServiceUrl = URL
            session.send(answer)
            return True

        broker.on[B.LOOKUP] = redirect
        with pytest.raises(ServiceUnavailableError, match="more than 20 redirects"):
            await client.reader(TOPIC, MessageId.EARLIEST)


async def test_a_proxy_is_told_which_broker_is_meant(client: Client, broker: FakeBroker) -> None:

    def proxied(session: Session, command: pb.BaseCommand, payload: bytes) -> bool:
        answer = B(type=B.LOOKUP_RESPONSE)
        answer.lookupTopicResponse.request_id = command.lookupTopic.request_id
        answer.lookupTopicResponse.response = pb.CommandLookupTopicResponse.Connect
        answer.lookupTopicResponse.brokerServiceUrl = "pulsar://inside:7000"
        answer.lookupTopicResponse.proxy_through_service_url = True
        session.send(answer)
        return True

    broker.on[B.LOOKUP] = proxied
    await client.reader(TOPIC, MessageId.EARLIEST)
    assert [each.connect.proxy_to_broker_url for each in broker.of(B.CONNECT)] == ["", "inside:7000"]


@pytest.mark.seeded
@pytest.mark.parametrize("kind", [B.PARTITIONED_METADATA, B.LOOKUP, B.PRODUCER])
@pytest.mark.parametrize(
    ("code", "error"),
    [
        (pb.TopicNotFound, TopicNotFoundError),
        (pb.NotAllowedError, NotAllowedError),
        (pb.AuthorizationError, NotAllowedError),
        (pb.IncompatibleSchema, ServerRefusedError),
    ],
)
async def test_what_is_final_is_raised_at_once(kind: int, code: int, error: type[ClientError]) -> None:
    async def body(client: Client, broker: FakeBroker) -> None:
        broker.refuse[kind] = [(code, "because")]
        begun = trio.current_time()
        with pytest.raises(error, match=f"{TOPIC}.*because"):
            await (client.partitions("t") if kind == B.PARTITIONED_METADATA else client.producer("t"))
        assert trio.current_time() - begun < 0.5

    async with story() as (client, broker):
        await body(client, broker)


@pytest.mark.seeded
@pytest.mark.parametrize("kind", [B.PARTITIONED_METADATA, B.LOOKUP, B.PRODUCER])
@pytest.mark.parametrize("code", [pb.ServiceNotReady, pb.MetadataError, pb.UnknownError, pb.TooManyRequests])
async def test_what_is_passing_is_tried_again(kind: int, code: int) -> None:
    async def body(client: Client, broker: FakeBroker) -> None:
        broker.refuse[kind] = [(code, "later")] * 3
        await (client.partitions("t") if kind == B.PARTITIONED_METADATA else client.producer("t"))
        assert broker.refuse[kind] == []

    async with story() as (client, broker):
        await body(client, broker)


@pytest.mark.seeded
async def test_the_last_cause_is_told_when_trying_did_not_help() -> None:
    async with story(operation_timeout_s=5) as (client, broker):
        broker.refuse[B.LOOKUP] = [(pb.ServiceNotReady, "still loading")] * 1000
        begun = trio.current_time()
        with pytest.raises(ServiceUnavailableError, match=f"reader of {TOPIC}.*5 s.*still loading"):
            await client.reader(TOPIC, MessageId.EARLIEST)
        assert 4.9 < trio.current_time() - begun < 5.1
        assert len(broker.of(B.LOOKUP)) < 20  # pauses get longer


@pytest.mark.seeded
async def test_a_broker_that_is_not_there_is_named() -> None:
    async with story(url="pulsar://nowhere:1", operation_timeout_s=3) as (client, _):
        with pytest.raises(ServiceUnavailableError, match="cannot connect to nowhere:1"):
            await client.partitions("t")


@pytest.mark.seeded
async def test_a_broker_that_accepts_and_says_nothing_is_given_up() -> None:
    async with story(operation_timeout_s=3, connect_timeout_s=1) as (client, broker):
        broker.deaf = True
        with pytest.raises(ServiceUnavailableError, match="no answer to CONNECT in 1 s"):
            await client.partitions("t")


async def test_a_broker_that_wants_a_password_refuses_for_good(client: Client, broker: FakeBroker) -> None:
    broker.refuse[B.CONNECT] = [(pb.AuthenticationError, "who are you")]
    with pytest.raises(NotAllowedError, match="who are you"):
        await client.partitions("t")


@pytest.mark.seeded
async def test_a_silent_connection_is_asked_and_then_replaced() -> None:
    async with story(keep_alive_interval_s=10) as (client, broker):
        reader = await client.reader(TOPIC, MessageId.EARLIEST)
        await trio.sleep(100)
        assert len(broker.of(B.PING)) >= 4
        assert broker.connections == 1
        broker.silent.add(B.PING)
        await trio.sleep(25)
        await reader.last_message_id()
        assert broker.connections == 2


async def test_a_ping_is_answered(client: Client, broker: FakeBroker) -> None:
    await client.partitions("t")
    broker.sessions[0].send(B(type=B.PING, ping=pb.CommandPing()))
    await trio.sleep(1)
    assert len(broker.of(B.PONG)) == 1


async def test_a_broker_that_breaks_the_protocol_loses_the_connection_and_not_the_client(
    client: Client, broker: FakeBroker
) -> None:
    reader = await client.reader(TOPIC, MessageId.EARLIEST)
    broker.sessions[0]._unsent += b"\xff" * 100
    broker.sessions[0]._some.set()
    await trio.sleep(1)
    await reader.last_message_id()
    assert broker.connections == 2


async def test_answers_and_news_that_nobody_asked_for_are_passed_over(client: Client, broker: FakeBroker) -> None:
    await client.partitions("t")
    session = broker.sessions[0]
    session._success(99)
    session._refuse(B(type=B.SEEK, seek=pb.CommandSeek(consumer_id=1, request_id=98)), pb.UnknownError, "late")
    session.send(B(type=B.REACHED_END_OF_TOPIC, reachedEndOfTopic=pb.CommandReachedEndOfTopic(consumer_id=5)))
    session.send(B(type=B.CLOSE_CONSUMER, close_consumer=pb.CommandCloseConsumer(consumer_id=9, request_id=1)))
    await trio.sleep(1)
    assert await client.partitions("t") == 3
    assert broker.connections == 1


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
    with pytest.raises(ClosedError, match="closed"):
        await producer.flush()
    with pytest.raises(ClosedError, match="closed"):
        await client.partitions(TOPIC)


@pytest.mark.parametrize("topic", ["", "a//b", "x://a/b/c", "persistent://a/b"])
async def test_a_name_that_no_topic_can_have_is_refused_without_asking(
    client: Client, broker: FakeBroker, topic: str
) -> None:
    with pytest.raises(ServerRefusedError, match="InvalidTopicName"):
        await client.partitions(topic)
    with pytest.raises(ServerRefusedError, match="InvalidTopicName"):
        await client.topics("no-slash")
    assert broker.connections == 0


@pytest.mark.real_clock
async def test_a_url_of_another_scheme_is_refused_when_the_client_is_opened() -> None:
    with pytest.raises(ValueError, match="TLS is not supported yet"):
        async with open_client(real_world(), "pulsar+ssl://h:6651"):
            pass


@pytest.mark.parametrize("wrong", [{"operation_timeout_s": 0}, {"backoff_max_s": 0.01}, {"receive_bytes_max": 0}])
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        ClientOptions(**wrong)


def test_the_client_imports_no_server_and_nothing_heavy() -> None:
    code = "import sys, quire.client.client; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    unwanted = {"rocksdict", "structlog", "broker", "bookie", "starlette", "quire.ledger", "quire.metadata", "pyspark"}
    assert unwanted.isdisjoint(loaded)
