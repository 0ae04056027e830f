"""Deletion of topics whose restoration from a backup was given up: no request of it came for a long time.

A loaded topic has the time of its last request in memory. One that is not loaded is found by the list of restorations
(`restorations`), whose times are at most TOUCHED_LATE_S late. Its owner loads it, which shows whether it still has the
mark, and deletes it in the same step in which it sees that no request came since. If no broker has the topic, the
leader asks the broker that is to take it for a lookup, after which that broker is the owner.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol
from urllib.parse import quote

import trio

from broker.background import for_all
from broker.config import BrokerOptions
from broker.errors import BrokerError, TopicBusyError, TopicNotFoundError
from broker.ownership.lookup import Connect, Redirect
from broker.ownership.urls import Urls
from broker.topics.life.restorations import Restoration, Restorations
from broker.topics.loaded_topics import Topics
from broker.topics.policies import TopicPolicies
from broker.topics.topic import Topic
from managed_ledger.keeping import restored_from
from quire.service.log import get_logger
from quire.wire.pulsar.names import TopicName

log = get_logger(__name__)

TOUCHED_LATE_S: Final = 600.0
"""Seconds between two requests of a restoration that are noted (`quire.cli.backup.topic_restore.TOUCH_S`)."""
SWEEP_S: Final = 600.0
"""Seconds between two looks at the list."""


class TopicPlaces(Protocol):
    """Part of the ownership used here."""

    async def lookup(self, name: TopicName, *, authoritative: bool) -> Connect | Redirect: ...


class Others(Protocol):
    """Requests to other brokers, as far as they are used here."""

    def url_of(self, broker: Urls) -> str: ...

    async def call(self, web_url: str, method: str, path: str) -> object: ...


class AbandonedRestorations:
    """Checks of one broker."""

    def __init__(
        self,
        topics: Topics,
        owners: TopicPlaces,
        restorations: Restorations,
        policies: TopicPolicies,
        options: BrokerOptions,
        wall_ms: Callable[[], int],
        *,
        delete_partitioned: Callable[[TopicName], Awaitable[None]],
        others: Callable[[], Others | None],
    ) -> None:
        """Take the parts.

        Args:
            delete_partitioned: deletes a partitioned topic; raises BrokerError.
            others: returns the other brokers; None: there are none.
        """
        self._topics = topics
        self._owners = owners
        self._restorations = restorations
        self._policies = policies
        self._options = options
        self._wall_ms = wall_ms
        self._delete_partitioned = delete_partitioned
        self._others = others
        self._swept_at = trio.current_time()

    def is_abandoned(self, topic: Topic) -> bool:
        """Return whether the restoration of a loaded topic was given up."""
        after_s = self._options.abandoned_restore_s
        return 0 < after_s <= trio.current_time() - topic.used_at

    async def delete(self, topic: Topic) -> None:
        """Delete a loaded topic whose restoration was given up, unless it continues by now."""
        await self._delete(topic, self.is_abandoned)

    async def sweep(self) -> None:
        """Look at the list, if that is due. Errors are logged."""
        now = trio.current_time()
        if not self._options.abandoned_restore_s or now < self._swept_at + SWEEP_S:
            return
        self._swept_at = now
        try:
            noted = await self._restorations.all()
        except BrokerError as error:
            log.warning("restorations not looked at", reason=str(error))
            return
        await for_all(filter(self._is_overdue, noted), self._look, name="look at abandoned restorations")

    def _is_overdue(self, noted: Restoration) -> bool:
        after_s = max(self._options.abandoned_restore_s, 2 * TOUCHED_LATE_S)
        return self._wall_ms() - noted.touched_ms >= 1000 * after_s

    async def _look(self, noted: Restoration) -> None:
        name = noted.topic
        try:
            unfinished, node = await self._restorations.unfinished(name)
            for each in unfinished:
                if self._topics.find(each) is None:  # else it is one of the loaded topics
                    await self._delete_at_owner(each)
            if not unfinished and node:
                await self._delete_without_partitions(name)
            elif not unfinished:
                await self._restorations.forget(name)
        except BrokerError as error:
            log.warning("abandoned restoration not deleted", topic=name.full, reason=str(error))

    async def _delete_at_owner(self, name: TopicName) -> None:
        found = await self._owners.lookup(name, authoritative=False)
        if isinstance(found, Redirect):
            if found.authoritative:
                await self._place(name, found)
            return
        if not found.mine:
            return  # its owner looks at the same list
        try:
            topic = await self._topics.get(name, create=False)
        except TopicNotFoundError:
            return
        used_at = topic.used_at
        await self._delete(topic, lambda found: found.used_at == used_at)

    async def _place(self, name: TopicName, found: Redirect) -> None:
        """Ask the broker of a redirect for a lookup, with which it takes a topic that no broker has."""
        others = self._others()
        if others is not None:
            path = f"/lookup/v2/topic/{name.domain}/{name.namespace_path}/{quote(name.local, safe='')}"
            await others.call(others.url_of(found), "GET", f"{path}?authoritative=true")

    async def _delete(self, topic: Topic, is_abandoned: Callable[[Topic], bool]) -> None:
        name = topic.name

        def check(found: Topic) -> None:
            if not restored_from(found.ledger.properties) or not is_abandoned(found):
                raise TopicBusyError(f"topic {name.full} is being restored again")

        try:
            await self._topics.delete(name, force=False, check=check)
            log.warning("abandoned restoration deleted", topic=name.full, after_s=self._options.abandoned_restore_s)
            if name.partition < 0:
                await self._policies.delete(name)
                await self._restorations.forget(name)
            else:
                await self._delete_without_partitions(name.partitioned)
        except (TopicBusyError, TopicNotFoundError):
            pass
        except BrokerError as error:
            log.warning("abandoned restoration not deleted", topic=name.full, reason=str(error))

    async def _delete_without_partitions(self, name: TopicName) -> None:
        """Delete a partitioned topic of which no partition is left."""
        if not await self._topics.partitioned.existing_partitions(name):
            await self._delete_partitioned(name)
            await self._restorations.forget(name)
            log.info("inactive partitioned topic deleted", topic=name.full)
