"""Shared context of the broker's parts, made by the server and passed down instead of the server itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import trio

from broker.config import BrokerOptions
from broker.dispatch.rules import rules_of_broker
from broker.dispatch.unacked import BrokerUnacked
from broker.entry_filters.loading import load_filters
from broker.measures import BrokerTimes, Measures
from broker.neighbours.neighbours import neighbours_of
from broker.output import OutputBudget
from broker.publish_budget import PublishBudget
from broker.security.authentication.authentication import Authentication
from broker.tracing.tracing import BrokerTracing
from quire.client.authentication import Credentials
from quire.service.gate import Gate
from quire.service.neighbours.rare_lines import RareLines
from quire.world.doors import World
from quire.world.outbox import Turn

if TYPE_CHECKING:
    from quire.world.tls_sides import ClientTls

COMPACTIONS_MAX = 2
"""Topics of one broker that are compacted at the same time; others wait."""


class Context:
    """Options, doors to the world, nursery of the broker's tasks, turn, budgets of all connections, names."""

    __slots__ = (
        "_incarnation",
        "_producer_count",
        "authentication",
        "client_tls",
        "compacting",
        "connects",
        "credentials",
        "delivery",
        "enable_transactions",
        "filters",
        "frames",
        "measures",
        "neighbours",
        "no_room",
        "nursery",
        "options",
        "output",
        "passed_over",
        "publishing",
        "rare_lines",
        "service_url",
        "service_url_tls",
        "times",
        "tracing",
        "turn",
        "unacked",
        "world",
    )

    def __init__(
        self,
        world: World,
        options: BrokerOptions,
        nursery: trio.Nursery,
        *,
        turn: Turn | None = None,
        service_url: str = "",
        incarnation: int = 0,
        no_room: Callable[[], str] = str,
        authentication: Authentication | None = None,
        super_users: Iterable[str] = (),
    ) -> None:
        """Take what the parts share. Raises ConfigError (a filter cannot be loaded)."""
        self.world = world
        self.options = options
        self.nursery = nursery
        self.turn = turn or Turn()
        self.turn.faults = world.faults
        self.service_url = service_url
        """First URL of the broker, as given to clients; see `broker.ownership.urls`."""
        self.service_url_tls = ""
        """URL of its port with TLS, "" if there is none."""
        self.client_tls: ClientTls | None = None
        """TLS of connections to other brokers; None: they have none."""
        self.no_room = no_room
        """Return why nothing can be published while the disk is full; "" otherwise."""
        self.tracing: BrokerTracing | None = None
        """Spans of messages; None: no message is traced."""
        self.authentication = authentication
        """Check of clients' credentials. None: clients have no roles."""
        self.filters = load_filters(
            options.entry_filters_directory,
            options.entry_filter_names,
            may_override=options.allow_override_entry_filters,
        )
        self.delivery = rules_of_broker(options, self.filters)
        """Rules of delivery where no policy says otherwise."""
        self.output = OutputBudget(options.output_bytes_bound)
        self.publishing = PublishBudget(options.publish_buffer_bytes_max)
        self.neighbours = neighbours_of(options, self.publishing, super_users)
        """Shares of roles and addresses. None: they have no limits."""
        self.unacked: BrokerUnacked | None = None
        """Set if the unacknowledged messages of the broker are bounded."""
        if options.unacked_messages_per_broker_max:
            limit, share = options.unacked_messages_per_broker_max, options.unacked_share_when_over
            self.unacked = BrokerUnacked(limit, share, self.turn.later)
        self.rare_lines = RareLines()
        """Log lines about bad clients."""
        self.measures = Measures(options.stats_interval_s)
        """Rates, taken by the server."""
        self.times = BrokerTimes()
        self.connects = 0
        """Connections that have sent CONNECT."""
        self.frames = 0
        """Frames of clients that were handled, those that ended their connection too."""
        self.passed_over: Counter[str] = Counter()
        """Stored entries acknowledged on behalf of consumers, by reason."""
        self.compacting = Gate(COMPACTIONS_MAX)
        self.enable_transactions: Callable[[Any], Awaitable[None]] | None = None
        """Lets a topic take messages of transactions. Raises BrokerError. None: they are off."""
        self.credentials: Credentials | None = None
        """Credentials of this broker, for its connections to others."""
        self._incarnation = incarnation
        self._producer_count = 0

    def follow_options(self) -> None:
        """Notice that the options have changed."""
        options = self.options
        self.delivery = rules_of_broker(options, self.filters)
        self.output.limit = options.output_bytes_bound
        self.publishing.at_most(options.publish_buffer_bytes_max)

    @property
    def own_url(self) -> str:
        """Return the URL at which the clients of this broker itself begin a lookup."""
        return (self.client_tls is not None and self.service_url_tls) or self.service_url

    def next_producer_name(self) -> str:
        """Return a producer name that is unique in this cluster: cluster, incarnation of the broker, count."""
        self._producer_count += 1
        return f"{self.options.cluster_name}-{self._incarnation}-{self._producer_count}"

    def random_name(self) -> str:
        """Return a name for a consumer without one."""
        return f"{self.world.rng.getrandbits(40):010x}"
