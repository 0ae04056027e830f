"""Causes by their codes, and answers that name one (pure).

A code is stable: programs may compare it. The sentence and the remedy are for people; what they mention is in the
details of the answer as well. docs/explain.md has the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple


class CauseState(Enum):
    """End of a cause."""

    IDLE = "idle"
    """There is nothing to do."""
    WAITING = "waiting"
    """It ends by itself."""
    BLOCKED = "blocked"
    """Something has to be done outside of the broker."""
    STUCK = "stuck"
    """Nothing explains it: a defect of the broker."""


class Cause(NamedTuple):
    """A cause. Sentence and remedy are completed from the details of an answer (`str.format`)."""

    code: str
    state: CauseState
    sentence: str
    remedy: str


class Reason(NamedTuple):
    """A cause with its details, as a room of the broker returns it; see `doors`."""

    cause: Cause
    details: Mapping[str, object]
    since_ms: int | None = None
    """Since when it holds, in ms since 1970, if that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Answer to one question."""

    subject: str
    cause: Cause
    details: Mapping[str, object]
    since_ms: int | None = None

    @property
    def code(self) -> str:
        return self.cause.code

    @property
    def sentence(self) -> str:
        return self.cause.sentence.format_map(self.details)

    @property
    def remedy(self) -> str:
        return self.cause.remedy.format_map(self.details)

    def as_json(self) -> dict[str, object]:
        return {
            "subject": self.subject,
            "state": self.cause.state.value,
            "cause": self.code,
            "sentence": self.sentence,
            "since_ms": self.since_ms,
            "remedy": self.remedy,
            "details": dict(self.details),
        }


_IDLE, _WAITING, _BLOCKED, _STUCK = CauseState.IDLE, CauseState.WAITING, CauseState.BLOCKED, CauseState.STUCK

TOPIC_LOADING: Final = Cause(
    "topic-loading",
    _WAITING,
    "The topic is being loaded or closed for more than {waited_s} s.",
    "Wait; if it lasts, look at the broker's log for reads of ledgers that fail.",
)
TOPIC_CLOSING: Final = Cause(
    "topic-closing",
    _WAITING,
    "The topic is being closed: it moves to another broker or is unloaded.",
    "None: clients look the topic up again and reconnect.",
)
LOG_FENCED: Final = Cause(
    "log-fenced",
    _WAITING,
    "Another broker has taken over the log of the topic.",
    "None: clients look the topic up again; if it lasts, unload the topic.",
)

DELIVERY: Final = (
    CURSOR_MOVING := Cause(
        "cursor-moving",
        _WAITING,
        "The position of the subscription is being moved (seek or reset); consumers were disconnected for it.",
        "None: consumers reconnect when the new position is durable.",
    ),
    SUBSCRIPTION_STOPPED := Cause(
        "subscription-stopped",
        _WAITING,
        "The subscription is being deleted, or replaced by one of another type.",
        "Subscribe again.",
    ),
    CAUGHT_UP := Cause(
        "caught-up",
        _IDLE,
        "Everything confirmed is acknowledged, up to {last_confirmed}; the next entry is awaited"
        " ({unconfirmed} entries are published and not confirmed yet).",
        "Publish messages; if entries stay unconfirmed, ask why producers wait.",
    ),
    NO_CONSUMERS := Cause(
        "no-consumers",
        _BLOCKED,
        "{backlog} entries wait and no consumer is connected.",
        "Connect a consumer to the subscription, or delete the subscription if it is no longer used.",
    ),
    SUBSCRIBE_RATE := Cause(
        "subscribe-rate",
        _WAITING,
        "{backlog} entries wait and no consumer is connected; {refused} attempts to subscribe to the topic were refused"
        " by its subscribe rate, {rate_attempts} of each consumer in {period_s} s, and are taken again in {wait_ms}"
        " ms.",
        "None: clients try again, and get on in the next period; to let them on sooner raise the policy subscribeRate,"
        " or subscribeThrottlingRatePerConsumer.",
    ),
    DELIVERED_UNACKED := Cause(
        "delivered-unacknowledged",
        _BLOCKED,
        "All entries were delivered; {backlog} of them are not acknowledged, most by consumer {consumer!r} ({held}"
        " {unit}).",
        "Acknowledge them, or reconnect the consumer or request redelivery, after which they are delivered again.",
    ),
    ACKNOWLEDGED_IN_TRANSACTION := Cause(
        "acknowledged-in-transaction",
        _BLOCKED,
        "All entries were delivered; {in_transactions} of them are acknowledged in transactions that are not over, the"
        " oldest of {open_transactions} is {holder}. They count as acknowledged when it commits, and are delivered"
        " again when it is aborted.",
        "Commit or abort it, or wait for its time-out; GET /admin/v3/transactions/transactionMetadata/{holder} shows"
        " it, POST /admin/v3/transactions/abortTransaction/{holder} aborts it.",
    ),
    OPEN_TRANSACTION := Cause(
        "open-transaction",
        _BLOCKED,
        "{held_back} entries behind {bound} are held back until transaction {transaction} ends, whose first message is"
        " the next entry.",
        "Commit or abort it, or wait for its time-out; GET /admin/v3/transactions/transactionMetadata/{transaction}"
        " shows it. While transactionCoordinatorEnabled is false, nothing ends it.",
    ),
    FILTER_RESCHEDULED := Cause(
        "filter-rescheduled",
        _WAITING,
        "An entry filter has rescheduled {rescheduled} entries, the first of them {position}; each is offered to it"
        " again {delay_s} s later.",
        "None if the filter accepts them then; else correct the filter, or change the policy entryFilters."
        " dispatcherEntryFilterRescheduledMessageDelay is the time.",
    ),
    DELAYED := Cause(
        "delayed",
        _WAITING,
        "All {delayed} entries that are left are delayed; the first is due in {due_in_ms} ms.",
        "Wait until then; the policy delayedDelivery with active=false delivers them at once.",
    ),
    FAILOVER_DELAY := Cause(
        "failover-delay",
        _WAITING,
        "Consumer {consumer!r} has become the active one and waits {delay_s} s for acknowledgements of the one before.",
        "None; activeConsumerFailoverDelayTimeMillis is the time.",
    ),
    NO_ACTIVE_CONSUMER := Cause(
        "no-active-consumer",
        _WAITING,
        "{consumers_count} consumers are connected and none is active yet.",
        "None: the active one is chosen when a SUBSCRIBE has been answered.",
    ),
    NO_PERMITS := Cause(
        "no-permits",
        _BLOCKED,
        "No consumer asks for messages: {consumers_count} are connected; {consumer!r} has {permits} permits and holds"
        " {held} unacknowledged {unit}.",
        "Receive in the application: a client gives permits (FLOW) when its queue is taken. A batch larger than the"
        " queue leaves permits below 0.",
    ),
    CONSUMER_UNACKED := Cause(
        "consumer-unacked",
        _BLOCKED,
        "Consumer {consumer!r} holds {held} unacknowledged messages; the maximum is {limit}, and it gets more at half"
        " of that.",
        "Acknowledge messages in this consumer, or close it; or raise maxUnackedMessagesPerConsumer.",
    ),
    SUBSCRIPTION_UNACKED := Cause(
        "subscription-unacked",
        _BLOCKED,
        "The consumers hold {unacked} unacknowledged messages together, most {consumer!r} ({held}); the maximum is"
        " {limit}, and delivery goes on at half of that.",
        "Acknowledge messages, or close the consumer that holds most; or raise maxUnackedMessagesPerSubscription.",
    ),
    BROKER_UNACKED := Cause(
        "broker-unacked",
        _BLOCKED,
        "The consumers of this broker hold {broker_unacked} unacknowledged messages; the maximum is {limit}. Until half"
        " of that, a subscription gets nothing once it holds more than {share}; this one holds {unacked}, most of them"
        " {consumer!r} ({held}).",
        "Acknowledge messages: it goes on at half of its share. Or close the consumer that holds most, or raise"
        " maxUnackedMessagesPerBroker or maxUnackedMessagesPerSubscriptionOnBrokerBlocked.",
    ),
    DISPATCH_RATE := Cause(
        "dispatch-rate",
        _WAITING,
        "The dispatch rate of the {rate_of} is used up: {rate_messages} messages and {rate_bytes} bytes in {period_s} s"
        " (0 or below: no limit); messages go on in {wait_ms} ms.",
        "None: messages go on as the rate allows; to deliver faster raise {setting}.",
    ),
    ACK_STATE_FULL := Cause(
        "ack-state-full",
        _BLOCKED,
        "The acknowledgements have {ranges} holes between {mark_delete} and {read_position}, above the maximum of"
        " {ranges_max} ranges that are to be stored; nothing new is delivered until there are no more than that.",
        "Acknowledge the oldest messages that were delivered, of which consumer {consumer!r} holds most ({held}), or"
        " reconnect it, after which they are delivered again; or raise managedLedgerMaxUnackedRangesToPersist, or set"
        " the policy dispatcherPauseOnAckStatePersistent to false.",
    ),
    SLOW_CONNECTION := Cause(
        "slow-connection",
        _BLOCKED,
        "The connection of consumer {consumer!r} does not take what is queued to it; {output_bytes} bytes are queued to"
        " all connections of this broker.",
        "Look at the network and at the client: it must read its socket. It gets more when half of its queue is sent.",
    ),
    CONSUMER_LEAVING := Cause(
        "consumer-leaving",
        _WAITING,
        "Consumer {consumer!r} is going away; its connection is closed.",
        "None: what it holds is delivered to others.",
    ),
    KEY_HELD := Cause(
        "key-held",
        _BLOCKED,
        "Entry {position} is for consumer {owner!r}, and {consumer!r} still holds {entries} entries of its key.",
        "Acknowledge them in {consumer!r}, or close it: order of a key is kept while keys move between consumers.",
    ),
    KEY_CONSUMER_BUSY := Cause(
        "key-consumer-busy",
        _BLOCKED,
        "Entry {position} is only for consumer {consumer!r}, which takes nothing now ({obstacle}; {permits} permits,"
        " {held} unacknowledged {unit}).",
        "Receive and acknowledge in {consumer!r}, or close it.",
    ),
    KEY_WITHOUT_OWNER := Cause(
        "key-without-owner",
        _BLOCKED,
        "Entry {position} has a key whose hash is in no range that a consumer has declared.",
        "Connect a sticky consumer whose ranges have the hash.",
    ),
    READING := Cause(
        "reading",
        _WAITING,
        "Entries from {position} on are being read from the bookies for {read_ms} ms.",
        "None; if it lasts, look at the bookies that have the ledger ({topic} internalStats?metadata=true).",
    ),
    READ_FAILING := Cause(
        "read-failing",
        _BLOCKED,
        "Entries from {position} on cannot be read from the bookies; the read is tried again.",
        "Look at the log for 'read failed', and start the bookies that have the ledger, or recover them.",
    ),
    REGROUPING := Cause(
        "regrouping",
        _WAITING,
        "A consumer joined or left, and entries are put into the order of the new ones.",
        "None: it goes on in the next steps of the event loop.",
    ),
    DISPATCHING := Cause(
        "dispatching",
        _WAITING,
        "Messages are being delivered; the dispatcher goes on in the next step of the event loop.",
        "None.",
    ),
    STALLED := Cause(
        "stalled",
        _STUCK,
        "Entries wait, consumer {consumer!r} has {permits} permits, and nothing stands in the way; the dispatcher"
        " stopped because {last_stop}.",
        "If it lasts this is a defect of the broker: report it with this answer. Unloading the topic starts delivery.",
    ),
)
"""Causes for which nothing is delivered to a subscription."""

PRODUCERS: Final = (
    PRODUCERS_FLOWING := Cause(
        "flowing",
        _IDLE,
        "Nothing is on its way to the bookies: {producers_count} producers are connected, and none waits.",
        "None.",
    ),
    NO_PRODUCERS := Cause("no-producers", _IDLE, "No producer is connected.", "Connect a producer."),
    TERMINATED := Cause(
        "terminated", _BLOCKED, "The topic is terminated: it takes no more messages.", "Use another topic."
    ),
    DISK_FULL := Cause(
        "disk-full",
        _BLOCKED,
        "Nothing can be published: {reason}.",
        "Free space on that disk, add a bookie, or let consumed ledgers be deleted (subscriptions, retention).",
    ),
    LEDGER_SWITCHING := Cause(
        "ledger-switching",
        _WAITING,
        "The log switches to its next ledger; {pending} entries wait for it ({trouble}).",
        "None if it is short. If it lasts, the metadata service or bookies for a new ledger are missing: see the"
        " reason.",
    ),
    BOOKIES_MISSING := Cause(
        "bookies-missing",
        _BLOCKED,
        "{pending} entries of ledger {ledger} are not confirmed: bookies failed and are not replaced ({bookies}).",
        "Start these bookies, or others that can take their place: a ledger needs as many as its ensemble has.",
    ),
    NOT_CONFIRMED := Cause(
        "not-confirmed",
        _WAITING,
        "{pending} entries ({pending_bytes} bytes) of ledger {ledger} were sent, and too few bookies have answered.",
        "None if it is short; else look at the disks of its bookies: {bookies}.",
    ),
    PUBLISH_BUDGET := Cause(
        "publish-budget",
        _BLOCKED,
        "Producers are not read: {bytes} bytes of all topics are published and not durable; the limit is {limit}.",
        "Make bookies faster, or raise maxMessagePublishBufferSizeInMB; it goes on at half of the limit.",
    ),
    CONNECTION_FULL := Cause(
        "connection-full",
        _BLOCKED,
        "The connection of producer {producer!r} is not read: {in_flight} sends are unanswered, the limit is {limit}.",
        "None if the bookies answer; or raise maxPendingPublishRequestsPerConnection.",
    ),
    PUBLISH_RATE := Cause(
        "publish-rate",
        _WAITING,
        "The connection of producer {producer!r} is not read: the publish rate of the {rate_of} is used up,"
        " {rate_messages} messages and {rate_bytes} bytes in {period_s} s (0 or below: no limit); one may go on in"
        " {wait_ms} ms.",
        "None: it is read again as the rate allows; to publish faster raise {setting}.",
    ),
    BACKLOG_QUOTA := Cause(
        "backlog-quota",
        _BLOCKED,
        "No producer is taken ({policy}): the backlog is above its quota of {quota}; subscription {holder!r} is"
        " {backlog_bytes} bytes behind.",
        "Let {holder!r} consume and acknowledge, skip its backlog, or delete it; or raise the policy backlogQuota.",
    ),
    EXCLUSIVE_ACCESS := Cause(
        "exclusive-access",
        _BLOCKED,
        "{waiting_count} producers, first {waiting!r}, wait for exclusive access, which {holder!r} has.",
        "Close {holder!r}; ExclusiveWithFencing takes the topic from it.",
    ),
    DEDUPLICATION_SETTLING := Cause(
        "deduplication-settling",
        _WAITING,
        "A producer waits until what it sent on a connection before is durable, because duplicates are dropped.",
        "None: it is answered when these sends are confirmed, within 15 s.",
    ),
)
"""Causes for which producers of a topic wait."""

LEDGERS: Final = (
    LEDGER_CURRENT := Cause(
        "current-ledger",
        _IDLE,
        "Ledger {first} is the last one of the log and is kept.",
        "None: it can be deleted when a ledger follows it and it is consumed.",
    ),
    LEDGER_CURSOR := Cause(
        "held-by-cursor",
        _BLOCKED,
        "Ledgers {first} to {last} ({count}, {bytes} bytes) are kept by the {kind} {cursor!r} at {mark_delete}, with"
        " {backlog} entries behind it ({why}).",
        "Let it consume and acknowledge, skip its backlog, or delete it: {cursor!r}.",
    ),
    LEDGER_RETENTION := Cause(
        "held-by-retention",
        _WAITING,
        "Ledgers {first} to {last} ({count}, {bytes} bytes) are consumed, and kept by the retention: {time_ms} ms and"
        " {size} bytes (-1: no limit).",
        "Lower the policy retention of the topic or namespace; or truncate the topic.",
    ),
    LEDGER_BEHIND := Cause(
        "behind-kept-ledger",
        _WAITING,
        "Ledgers {first} to {last} ({count}, {bytes} bytes) follow ledger {kept}, which is kept: a log has no holes.",
        "Remove what keeps ledger {kept}.",
    ),
    LEDGER_DUE := Cause(
        "trim-due",
        _WAITING,
        "Ledgers {first} to {last} ({count}, {bytes} bytes) are not needed, and are deleted at the next trim.",
        "None; POST {topic}/trim does it now.",
    ),
    NO_LEDGERS := Cause("no-ledgers", _IDLE, "The log has no ledgers.", "None."),
)
"""Causes for which ledgers are kept."""

CAUSES: Final = (TOPIC_LOADING, TOPIC_CLOSING, LOG_FENCED, *DELIVERY, *PRODUCERS, *LEDGERS)
