"""Quotas of the backlog as causes for which a topic takes no producers."""

from __future__ import annotations

from broker.dispatch.subscription import Subscription
from broker.explain import causes
from broker.explain.causes import Reason
from broker.topics.quotas.backlog import blocking, size_of, slowest
from broker.topics.topic import Topic


class QuotaDoor:
    """The quotas of one broker; see `doors`."""

    def why_not_delivered(self, topic: Topic, subscription: Subscription) -> Reason | None:
        return None

    def why_not_published(self, topic: Topic) -> Reason | None:
        if topic.producers:
            return None  # the next check cuts them off; until then they publish
        quota, holder = blocking(topic), slowest(topic)
        if quota is None or holder is None:
            return None
        bounds = [f"{quota.limit_bytes} bytes"] if quota.limit_bytes >= 0 else []
        if quota.limit_s > 0:
            bounds.append(f"{quota.limit_s} s")
        details = {
            "policy": quota.policy,
            "quota": " or ".join(bounds),
            "holder": holder.name,
            "backlog_bytes": size_of(topic),
        }
        return Reason(causes.BACKLOG_QUOTA, details)
