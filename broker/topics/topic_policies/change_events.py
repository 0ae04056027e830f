"""Change events of all namespaces: read and written here where this broker serves their topics, else asked of the
owner.

After each change the owner announces the place of the last event, which every broker of the cluster watches:

    /quire/topic-policies/<tenant>/<namespace>      {"__change_events":"12:3"}, by partition if it has partitions

An announcement that a crash prevented is made up for when the log is read next.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from broker.background import see_through
from broker.context import Context
from broker.errors import BrokerError, ServiceNotReadyError, TopicExistsError, translated
from broker.ownership.values import Json
from broker.topics.loaded_topics import Topics
from broker.topics.topic_policies.source import (
    PolicyChanges,
    announced_path,
    change_events,
    decode_announced,
    position_of,
)
from cursors.errors import CursorError
from managed_ledger.errors import ManagedLedgerError
from quire.ledger.position import Position
from quire.metadata.errors import NodeExistsError, NoNodeError
from quire.metadata.store import MetadataStore
from quire.metadata.update_loop import update_node
from quire.service.log import get_logger
from quire.wire.pulsar.names import NamespaceName, TopicName

if TYPE_CHECKING:
    from broker.topics.topic_policies.change_log import ChangeLog
    from broker.topics.topic_policies.writing import Said

log = get_logger(__name__)

RETRY_S: Final = 1.0
RESOURCE: Final = "/quireTopicPolicies"
"""Resource at which owners answer other brokers."""
EVENTS_IN_STEP: Final = 20
"""Events that are encoded, and stored, before other tasks run."""


class Elsewhere(Protocol):
    """Topics of other brokers."""

    async def owner(self, name: TopicName) -> str | None:
        """Return the web URL of the owner; None: this broker is it."""

    async def ask(self, web_url: str, method: str, name: TopicName, resource: str) -> Any:
        """Return the JSON that the owner of a topic answers."""


class ChangeEvents:
    """The source of topic policies (`source.PolicySource`) of one broker."""

    def __init__(self, context: Context, metadata: MetadataStore, topics: Topics) -> None:
        self.elsewhere: Elsewhere | None = None
        """None: this broker serves every topic."""
        self._context = context
        self._metadata = metadata
        self._topics = topics
        self._logs: dict[str, ChangeLog] = {}
        self._announcing: set[str] = set()
        self._producer = ""

    # Reading

    async def logs(self, namespace: NamespaceName) -> list[TopicName]:
        """See `PolicySource`."""
        name = change_events(namespace)
        count = await self._topics.partitioned.get(name)
        if count:
            return [name.with_partition(index) for index in range(count)]
        return [name] if await self._topics.exists(name) else []

    async def changes(self, name: TopicName, since: Position | None, announced: Position | None) -> PolicyChanges:
        """See `PolicySource`."""
        url = None if self.elsewhere is None else await self.elsewhere.owner(name)
        if url is None:
            return await self.changes_here(name, since)
        if since is not None and announced is not None and announced <= since:
            return PolicyChanges(False, since, {}, False)
        assert self.elsewhere is not None
        resource = RESOURCE if since is None else f"{RESOURCE}?since={since}"
        answer = await self.elsewhere.ask(url, "GET", name, resource)
        upto = position_of(answer.get("upto")) if isinstance(answer, dict) else None
        policies = answer.get("policies") if isinstance(answer, dict) else None
        if upto is None or not isinstance(policies, dict):
            raise ServiceNotReadyError(f"{name.full}: its broker at {url} does not say what policies there are")
        return PolicyChanges(answer.get("whole") is True, upto, policies, answer.get("more") is True)

    async def changes_here(self, name: TopicName, since: Position | None) -> PolicyChanges:
        """Return what this broker, the owner, has read. Raises NotOwnerError, ServiceNotReadyError."""
        log = await self._log(name)
        await log.read_on()
        self._announce_later(log)
        return log.changes(since)

    async def _log(self, name: TopicName) -> ChangeLog:
        """Return the log of a topic that this broker serves."""
        try:
            topic = await self._topics.get(name, create=False)
        except (ManagedLedgerError, CursorError) as error:
            raise ServiceNotReadyError(f"{name.full} cannot be loaded: {error}") from error
        known = self._logs.get(name.full)
        if known is not None and known.topic is topic:
            return known
        # Not at the start: most brokers have no policies of topics to read before they serve.
        from broker.topics.topic_policies.change_log import ChangeLog

        made = self._logs[name.full] = ChangeLog(topic, self._topics.schemas)
        for full in [full for full, each in self._logs.items() if each.topic.closing]:
            del self._logs[full]
        return made

    async def log_of(self, name: TopicName) -> TopicName:
        """Return the log for the policies of a topic, whether or not it exists."""
        return self._log_of(name, await self.logs(name.namespace_name))

    @staticmethod
    def _log_of(name: TopicName, logs: list[TopicName]) -> TopicName:
        if len(logs) <= 1:
            return logs[0] if logs else change_events(name.namespace_name)
        from quire.client.routing import partition_of

        return logs[partition_of(name.partitioned.full, len(logs))]

    # Writing

    async def update(
        self,
        name: TopicName,
        change: Callable[[Json], Json] | None,
        *,
        is_global: bool,
        older: Mapping[str, Json],
    ) -> list[str]:
        """See `PolicySource`."""
        work = partial(self._update, name, change, is_global=is_global, older=older)
        return await see_through(self._context.nursery, work, name=f"policies of {name.full}")

    async def delete(self, name: TopicName, *, older: Mapping[str, Json]) -> list[str]:
        """See `PolicySource`."""
        log_name = await self.log_of(name)
        url = None if self.elsewhere is None else await self.elsewhere.owner(log_name)
        if url is None or self.elsewhere is None:
            return await self.update(name, None, is_global=False, older=older)
        await self.elsewhere.ask(url, "DELETE", name, RESOURCE)
        return []

    async def _update(
        self,
        name: TopicName,
        change: Callable[[Json], Json] | None,
        *,
        is_global: bool,
        older: Mapping[str, Json],
    ) -> list[str]:
        from broker.topics.topic_policies.writing import left_over, said_by

        logs = await self.logs(name.namespace_name)
        log_name = self._log_of(name, logs)
        if not logs:
            try:
                await self._topics.create(log_name)
            except TopicExistsError:
                pass  # another caller was first
            logs = [log_name]
        log = await self._log(log_name)
        mine = {full: fields for full, fields in older.items() if self._log_of(TopicName.parse(full), logs) == log_name}
        async with log.turn:
            await log.read_on()
            await self._write(log, [*left_over(log, mine), *said_by(log, name, change, is_global, mine)])
        await self._announce(log)
        return [full for full in mine if log.has(full)]

    async def _write(self, log: ChangeLog, said: Sequence[Said]) -> None:
        """Add events. Raises ServiceNotReadyError, MetadataRefusedError."""
        if not said:
            return
        from broker.topics.topic_policies.event_schema import event_schema
        from broker.topics.topic_policies.writing import EventWriter

        schemas, name = self._topics.schemas, log.topic.name
        version = await schemas.register(name, event_schema(), schemas.defaults.rules(name, None, None))
        self._producer = self._producer or self._context.next_producer_name()
        writer = EventWriter(self._context.options.cluster_name, self._producer, version)
        for first in range(0, len(said), EVENTS_IN_STEP):
            now_ms = self._context.world.clock.wall_ms()
            entries = [writer.entry(each, now_ms) for each in said[first : first + EVENTS_IN_STEP]]
            await log.append(entries)

    # Announcing

    async def _announce(self, log: ChangeLog) -> None:
        """Let every broker know to where there is something to read. Raises MetadataUnavailableError."""
        upto = log.read_to
        if log.announced is not None and log.announced >= upto:
            return
        name = log.topic.name
        path = announced_path(name.namespace_name)

        def changed(value: bytes) -> bytes | None:
            places = decode_announced(value)
            if name.local in places and places[name.local] >= upto:
                return None
            places[name.local] = upto
            return json.dumps({key: str(each) for key, each in sorted(places.items())}).encode()

        with translated(path):
            while True:
                try:
                    await update_node(self._metadata, path, changed)
                    break
                except NoNodeError:
                    pass
                try:
                    await self._metadata.create(path, changed(b"{}") or b"{}", make_parents=True)
                    break
                except NodeExistsError:
                    continue
        log.announced = upto

    def _announce_later(self, log: ChangeLog) -> None:
        """Announce in the background, if that is to be done and not under way."""
        full = log.topic.name.full
        if log.read_to.entry_id < 0:
            return  # it is empty
        if (log.announced is None or log.announced < log.read_to) and full not in self._announcing:
            self._announcing.add(full)
            self._context.nursery.start_soon(self._keep_announcing, log, name=f"announce {full}")

    async def _keep_announcing(self, log: ChangeLog) -> None:
        try:
            while not log.topic.closing:
                try:
                    await self._announce(log)
                    return
                except BrokerError:
                    await trio.sleep(RETRY_S)
        finally:
            self._announcing.discard(log.topic.name.full)
