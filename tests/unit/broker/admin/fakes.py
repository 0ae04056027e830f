"""The admin resources over an administration that records its calls, without a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import httpx2
import trio
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from broker.admin.administration import Administration
from broker.admin.cluster.brokers import elsewhere
from broker.admin.requests import ClusterService, Service
from broker.admin.resources import routes
from broker.admin.stats.internal_stats import InternalStats
from broker.config import BrokerOptions
from broker.ownership.bundles import Bundle
from broker.security.principal import Principal
from broker.topics.non_persistent.loaded import NonPersistentTopics
from broker.topics.partitioned_topics import PartitionedTopics, Partitioning
from broker.topics.schemas.registry import Schemas
from broker.topics.subscription_cursors import Pairs
from broker.topics.topic import Topic
from quire.ledger.position import Position
from quire.service.http import Health, make_app
from quire.service.metrics import Metrics
from quire.service.routes import Check
from quire.wire.pulsar.names import NamespaceName, TopicName

TOPICS = "/admin/v2/persistent/public/default"
BROKER_URL = "pulsar://broker:6650"
WEB_URL = "http://broker:8080"


class Stats:
    """Parts of InternalStats used by the resources."""

    def __init__(self, name: TopicName, metadata: bool) -> None:
        self.last_confirmed = Position(7, 3)
        self._json = {"of": name.full, "metadata": metadata, "lastConfirmedEntry": "7:3"}

    def as_json(self, cursor: object = None) -> dict[str, object]:
        return self._json


class NoneDirect:
    """Broker without non-persistent topics."""

    async def names_everywhere(self, namespace: NamespaceName) -> list[TopicName]:
        return []

    async def unload(self, bundle: Bundle, next_owner: str = "") -> None:
        pass


class FakeAdministration(Administration):
    """Answers from its fields. If set, `error` is raised instead, and a change waits for `gate`."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.done: list[str] = []
        self.error: Exception | None = None
        self.gate: trio.Event | None = None
        self.partition_count = 0
        self.partition_properties: dict[str, str] = {}
        self.names = ["persistent://public/default/a"]
        self.partitioned_names: list[str] | None = None
        """The same as `names` if None."""
        self.position = Position(12, 5)
        self.kept_schemas: Schemas | None = None
        self.kept_options = BrokerOptions()
        self.check_quotas = self._check_quotas
        self.direct = cast("NonPersistentTopics", NoneDirect())

        self.partitioned = cast(PartitionedTopics, self)

    async def find(self, name: TopicName) -> Partitioning | None:
        """Return the node of a partitioned topic, as `PartitionedTopics` does."""
        count = self.partition_count
        return Partitioning(partitions=count, properties=tuple(self.partition_properties.items())) if count else None

    async def plain_topic(self, name: TopicName) -> Topic:
        await self._note("plain_topic", name.full)
        raise AssertionError("there are no topics here")

    @property
    def options(self) -> BrokerOptions:
        return self.kept_options

    async def _check_quotas(self) -> None:
        await self._note("check_quotas")

    @property
    def schemas(self) -> Schemas:
        assert self.kept_schemas is not None, "the test has no schemas"
        return self.kept_schemas

    async def check_namespace(self, name: TopicName) -> None:
        await self._note("check_namespace", name.full)

    async def _note(self, *asked: Any) -> None:
        self.asked.append(asked)
        await trio.lowlevel.checkpoint()
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.done.append(asked[0])

    async def create_partitioned_topic(
        self, name: TopicName, partitions: int, properties: Mapping[str, str] | None = None, log: bytes | None = None
    ) -> None:
        await self._note("create_partitioned_topic", name.full, partitions, properties)

    async def grow_partitioned_topic(self, name: TopicName, partitions: int) -> None:
        await self._note("grow_partitioned_topic", name.full, partitions)

    async def partitions(self, name: TopicName) -> int:
        await self._note("partitions", name.full)
        return self.partition_count

    async def client_partitions(self, name: TopicName) -> int:
        await self._note("client_partitions", name.full)
        return self.partition_count

    async def delete_partitioned_topic(self, name: TopicName, force: bool = False) -> None:
        await self._note("delete_partitioned_topic", name.full, force)

    async def topics_of_namespace(self, namespace: NamespaceName) -> list[str]:
        await self._note("topics_of_namespace", str(namespace))
        return self.names

    async def partitioned_topics_of_namespace(self, namespace: NamespaceName, domain: str = "persistent") -> list[str]:
        await self._note("partitioned_topics_of_namespace", str(namespace))
        names = self.names if self.partitioned_names is None else self.partitioned_names
        return [name for name in names if name.startswith(f"{domain}://")]

    async def create_topic(self, name: TopicName, properties: Pairs = ()) -> None:
        await self._note("create_topic", name.full, *properties)

    async def delete_topic(self, name: TopicName, force: bool = False) -> None:
        await self._note("delete_topic", name.full, force)

    async def create_subscription(
        self, name: TopicName, subscription: str, position: Position, properties: Pairs = ()
    ) -> None:
        await self._note("create_subscription", name.full, subscription, position, *properties)

    async def delete_subscription(self, name: TopicName, subscription: str, force: bool = False) -> None:
        await self._note("delete_subscription", name.full, subscription, force)

    async def subscriptions(self, name: TopicName) -> list[str]:
        await self._note("subscriptions", name.full)
        return self.names

    async def internal_stats(self, name: TopicName, metadata: bool = False) -> InternalStats:
        await self._note("internal_stats", name.full, metadata)
        return cast("InternalStats", Stats(name, metadata))

    async def internal_stats_json(self, name: TopicName, metadata: bool = False) -> Any:
        return (await self.internal_stats(name, metadata)).as_json()

    async def exists(self, name: TopicName) -> bool:
        await self._note("exists", name.full)
        return name.full in self.names

    async def unload_topic(self, name: TopicName) -> None:
        await self._note("unload_topic", name.full)

    async def check_unused(self, name: TopicName) -> None:
        await self._note("check_unused", name.full)

    async def delete_wherever(self, name: TopicName) -> None:
        await self._note("delete_wherever", name.full)

    async def delete_left_over(self, namespace: NamespaceName) -> None:
        await self._note("delete_left_over", str(namespace))

    async def message_id_at(self, name: TopicName, epoch_ms: int) -> Position:
        await self._note("message_id_at", name.full, epoch_ms)
        return self.position


