"""Refusal of topics that an existing cluster left with policies which this broker does not obey.

Policies that are passed over lose data: a topic whose own retention is not known is trimmed by the namespace's. So a
topic is opened, which may trim it, only after a look at
    /admin/policies/<t>/<ns>                            fields that are not obeyed
    /admin/topic-policies/local/<t>/<ns>/persistent/..  the same, of the topic
    persistent://<t>/<ns>/__change_events               the topic of Pulsar with policies of topics, not read here:
                                                        if something was ever written to it
quireAcceptUnsupportedPolicies (--accept-unsupported-policies) goes on all the same, with a line in the log.
"""

from __future__ import annotations

from typing import Final

import trio

from broker.errors import BrokerError, UnsupportedPoliciesError, translated
from broker.ownership.values import Json
from broker.topics.partitioned_topics import PartitionedTopics
from broker.topics.policies import Held
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.factory import ManagedLedgerFactory
from quire.service.log import get_logger
from quire.service.recent import Recent
from quire.service.unsupported.policies import described, unsupported
from quire.wire.pulsar.names import NamespaceName, TopicName
from quire.world.errors import again

log = get_logger(__name__)

CHANGE_EVENTS: Final = "__change_events"
COMPACTOR: Final = "__compaction"
KNOWN_MAX: Final = 10_000
KNOWN_TTL_S: Final = 60.0
"""Time a look at a namespace's __change_events is valid: a broker of the original may write to it meanwhile."""


class _Look:
    """A look at one namespace, under way."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.error: BrokerError | ManagedLedgerError | None = None


class Takeover:
    """Decision about each topic before it is opened. `refused` has the reason by namespace, while it holds."""

    def __init__(self, partitioned: PartitionedTopics, factory: ManagedLedgerFactory, *, accept: bool) -> None:
        self.refused: dict[str, str] = {}
        self._partitioned = partitioned
        self._factory = factory
        self._accept = accept
        self._accepted: set[str] = set()
        self._fields: Recent[str, tuple[Json | None, list[str]]] = Recent(KNOWN_MAX, KNOWN_TTL_S)
        """By namespace: its policies at the last look, and the ones that are not obeyed."""
        self._looks: dict[str, _Look] = {}
        self._change_events: Recent[str, bool] = Recent(KNOWN_MAX, KNOWN_TTL_S)

    async def check(self, name: TopicName, policies: Held) -> None:
        """Raise UnsupportedPoliciesError if the topic has policies this broker does not obey.

        Raises MetadataUnavailableError, ManagedLedgerUnavailableError, ManagedLedgerDamagedError if that cannot be
        decided."""
        key = name.namespace_path
        reasons = []
        if fields := self._unsupported(key, policies.of_namespace):
            reasons.append(f"policies of namespace {key}: {described(fields)}")
        known = self._change_events.get(key)
        if await self._may_have_change_events(name.namespace_name) if known is None else known:
            reasons.append(f"policies of single topics in persistent://{key}/{CHANGE_EVENTS}, which is not read")
        shared = "; ".join(reasons)
        if fields := unsupported(policies.of_topic):
            reasons.append(f"policies of {name.partitioned.full}: {described(fields)}")
        if not reasons:
            self.refused.pop(key, None)
            return
        why = "; ".join(reasons)
        if self._accept:
            if key not in self._accepted:
                self._accepted.add(key)
                log.warning("accepting policies that are not obeyed", namespace=key, reason=why)
            return
        if shared and self.refused.get(key) != shared:
            self.refused[key] = shared
            log.warning("topics of the namespace not loaded: unsupported policies", namespace=key, reason=why)
        raise UnsupportedPoliciesError(
            f"{name.full} is not loaded, since policies would not be obeyed: {why}. Remove them, or start the "
            "broker with "
            "--accept-unsupported-policies"
        )

    def _unsupported(self, key: str, policies: Json | None) -> list[str]:
        known = self._fields.get(key)
        if known is None or known[0] is not policies:
            known = policies, unsupported(policies)
            self._fields.put(key, known)
        return known[1]

    async def _may_have_change_events(self, namespace: NamespaceName) -> bool:
        """Return whether there may be change events. Where policies are accepted, a failed look counts as none."""
        try:
            return await self._has_change_events(namespace)
        except (BrokerError, ManagedLedgerError):
            if self._accept:
                return True
            raise

    async def _has_change_events(self, namespace: NamespaceName) -> bool:
        """Return whether there are change events. Concurrent callers for a namespace share one look."""
        key = str(namespace)
        while (known := self._change_events.get(key)) is None:
            look = self._looks.get(key)
            if look is None:
                await self._look(namespace)
                continue
            await look.done.wait()
            if look.error is not None:
                raise again(look.error) from look.error
        return known

    async def _look(self, namespace: NamespaceName) -> None:
        key = str(namespace)
        look = self._looks[key] = _Look()
        try:
            self._change_events.put(key, await self._look_for_change_events(namespace))
        except (BrokerError, ManagedLedgerError) as error:
            look.error = error
            raise
        finally:
            del self._looks[key]
            look.done.set()

    async def _look_for_change_events(self, namespace: NamespaceName) -> bool:
        topic = TopicName.parse(f"persistent://{namespace}/{CHANGE_EVENTS}")
        with translated(topic.full):
            count = await self._partitioned.get(topic)
        names = [f"{topic.full}-partition-{index}" for index in range(count)] or [topic.full]
        for each in names:
            path = TopicName.parse(each).managed_ledger_path
            if await self._factory.had_entries(path, compactor=COMPACTOR):
                return True
        return False
