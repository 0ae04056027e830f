"""Why nothing is delivered to a subscription (pure).

Why this is hard: several things can stand in the way at once, and only the one that comes first in the dispatcher's own
order may be named: removing another would change nothing. So the order here is that of the dispatchers, and what a
policy decides is asked of the policy. If nothing stands in the way, that is said too: a dispatcher that was not called
again is found so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from broker.dispatch.policies.refusal import Why
from broker.dispatch.stops import PumpStop
from broker.explain import causes
from broker.explain.causes import Cause, Explanation, Reason

SHOWN_MAX = 20
"""Consumers in the details of an answer."""
MESSAGES = "messages"
ENTRIES = "entries"
OF_ITS_KEYS = "entries, those included whose keys are outside its hash ranges"
"""Units of what a consumer holds."""


class Obstacle(Enum):
    """Why nothing is given to one consumer."""

    NONE = "none"
    NO_PERMITS = "no permits"
    UNACKED = "too many unacknowledged messages"
    OUTPUT = "its connection does not take what is queued"
    LEAVING = "it is going away"


_ORDER = (Obstacle.UNACKED, Obstacle.OUTPUT, Obstacle.LEAVING, Obstacle.NO_PERMITS)
"""Obstacles by their rank: a consumer with permits comes before one without."""
_OF_OBSTACLE = {
    Obstacle.UNACKED: causes.CONSUMER_UNACKED,
    Obstacle.OUTPUT: causes.SLOW_CONNECTION,
    Obstacle.LEAVING: causes.CONSUMER_LEAVING,
    Obstacle.NO_PERMITS: causes.NO_PERMITS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFacts:
    """One consumer."""

    name: str
    permits: int
    unacked: int = 0
    """Messages that it holds, or entries where the type of the subscription counts no messages."""
    unit: str = MESSAGES
    """Unit of `unacked` in sentences."""
    obstacle: Obstacle = Obstacle.NONE

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "permits": self.permits,
            "unacked": self.unacked,
            "unit": self.unit,
            "obstacle": self.obstacle.value,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An entry that waits to be delivered again: one that is free to go, or else the oldest."""

    position: str
    why: Why | None
    consumer: str = ""
    owner: str = ""
    entries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Facts about one subscription, of one moment."""

    topic: str
    name: str
    kind: str = "Shared"
    closing: bool = False
    fenced: bool = False
    stopped: bool = False
    seeking: bool = False
    backlog: int = 0
    """Confirmed entries that are not acknowledged."""
    unread: int = 0
    """Confirmed entries from the read position on that may be delivered."""
    held_back: int = 0
    """Entries behind them, which an open transaction holds back."""
    bound: str = ""
    """The last entry before that transaction."""
    transaction: str = ""
    in_transactions: int = 0
    """Entries that are acknowledged, at least in part, in transactions that are not over."""
    open_transactions: int = 0
    """Number of those transactions."""
    holder: str = ""
    """The oldest of them."""
    delayed: int = 0
    next_due_ms: int | None = None
    now_ms: int = 0
    tick_ms: int = 0
    """Time by which due messages may be delivered late."""
    unconfirmed: int = 0
    read_position: str = ""
    mark_delete: str = ""
    last_confirmed: str = ""
    consumers: tuple[ConsumerFacts, ...] = ()
    """Consumers that may be given messages; of Exclusive and Failover the active one alone."""
    connected: int = 0
    """Consumers in all."""
    failover_delay_s: float | None = None
    """Set while a new active consumer waits."""
    reading: bool = False
    read_ms: int = 0
    read_fails: bool = False
    settled: bool = True
    put_off: bool = False
    unacked: int = 0
    unacked_max: int = 0
    consumer_unacked_max: int = 0
    over_limit: bool = False
    """The subscription holds too many unacknowledged messages."""
    over_broker_limit: bool = False
    """The same, as the consumers of the whole broker hold too many."""
    broker_unacked: int = 0
    broker_unacked_max: int = 0
    broker_unacked_share: int = 0
    keeps_new_back: bool = False
    """The acknowledgements have too many holes for anything new."""
    ranges: int = 0
    """Ranges of acknowledged entries above the mark-delete position."""
    ranges_max: int = 0
    rescheduled: int = 0
    """Entries that a filter is to be asked about again."""
    rescheduled_first: str = ""
    rescheduled_stops: bool = False
    """Nothing else is delivered before them."""
    reschedule_delay_s: float = 0.0
    waiting_again: int = 0
    lookahead: int = 1
    """Entries waiting to be delivered again at which no new ones are read."""
    waiting: Waiting | None = None
    output_bytes: int = 0
    stop: PumpStop = PumpStop.NOT_STARTED
    reasons: tuple[Reason, ...] = field(default=())
    """Reasons of other rooms; see `doors`."""

    @property
    def messages_wait(self) -> bool:
        """Return whether there is something that could be delivered now."""
        due = self.next_due_ms is not None and self.next_due_ms + self.tick_ms < self.now_ms
        return self.unread > 0 or self.waiting_again > 0 or due

    @property
    def ready(self) -> list[ConsumerFacts]:
        """Return the consumers to which nothing but its absence keeps a message from being given."""
        return [each for each in self.consumers if each.obstacle is Obstacle.NONE]


def explain(situation: Situation, *, since_ms: int | None = None) -> Explanation:
    """Return the cause for which nothing is delivered. `since_ms`: since when nothing was, if that is known."""
    reason = _reason(situation)
    details: dict[str, object] = {
        "topic": situation.topic,
        "subscription": situation.name,
        "type": situation.kind,
        "backlog": situation.backlog,
        "unread": situation.unread,
        "waiting_again": situation.waiting_again,
        "delayed": situation.delayed,
        "held_back": situation.held_back,
        "in_transactions": situation.in_transactions,
        "open_transactions": situation.open_transactions,
        "holder": situation.holder,
        "rescheduled": situation.rescheduled,
        "unacked": situation.unacked,
        "read_position": situation.read_position,
        "mark_delete": situation.mark_delete,
        "last_confirmed": situation.last_confirmed,
        "unconfirmed": situation.unconfirmed,
        "consumers_count": situation.connected,
        "consumers": [each.as_json() for each in situation.consumers[:SHOWN_MAX]],
        "last_stop": situation.stop.value,
    }
    details.update(reason.details)
    return Explanation(
        subject=f"subscription {situation.name} of {situation.topic}",
        cause=reason.cause,
        details=details,
        since_ms=since_ms if reason.since_ms is None else reason.since_ms,
    )


def _reason(situation: Situation) -> Reason:
    if (reason := _of_topic(situation)) is not None:
        return reason
    if situation.backlog == 0:
        return Reason(causes.CAUGHT_UP, {})
    if not situation.connected:
        refused = (reason for reason in situation.reasons if reason.cause is causes.SUBSCRIBE_RATE)
        return next(refused, Reason(causes.NO_CONSUMERS, {}))
    if not situation.messages_wait and situation.rescheduled:
        return _rescheduled(situation)
    if not situation.messages_wait and situation.held_back:
        return Reason(causes.OPEN_TRANSACTION, {"bound": situation.bound, "transaction": situation.transaction})
    if not situation.messages_wait and not situation.delayed:
        most = _most(situation)
        if situation.in_transactions and (situation.in_transactions >= situation.backlog or not most.unacked):
            return Reason(causes.ACKNOWLEDGED_IN_TRANSACTION, {})
        return _about(causes.DELIVERED_UNACKED, most)
    return _of_dispatcher(situation)


def _of_topic(situation: Situation) -> Reason | None:
    if situation.fenced:
        return Reason(causes.LOG_FENCED, {})
    if situation.closing:
        return Reason(causes.TOPIC_CLOSING, {})
    if situation.seeking:
        return Reason(causes.CURSOR_MOVING, {})
    if situation.stopped:
        return Reason(causes.SUBSCRIPTION_STOPPED, {})
    return None


def _of_dispatcher(situation: Situation) -> Reason:
    """Return what ends a pass of the dispatcher, in its own order."""
    if not situation.settled:
        return Reason(causes.REGROUPING, {})
    if situation.put_off:
        return Reason(causes.DISPATCHING, {})
    if situation.reading:
        return _of_read(situation)
    if not situation.consumers:
        return Reason(causes.NO_ACTIVE_CONSUMER, {})
    if situation.failover_delay_s is not None:
        return Reason(
            causes.FAILOVER_DELAY,
            {"consumer": situation.consumers[0].name, "delay_s": situation.failover_delay_s},
        )
    if situation.rescheduled_stops:
        return _rescheduled(situation)
    if not situation.messages_wait:
        due_ms = situation.now_ms if situation.next_due_ms is None else situation.next_due_ms
        return Reason(causes.DELAYED, {"due_ms": due_ms, "due_in_ms": max(0, due_ms - situation.now_ms)})
    if not situation.ready:
        return _of_consumers(situation)
    if situation.over_limit:
        return _about(causes.SUBSCRIPTION_UNACKED, _most(situation), limit=situation.unacked_max)
    if situation.over_broker_limit:
        return _about(
            causes.BROKER_UNACKED,
            _most(situation),
            broker_unacked=situation.broker_unacked,
            limit=situation.broker_unacked_max,
            share=situation.broker_unacked_share,
        )
    if situation.reasons:
        return situation.reasons[0]
    waiting = situation.waiting
    if situation.keeps_new_back and (waiting is None or waiting.why is not None):
        return _about(causes.ACK_STATE_FULL, _most(situation), ranges=situation.ranges, ranges_max=situation.ranges_max)
    reads_on = situation.unread > 0 and situation.waiting_again < situation.lookahead
    if waiting is not None and waiting.why is not None and not reads_on:
        return _of_waiting(situation, waiting, waiting.why)
    return _stalled(situation)


def _rescheduled(situation: Situation) -> Reason:
    details = {"position": situation.rescheduled_first, "delay_s": situation.reschedule_delay_s}
    return Reason(causes.FILTER_RESCHEDULED, details)


def _of_read(situation: Situation) -> Reason:
    details = {"position": situation.read_position, "read_ms": situation.read_ms}
    since_ms = situation.now_ms - situation.read_ms
    return Reason(causes.READ_FAILING if situation.read_fails else causes.READING, details, since_ms)


def _of_consumers(situation: Situation) -> Reason:
    """Return why no consumer can be given anything."""
    first = min(situation.consumers, key=lambda each: (_ORDER.index(each.obstacle), -each.permits, -each.unacked))
    cause = _OF_OBSTACLE[first.obstacle]
    return _about(cause, first, limit=situation.consumer_unacked_max, output_bytes=situation.output_bytes)


def _of_waiting(situation: Situation, waiting: Waiting, why: Why) -> Reason:
    """Return why the entries that wait for certain consumers stay where they are."""
    if why is Why.NO_OWNER:
        return Reason(causes.KEY_WITHOUT_OWNER, {"position": waiting.position})
    if why is Why.HELD:
        return Reason(
            causes.KEY_HELD,
            {
                "position": waiting.position,
                "consumer": waiting.consumer,
                "owner": waiting.owner,
                "entries": waiting.entries,
            },
        )
    if why is Why.BUSY:
        wanted = next((each for each in situation.consumers if each.name == waiting.consumer), None)
        if wanted is not None and wanted.obstacle is not Obstacle.NONE:
            return _about(causes.KEY_CONSUMER_BUSY, wanted, position=waiting.position, obstacle=wanted.obstacle.value)
    return _stalled(situation)


def _stalled(situation: Situation) -> Reason:
    ready = max(situation.ready, key=lambda each: each.permits)
    return _about(causes.STALLED, ready)


def _most(situation: Situation) -> ConsumerFacts:
    """Return the consumer that holds most messages."""
    return max(situation.consumers, key=lambda each: each.unacked, default=ConsumerFacts(name="", permits=0))


def _about(cause: Cause, consumer: ConsumerFacts, **details: object) -> Reason:
    facts = {"consumer": consumer.name, "permits": consumer.permits, "held": consumer.unacked, "unit": consumer.unit}
    return Reason(cause, {**facts, **details})
