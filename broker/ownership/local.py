"""Ownership where there is one broker, which has everything. Has the interface of `Ownership`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

import trio

from broker.ownership.bundles import RANGE_EQUALLY, Bundle
from broker.ownership.errors import NoSuchBundleError
from broker.ownership.load_reports import TopicCounters
from broker.ownership.lookup import Connect, Redirect
from broker.ownership.namespaces import Namespaces
from quire.wire.pulsar.names import TopicName


class Owning(Protocol):
    """Interface of ownership as the broker uses it."""

    on_lost: Callable[[Bundle], None]
    on_unload: Callable[[Bundle, str | None], Awaitable[None]]
    counters: Callable[[], Iterable[TopicCounters]]

    @property
    def namespaces(self) -> Namespaces | None: ...

    @property
    def health_topic(self) -> str: ...

    def owns(self, name: TopicName) -> bool: ...

    def bundle_of(self, name: TopicName) -> Bundle | None: ...

    async def lookup(self, name: TopicName, *, authoritative: bool) -> Connect | Redirect: ...

    async def check(self, name: TopicName) -> None: ...

    async def unload(self, bundle: Bundle, *, destination: str | None = None) -> None: ...

    async def split(
        self,
        bundle: Bundle,
        *,
        algorithm: str = RANGE_EQUALLY,
        unload: bool = False,
        positions: Sequence[int] = (),
    ) -> None: ...

    def owned(self) -> list[Bundle]: ...

    async def release_all(self) -> None: ...

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None: ...


class OwnEverything:
    """Ownership of everything, without bundles, metadata or await."""

    namespaces: Namespaces | None = None
    health_topic = "persistent://pulsar/system/healthcheck"

    def __init__(self, service_url: str = "", web_url: str = "") -> None:
        self.service_url = service_url
        self.web_url = web_url
        self.on_lost: Callable[[Bundle], None] = _never_lost
        self.on_unload: Callable[[Bundle, str | None], Awaitable[None]] = _never_unloaded
        self.counters: Callable[[], Iterable[TopicCounters]] = tuple

    def owns(self, name: TopicName) -> bool:
        return True

    def bundle_of(self, name: TopicName) -> Bundle | None:
        return None

    async def lookup(self, name: TopicName, *, authoritative: bool) -> Connect | Redirect:
        return Connect(self.service_url, self.web_url, mine=True)

    async def check(self, name: TopicName) -> None:
        pass

    async def unload(self, bundle: Bundle, *, destination: str | None = None) -> None:
        raise NoSuchBundleError("there are no bundles where there is one broker")

    async def split(
        self,
        bundle: Bundle,
        *,
        algorithm: str = RANGE_EQUALLY,
        unload: bool = False,
        positions: Sequence[int] = (),
    ) -> None:
        raise NoSuchBundleError("there are no bundles where there is one broker")

    def owned(self) -> list[Bundle]:
        return []

    async def release_all(self) -> None:
        pass

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await trio.sleep_forever()


def _never_lost(bundle: Bundle) -> None:
    pass


async def _never_unloaded(bundle: Bundle, destination: str | None) -> None:
    pass
