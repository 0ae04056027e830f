"""Refusal of topics that an existing cluster left with policies which this broker does not obey.

Policies that are passed over lose data: a topic whose own retention is not known is trimmed by the namespace's. So a
topic is opened, which may trim it, only after a look at
    /admin/policies/<t>/<ns>                            fields that are not obeyed
    persistent://<t>/<ns>/__change_events               the same, of the topic; what cannot be read of them counts too
quireAcceptUnsupportedPolicies (--accept-unsupported-policies) goes on all the same, with a line in the log.
"""

from __future__ import annotations

from typing import Final

from broker.errors import UnsupportedPoliciesError
from broker.ownership.values import Json
from broker.topics.policies import Held
from broker.topics.topic_policies.source import is_change_events
from quire.service.log import get_logger
from quire.service.recent import Recent
from quire.service.unsupported.policies import described, unsupported
from quire.wire.pulsar.names import TopicName

log = get_logger(__name__)

KNOWN_MAX: Final = 10_000
KNOWN_TTL_S: Final = 60.0
"""Time for which a look at a namespace's policies is kept."""


class Takeover:
    """Decision about each topic before it is opened. `refused` has the reason by namespace, while it holds."""

    def __init__(self, *, accept: bool) -> None:
        self.refused: dict[str, str] = {}
        self._accept = accept
        self._accepted: set[str] = set()
        self._fields: Recent[str, tuple[Json | None, list[str]]] = Recent(KNOWN_MAX, KNOWN_TTL_S)
        """By namespace: its policies at the last look, and the ones that are not obeyed."""

    def check(self, name: TopicName, policies: Held) -> None:
        """Raise UnsupportedPoliciesError if the topic has policies this broker does not obey.

        Logs of change events are loaded in any case: they tell."""
        if is_change_events(name):
            return
        key = name.namespace_path
        reasons = []
        if fields := self._unsupported(key, policies.of_namespace):
            reasons.append(f"policies of namespace {key}: {described(fields)}")
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