class Rest:
    """Web application over a FakeAdministration, and a client of it; enter it inside trio."""

    def __init__(
        self, *, deadline_s: float = 30.0, requests_max: int = 200, cluster: ClusterService | None = None
    ) -> None:
        self.administration = FakeAdministration()
        self.service = Service(
            administration=self.administration,
            client_partitions=self.administration.client_partitions,
            broker_url=lambda: BROKER_URL,
            web_url=lambda: WEB_URL,
            deadline_s=deadline_s,
            requests_max=requests_max,
            cluster=cluster,
        )
        self.principal: Principal | None = None
        """Principal of the requests, as authentication finds it."""
        self.check: Callable[[str], Check] | None = None
        """Check of requests to what is not of the admin REST."""
        self.also: list[BaseRoute] = []
        """Routes beside those of the admin REST."""

    async def run(self, body: Callable[[Rest], Awaitable[None]]) -> None:
        async with self.served():
            await body(self)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        health = Health(
            is_ready=lambda: True, check=trio.lowlevel.checkpoint, elsewhere=partial(elsewhere, self.service)
        )
        app = make_app(Metrics(), health, [*routes(self.service), *self.also], guard=self.check)

        async def authenticated(scope: Scope, receive: Receive, send: Send) -> None:
            scope["principal"] = self.principal
            await app(scope, receive, send)

        transport = httpx2.ASGITransport(app=authenticated)
        async with httpx2.AsyncClient(transport=transport, base_url="http://broker") as self.client:
            yield
        assert self.service.under_way == 0

    async def ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        return await self.client.request(method, path, **options)


def ask(
    method: str, path: str, prepare: Callable[[FakeAdministration], None] = lambda _: None, **options: Any
) -> tuple[httpx2.Response, list[tuple[Any, ...]]]:
    """Return the answer to one request, and the calls of the administration."""
    responses: list[httpx2.Response] = []
    rest = Rest()
    prepare(rest.administration)

    async def once(rest: Rest) -> None:
        responses.append(await rest.ask(method, path, **options))

    trio.run(rest.run, once)
    return responses[0], rest.administration.asked


def fail_with(error: Exception) -> Callable[[FakeAdministration], None]:
    """Return a function that prepares an administration whose calls raise `error`."""

    def prepare(administration: FakeAdministration) -> None:
        administration.error = error

    return prepare
