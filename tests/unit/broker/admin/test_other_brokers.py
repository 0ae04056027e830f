"""Requests to other brokers, over a real socket to a real web server, and results for partitions that they own."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from broker.admin.other_brokers import NO_ERRORS, Errors, OtherBrokers
from broker.errors import (
    ServiceNotReadyError,
    SubscriptionExistsError,
    SubscriptionNotFoundError,
    TopicBusyError,
    TopicNotFoundError,
)
from broker.ownership.lookup import Connect
from broker.ownership.own_credentials import OwnCredentials
from quire.client.authentication import basic
from quire.ledger.position import EARLIEST
from quire.service.http import Health, make_app, serve_web
from quire.service.metrics import Metrics
from quire.wire.pulsar.names import TopicName
from quire.world.real import real_world
from tests.support.refusals import raises
from tests.unit.broker.peers import TOPIC, Room, in_broker

NAME = TopicName.parse("persistent://public/default/a b+c/d")
BASE = "/admin/v2/persistent/public/default"


class Owner:
    """An ownership in which the broker at `web_url` owns every topic."""

    def __init__(self, web_url: str, mine: bool = False) -> None:
        self.web_url = web_url
        self.mine = mine

    async def lookup(self, name: TopicName, *, authoritative: bool) -> Connect:
        await trio.lowlevel.checkpoint()
        return Connect("pulsar://x", self.web_url, self.mine)


@asynccontextmanager
async def with_server(
    own: OwnCredentials | None = None, authorizations: list[str | None] | None = None
) -> AsyncIterator[tuple[OtherBrokers, str, list[tuple[str, str, bytes]]]]:
    """Serve another broker that records its requests, and their credentials in `authorizations`; the last part of the
    path determines the answer."""
    asked: list[tuple[str, str, bytes]] = []

    async def any_path(request: Request) -> Response:
        path: str = request.scope["raw_path"].decode()
        query = request.scope["query_string"].decode()
        asked.append((request.method, f"{path}?{query}" if query else path, await request.body()))
        if authorizations is not None:
            authorizations.append(request.headers.get("authorization"))
        last = path.rpartition("/")[2]
        if last == "go":
            return Response(status_code=307, headers={"Location": f"{request.base_url}{BASE[1:]}/t/json"})
        if last == "loop":
            return Response(status_code=307, headers={"Location": f"{str(request.base_url)[:-1]}{path}"})
        if last == "json":
            return JSONResponse({"found": [1]})
        if last == "text":
            return Response("not json", status_code=500)
        if last.isdigit():
            return JSONResponse({"reason": f"because of {last}"}, status_code=int(last))
        return Response(status_code=204)

    methods = ["GET", "PUT", "POST", "DELETE"]
    routes = [Route("/admin/{rest:path}", any_path, methods=methods)]
    app = make_app(Metrics(), Health(is_ready=lambda: True, check=trio.lowlevel.checkpoint), routes)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            host, port = await nursery.start(serve_web, app, "127.0.0.1", 0)
            url = f"http://{host}:{port}"
            yield OtherBrokers(Owner(url), real_world().network, own=own), url, asked
            nursery.cancel_scope.cancel()


@pytest.mark.real_clock
async def test_the_owner_is_asked_at_the_topics_path_and_its_answer_is_read() -> None:
    async with with_server() as (others, url, asked):
        assert await others.owner(NAME) == url
        assert await others.ask(url, "GET", NAME, "/json") == {"found": [1]}
        assert await others.ask(url, "PUT", NAME, "/subscription/s?force=true", body={"ledgerId": -1}) is None
        assert asked == [
            ("GET", f"{BASE}/a%20b%2Bc%2Fd/json", b""),
            ("PUT", f"{BASE}/a%20b%2Bc%2Fd/subscription/s?force=true", b'{"ledgerId": -1}'),
        ]


@pytest.mark.real_clock
async def test_this_broker_s_credentials_go_with_each_request_also_after_a_redirect() -> None:
    own = OwnCredentials(basic("broker", "own"), real_world().offload)
    found: list[str | None] = []
    async with with_server(own, found) as (others, url, _):
        assert await others.ask(url, "GET", NAME, "/go") == {"found": [1]}
    expected = "Basic " + base64.b64encode(b"broker:own").decode()
    assert found == [expected, expected]


@pytest.mark.real_clock
async def test_a_redirect_is_followed_and_not_for_ever() -> None:
    async with with_server() as (others, url, _):
        assert await others.ask(url, "GET", NAME, "/go") == {"found": [1]}
        await raises(ServiceNotReadyError, others.ask(url, "GET", NAME, "/loop"), match="too many redirects")


@pytest.mark.real_clock
async def test_a_refusal_is_the_error_that_it_means_with_its_reason() -> None:
    async with with_server() as (others, url, _):
        with pytest.raises(TopicBusyError, match="because of 412"):
            await others.ask(url, "DELETE", NAME, "/412", errors={412: TopicBusyError})
        with pytest.raises(ServiceNotReadyError, match="because of 404"):
            await others.ask(url, "DELETE", NAME, "/404", errors={412: TopicBusyError})
        await raises(ServiceNotReadyError, others.ask(url, "DELETE", NAME, "/text"), match="status 500")


@pytest.mark.real_clock
async def test_a_broker_that_does_not_answer_is_not_ready() -> None:
    network = real_world().network
    listener = await network.listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.address[1]}"
    others = OtherBrokers(Owner(url), network)

    async def close_at_once() -> None:
        (await listener.accept()).close()

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(close_at_once)
            await raises(ServiceNotReadyError, others.ask(url, "GET", NAME, "/json"), match="no answer from the broker")
    listener.close()
    await raises(ServiceNotReadyError, others.ask(url, "GET", NAME, "/json"), match="no answer from the broker")
    assert await OtherBrokers(Owner(url, mine=True), network).owner(NAME) is None


# A partitioned topic whose partition 1 has another owner


class Others(OtherBrokers):
    """Another broker that owns every partition 1. It records its calls, and raises a given error."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.raising: Exception | None = None
        self.answer: Any = None

    async def owner(self, name: TopicName) -> str | None:
        await trio.lowlevel.checkpoint()
        return "http://other" if name.partition == 1 else None

    async def ask(
        self,
        web_url: str,
        method: str,
        name: TopicName,
        resource: str,
        *,
        body: object = None,
        errors: Errors = NO_ERRORS,
    ) -> Any:
        await trio.lowlevel.checkpoint()
        assert (web_url, name.partition) == ("http://other", 1)
        self.asked.append((method, resource, body))
        if self.raising is not None:
            raise self.raising
        return self.answer


