"""The rates of a whole broker, and of the resource groups."""

from __future__ import annotations

import trio

from broker.config import BrokerOptions
from broker.topics.rates.bucket import Rate, RateBucket
from broker.topics.rates.groups import ResourceGroups
from broker.topics.rates.publishing import PublishThrottle


class BrokerRates:
    """One per broker. `publish` and `dispatch` hold beside the rates of topics; None: there is none. `groups`: rates
    that the topics of a resource group share."""

    def __init__(self, options: BrokerOptions, nursery: trio.Nursery) -> None:
        self._options = options
        self._nursery = nursery
        self.groups = ResourceGroups(nursery)
        self.publish: PublishThrottle | None = None
        self.dispatch: RateBucket | None = None
        self.follow()

    def follow(self) -> None:
        """Hold to the rates that the options have now. What was used of a rate that stays counts on."""
        options, before = self._options, self.publish
        publish = Rate(options.broker_publish_messages, options.broker_publish_bytes)
        dispatch = Rate(options.broker_dispatch_messages, options.broker_dispatch_bytes)
        if before is None or before.rate != publish:
            self.publish = PublishThrottle(publish, self._nursery, "the broker") if publish else None
            if before is not None:
                before.end()
        if self.dispatch is None or self.dispatch.rate != dispatch:
            self.dispatch = RateBucket(dispatch, trio.current_time()) if dispatch else None
