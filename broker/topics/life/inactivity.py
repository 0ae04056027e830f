"""When a topic counts as inactive, and what then becomes of it (pure).

    policies of a namespace    "inactive_topic_policies"  {"inactiveTopicDeleteMode":"delete_when_no_subscriptions",
                                                           "maxInactiveDurationSeconds":60,"deleteWhileInactive":true}
    policies of one topic      "inactiveTopicPolicies"    the same

Order: topic, namespace, broker.conf; each as a whole. What cannot be read counts as not said.

Source: Pulsar's InactiveTopicPolicies, PersistentTopic (isActive, checkGC, shouldTopicBeRetained).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker.life_config import CAUGHT_UP, INACTIVE_MODES, LifeOptions
from broker.ownership.values import Json
from broker.topics.policy_values import INT32_MAX, PolicyError

NAMESPACE_INACTIVE: Final = "inactive_topic_policies"
TOPIC_INACTIVE: Final = "inactiveTopicPolicies"

Policies = Mapping[str, Any] | None


class InactiveRule(NamedTuple):
    """Rule for inactive topics: deleted or not, after being inactive for so long, as `mode` has it."""

    delete: bool
    mode: str
    after_s: float

    @property
    def shown(self) -> Json:
        """Return the value as it is answered."""
        return {
            "inactiveTopicDeleteMode": self.mode,
            "maxInactiveDurationSeconds": int(self.after_s),
            "deleteWhileInactive": self.delete,
        }


class Usage(NamedTuple):
    """Use of a topic."""

    clients: int
    """Producers and consumers."""
    subscriptions: int
    has_backlog: bool


def rule_of(options: LifeOptions, namespace: Policies, topic: Policies) -> InactiveRule:
    """Return the rule for a topic."""
    for policies, key in ((topic, TOPIC_INACTIVE), (namespace, NAMESPACE_INACTIVE)):
        said = (policies or {}).get(key)
        if said is not None:
            try:
                value = inactive_policies(said)
            except PolicyError:
                continue
            return InactiveRule(
                value["deleteWhileInactive"], value["inactiveTopicDeleteMode"], value["maxInactiveDurationSeconds"]
            )
    after_s = options.inactive_s or options.inactive_check_interval_s
    return InactiveRule(options.delete_inactive, options.inactive_mode, after_s)


def is_active(mode: str, usage: Usage) -> bool:
    """Return whether a topic counts as in use.

    >>> [is_active("delete_when_no_subscriptions", Usage(0, count, False)) for count in (0, 1)]
    [False, True]
    >>> [is_active("delete_when_subscriptions_caught_up", Usage(0, 1, behind)) for behind in (False, True)]
    [False, True]
    """
    if usage.clients:
        return True
    return usage.has_backlog if mode == CAUGHT_UP else usage.subscriptions > 0


def is_retained(retention_minutes: int, idle_s: float) -> bool:
    """Return whether a topic that is inactive is kept for its messages.

    >>> [is_retained(minutes, 90) for minutes in (-1, 0, 1, 2)]
    [True, False, False, True]
    """
    return retention_minutes < 0 or idle_s < 60 * retention_minutes


def inactive_policies(value: object) -> Json:
    """Return a checked rule, as it is stored. Raises PolicyError."""
    if not isinstance(value, Mapping):
        raise PolicyError("inactiveTopicPolicies must be an object")
    mode, seconds = value.get("inactiveTopicDeleteMode"), value.get("maxInactiveDurationSeconds")
    delete = value.get("deleteWhileInactive", False)
    if mode not in INACTIVE_MODES:
        raise PolicyError(f"inactiveTopicDeleteMode must be one of {', '.join(INACTIVE_MODES)}")
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 1 <= seconds <= INT32_MAX:
        raise PolicyError("maxInactiveDurationSeconds must be a whole number above 0")
    if not isinstance(delete, bool):
        raise PolicyError("deleteWhileInactive must be true or false")
    return {
        "inactiveTopicDeleteMode": mode,
        "maxInactiveDurationSeconds": seconds,
        "deleteWhileInactive": delete,
    }
