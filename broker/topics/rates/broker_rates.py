"""The rates of a whole broker."""

from __future__ import annotations

import trio

from broker.config import BrokerOptions
from broker.topics.rates.bucket import Rate, RateBucket
from broker.topics.rates.publishing import PublishThrottle


class BrokerRates:
    """One per broker. `publish` and `dispatch` hold beside the rates of topics; None: there is none."""

    def __init__(self, options: BrokerOptions, nursery: trio.Nursery) -> None:
        publish = Rate(options.broker_publish_messages, options.broker_publish_bytes)
        dispatch = Rate(options.broker_dispatch_messages, options.broker_dispatch_bytes)
        self.publish = PublishThrottle(publish, nursery, "the broker") if publish else None
        self.dispatch = RateBucket(dispatch, trio.current_time()) if dispatch else None
