"""When topics that are not used are deleted.

GET, POST, DELETE   {namespace}/inactiveTopicPolicies, {topic}/inactiveTopicPolicies
                    {"inactiveTopicDeleteMode":"delete_when_no_subscriptions","maxInactiveDurationSeconds":60,
                     "deleteWhileInactive":true}; of a topic with ?applied=true: what holds

204: none is set, or done; 412: an invalid value. Source: Pulsar's NamespacesBase.internalSetInactiveTopic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.admin.life_policies.handlers import of_namespace, of_topic
from broker.admin.policies import Handlers
from broker.admin.requests import AdminCall
from broker.topics.life.inactivity import NAMESPACE_INACTIVE, TOPIC_INACTIVE, inactive_policies, rule_of
from broker.topics.policies import Held


def _applied(call: AdminCall, held: Held) -> Mapping[str, Any]:
    return rule_of(call.administration.options, held.of_namespace, held.of_topic).shown


OF_NAMESPACE: Final[Mapping[str, Handlers]] = {
    "inactiveTopicPolicies": of_namespace(NAMESPACE_INACTIVE, inactive_policies)
}
OF_TOPIC: Final[Mapping[str, Handlers]] = {
    "inactiveTopicPolicies": of_topic(TOPIC_INACTIVE, inactive_policies, _applied)
}
