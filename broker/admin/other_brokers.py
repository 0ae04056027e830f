"""Access to topics of other brokers over their admin REST.

One broker handles a call about a partitioned topic as a whole and asks the owner of each partition. It follows
redirects (307), because owners change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import trio

from broker.errors import (
    BrokerError,
    IsPartitionedError,
    ServiceNotReadyError,
    SubscriptionBusyError,
    SubscriptionExistsError,
    SubscriptionNotFoundError,
    TopicBusyError,
    TopicNotFoundError,
)
from broker.ownership.http_client import HttpAnswer, request
from broker.ownership.lookup import Connect, Redirect
from broker.ownership.own_credentials import OwnCredentials
from broker.ownership.urls import Urls, web_url
from broker.topics.subscription_cursors import Pairs
from quire.ledger.position import Position
from quire.wire.pulsar.names import TopicName
from quire.world.doors import Network

if TYPE_CHECKING:
    from quire.world.tls_sides import ClientTls

REDIRECTS_MAX = 5
REQUEST_S = 30.0
"""Time for one request, its redirects included."""

Errors = Mapping[int, type[BrokerError]]
"""Errors by status of an answer. Any other status that is no success is ServiceNotReadyError."""
NO_ERRORS: Errors = MappingProxyType({})


class Owners(Protocol):
    """Parts of Ownership used here."""

    async def lookup(self, name: TopicName, *, authoritative: bool) -> Connect | Redirect: ...


class OtherBrokers:
    """Requests to the owners of topics. Every call raises ServiceNotReadyError, beside what `errors` says."""

    def __init__(
        self, ownership: Owners, network: Network, tls: ClientTls | None = None, own: OwnCredentials | None = None
    ) -> None:
        """Take the doors. `tls`, `own`: of this broker as a client, which with `tls` prefers the ports with TLS of
        others."""
        self._ownership = ownership
        self._network = network
        self._tls = tls
        self._own = own

    @property
    def tls(self) -> ClientTls | None:
        """Return TLS of this broker as a client; None: it uses none."""
        return self._tls

    def url_of(self, broker: Urls) -> str:
        """Return the web URL at which this broker asks another one."""
        return web_url(broker, tls=self._tls is not None)

    async def find(self, name: TopicName) -> RemoteTopic | None:
        """Return the topic at its owner; None: this broker serves it. Raises the BrokerErrors of a lookup."""
        url = await self.owner(name)
        return None if url is None else RemoteTopic(self, name, url)

    async def owner(self, name: TopicName) -> str | None:
        """Return the web URL of the broker to ask about a topic; None: this one. Raises the BrokerErrors of a
        lookup."""
        found = await self._ownership.lookup(name, authoritative=False)
        return None if isinstance(found, Connect) and found.mine else self.url_of(found)

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
        """Return the JSON that the owner of a topic answers at `resource`, such as `/internalStats?metadata=true`."""
        path = f"/admin/v2/{name.domain}/{name.namespace_path}/{quote(name.local, safe='')}{resource}"
        return await self.call(web_url, method, path, body=body, errors=errors)

    async def call(
        self, web_url: str, method: str, path: str, *, body: object = None, errors: Errors = NO_ERRORS
    ) -> Any:
        """Request any path from the owner of a topic; return the JSON of the answer."""
        url = f"{web_url}{path}"
        try:
            with trio.fail_after(REQUEST_S):
                for _ in range(REDIRECTS_MAX):
                    answer = await request(self._network, method, url, body, own=self._own, tls=self._tls)
                    if answer.status != 307 or not answer.location:
                        return _judged(answer, url, errors)
                    url = answer.location
        except (OSError, trio.TooSlowError) as error:
            raise ServiceNotReadyError(f"no answer from the broker at {web_url}: {error or 'too slow'}") from error
        raise ServiceNotReadyError(f"{method} {url}: too many redirects")


@dataclass(frozen=True, slots=True)
class RemoteTopic:
    """A topic, or partition, of another broker. Every call raises ServiceNotReadyError, beside the errors it names."""

    others: OtherBrokers
    name: TopicName
    web_url: str

    async def check_unused(self) -> None:
        """Raise TopicBusyError if producers or consumers are connected."""
        await self.ask("GET", "/quireUnused", errors={412: TopicBusyError})

    async def delete(self) -> None:
        """Delete the topic even while in use. Raises TopicNotFoundError."""
        await self.ask("DELETE", "?force=true", errors={404: TopicNotFoundError})

    async def unload(self) -> None:
        """Close the topic at its owner. Raises TopicNotFoundError."""
        await self.ask("PUT", "/unload", errors={404: TopicNotFoundError})

    async def internal_stats(self, metadata: bool = False) -> Any:
        """Return the internal state as JSON. Raises TopicNotFoundError, IsPartitionedError."""
        resource = "/internalStats?metadata=true" if metadata else "/internalStats"
        return await self.ask("GET", resource, errors={404: TopicNotFoundError, 405: IsPartitionedError})

    async def create_subscription(self, subscription: str, position: Position, properties: Pairs = ()) -> None:
        """Create a subscription. Raises TopicNotFoundError, SubscriptionExistsError."""
        body: dict[str, object] = {"ledgerId": position.ledger_id, "entryId": position.entry_id}
        if properties:
            body["properties"] = dict(properties)
        errors: Errors = {404: TopicNotFoundError, 409: SubscriptionExistsError}
        await self.ask("PUT", _subscription(subscription), body=body, errors=errors)

    async def delete_subscription(self, subscription: str, *, force: bool) -> None:
        """Delete a subscription. Raises SubscriptionNotFoundError, SubscriptionBusyError (it has consumers, without
        `force`)."""
        resource = f"{_subscription(subscription)}?force={'true' if force else 'false'}"
        errors: Errors = {404: SubscriptionNotFoundError, 412: SubscriptionBusyError}
        await self.ask("DELETE", resource, errors=errors)

    async def ask(self, method: str, resource: str, *, body: object = None, errors: Errors) -> Any:
        """Return the JSON that the owner answers at `resource`; see `OtherBrokers.ask`."""
        return await self.others.ask(self.web_url, method, self.name, resource, body=body, errors=errors)


def _subscription(name: str) -> str:
    return f"/subscription/{quote(name, safe='')}"


def _judged(answer: HttpAnswer, url: str, errors: Errors) -> Any:
    found = answer.json()
    if answer.status in (200, 204):
        return found
    text = found.get("reason") if isinstance(found, dict) else None
    error = errors.get(answer.status, ServiceNotReadyError)
    raise error(str(text) if text else f"{url}: status {answer.status}")
