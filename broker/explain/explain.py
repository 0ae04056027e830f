"""Entrance to the explanations of one broker. What they need is loaded when the first one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.context import Context
from broker.explain.watch import StuckWatch

if TYPE_CHECKING:
    from broker.explain.doors import ExplainingRoom
    from broker.explain.explanations import Explanations


class Explain:
    """Explanations of one broker, and the watch over its subscriptions."""

    def __init__(self, context: Context) -> None:
        self.doors: list[ExplainingRoom] = []
        """Rooms that may be the cause; they join when they are made."""
        options = context.options
        self.watch = StuckWatch(
            lambda: self.told,
            context.world.clock.wall_ms,
            stuck_s=options.stuck_subscription_s,
            log_interval_s=options.stuck_subscription_log_interval_s,
        )
        self._told: Explanations | None = None

    @property
    def told(self) -> Explanations:
        """Return the explanations."""
        if self._told is None:
            # Imported here: a broker that nobody asks needs none of it.
            from broker.explain.explanations import Explanations
            from broker.explain.quotas import QuotaDoor
            from broker.explain.rates import RateDoor

            self.doors[:0] = [RateDoor(), QuotaDoor()]
            self._told = Explanations(self.doors, self.watch.since_ms)
        return self._told