@asynccontextmanager
async def on_two_brokers() -> AsyncIterator[tuple[Room, Others]]:
    async with in_broker() as room:
        others = Others()
        await room.broker.administration.create_partitioned_topic(TopicName.parse(TOPIC), 2)
        room.broker.administration.others = others
        yield room, others


async def test_a_subscription_is_made_on_every_partition_wherever_it_is() -> None:
    async with on_two_brokers() as (room, others):
        admin, name = room.broker.administration, TopicName.parse(TOPIC)
        await admin.create_subscription(name, "s/1", EARLIEST)
        assert others.asked == [("PUT", "/subscription/s%2F1", {"ledgerId": -1, "entryId": -1})]
        assert [topic.name.partition for topic in room.broker.topics.loaded()] == [0]
        others.raising = SubscriptionExistsError("there")
        await raises(SubscriptionExistsError, admin.create_subscription(name, "s/1", EARLIEST))
        others.raising = ServiceNotReadyError("away")
        await raises(ServiceNotReadyError, admin.create_subscription(name, "s2", EARLIEST))


async def test_a_subscription_is_deleted_on_every_partition_that_has_it() -> None:
    async with on_two_brokers() as (room, others):
        admin, name = room.broker.administration, TopicName.parse(TOPIC)
        await admin.create_subscription(name, "s", EARLIEST)
        others.asked.clear()
        await admin.delete_subscription(name, "s")
        assert others.asked == []  # the node of partition 1 has no such subscription
        assert room.broker.topics.loaded()[0].subscriptions == {}
        await raises(SubscriptionNotFoundError, admin.delete_subscription(name, "s"))
        path = "/managed-ledgers/public/default/persistent/orders-partition-1/s"
        await room.broker.metadata.create(path, b"")
        await admin.delete_subscription(name, "s", force=True)
        assert others.asked == [("DELETE", "/subscription/s?force=true", None)]


async def test_a_partitioned_topic_goes_with_the_partitions_of_others_unless_one_is_in_use() -> None:
    async with on_two_brokers() as (room, others):
        admin, name = room.broker.administration, TopicName.parse(TOPIC)
        others.raising = TopicBusyError("connected")
        await raises(TopicBusyError, admin.delete_partitioned_topic(name))
        assert await admin.partitions(name) == 2
        assert others.asked == [("GET", "/quireUnused", None)]
        others.raising = TopicNotFoundError("gone")  # this is the answer to the deletion of the partition
        others.asked.clear()
        await admin.delete_partitioned_topic(name, force=True)
        assert others.asked == [("DELETE", "?force=true", None)]
        assert await admin.partitions(name) == 0


async def test_what_is_inside_a_partition_is_told_by_its_owner_and_it_is_unloaded_there() -> None:
    async with on_two_brokers() as (room, others):
        admin, name = room.broker.administration, TopicName.parse(TOPIC)
        others.answer = {"state": "theirs"}
        assert await admin.internal_stats_json(name.with_partition(1)) == others.answer
        assert (await admin.internal_stats_json(name.with_partition(0)))["state"] == "LedgerOpened"
        assert len(room.broker.topics.loaded()) == 1
        others.asked.clear()
        await admin.unload_topic(name)
        assert others.asked == [("PUT", "/unload", None)]
        assert room.broker.topics.loaded() == []
        await raises(TopicNotFoundError, admin.unload_topic(TopicName.parse("nothing")))
