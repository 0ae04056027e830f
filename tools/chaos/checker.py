"""Checker of the histories of a chaos run. Pure.

    every message with a receipt is delivered, at the place that the receipt names        lost, misplaced
    nothing is delivered that was not sent                                               strange
    first deliveries of a key come in the order in which its messages were sent          out of order
    a second copy of a message only if it was sent and had no receipt when a
    connection of its producer broke                                                     duplicated
    a second delivery of a copy only if it was not acknowledged when a connection
    of its subscription broke, or while it was gone                                      delivered again
    no client is told of a failure                                                       failed

A message of which nothing is known (sent, no receipt) may be there or not. The official Python client cannot ask for an
answer to an acknowledgement, so one counts as settled `settle_us` after it was given to the client, which sends it up
to 0.1 s later; before that a second delivery is within what was promised. Time in which a broker hung does not count:
what was sent to it lies in its socket, and is gone if it is killed before it went on for long.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tools.chaos.history import Break, Breaks, Record, What

SETTLE_US = 2_000_000
CLOCK_US = 5_000
"""Precision of the times in a client's log, and a margin."""
EXAMPLES_MAX = 5
NEVER = 1 << 62
GROUPING_US = 100_000
"""Time for which the official client collects acknowledgements before it sends them."""


@dataclass(slots=True)
class Verdict:
    """Result of the check. Lists have the first EXAMPLES_MAX sentences of each kind; `counts` has all."""

    sent: int = 0
    receipts: int = 0
    delivered: int = 0
    """Different messages."""
    second_copies: int = 0
    """Within the promises."""
    second_deliveries: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    latest_again_us: int = 0
    """The longest time between an acknowledgement and a break after which the message came again, hung brokers or
    not."""

    @property
    def unknown(self) -> int:
        """Number of messages sent without a receipt."""
        return self.sent - self.receipts

    @property
    def good(self) -> bool:
        return not self.counts

    def add(self, kind: str, text: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        found = self.examples.setdefault(kind, [])
        if len(found) < EXAMPLES_MAX:
            found.append(text)


class _Message:
    """Everything known about one message."""

    __slots__ = ("copies", "key", "place", "receipt_us", "sent_us")

    def __init__(self, sent_us: int, key: int) -> None:
        self.sent_us = sent_us
        self.key = key
        self.receipt_us = NEVER
        self.place: tuple[int, int, int] | None = None
        self.copies: dict[tuple[int, int, int], _Copy] = {}


class _Copy:
    """One copy of a message: its last delivery, and its first acknowledgement."""

    __slots__ = ("acknowledged_us", "delivered_us")

    def __init__(self, delivered_us: int) -> None:
        self.delivered_us = delivered_us
        self.acknowledged_us = NEVER


class Checker:
    """Checker that takes the producers' records, then the consumers', and returns a verdict."""

    def __init__(
        self,
        producer_breaks: Breaks,
        consumer_breaks: Breaks,
        *,
        hung: Iterable[Break] = (),
        settle_us: int = SETTLE_US,
    ) -> None:
        """Take the settings; `hung`: times at which brokers hung."""
        self._producer_breaks = producer_breaks
        self._consumer_breaks = consumer_breaks
        self._hung = sorted(hung)
        self._settle_us = settle_us
        self._messages: dict[tuple[int, int], _Message] = {}
        self._last: dict[tuple[int, int], int] = {}
        """Highest delivered sequence by topic and key."""
        self.verdict = Verdict()
        self.at_risk = AtRisk()

    def producers(self, records: Iterable[Record]) -> None:
        for record in records:
            identity = (record.topic, record.sequence)
            if record.what == What.SENT:
                self._messages[identity] = _Message(record.at_us, record.key)
                self.verdict.sent += 1
                self.at_risk.sent_us.append(record.at_us)
            elif record.what == What.RECEIPT:
                message = self._messages[identity]
                message.receipt_us, message.place = record.at_us, record.position
                self.verdict.receipts += 1
                self.at_risk.receipt(record.topic, record.at_us)
            elif record.what == What.FAILED:
                self.verdict.add("failed", f"{_name(record)}: its producer was told of a failure")

    def consumers(self, records: Iterable[Record]) -> None:
        for record in records:
            if record.what == What.DELIVERED:
                self._delivered(record)
            elif record.what == What.ACKNOWLEDGED:
                message = self._messages.get((record.topic, record.sequence))
                copy = message.copies.get(record.position) if message is not None else None
                if copy is not None and copy.acknowledged_us == NEVER:
                    copy.acknowledged_us = record.at_us
                    self.at_risk.acknowledged_us.append(record.at_us)
            elif record.what == What.STRANGE:
                self.verdict.add("strange", f"a delivery of topic {record.topic} that nobody sent")
            elif record.what == What.FAILED:
                self.verdict.add("failed", f"{_name(record)}: its consumer was told of a failure")

    def _delivered(self, record: Record) -> None:
        message = self._messages.get((record.topic, record.sequence))
        if message is None:
            self.verdict.add("strange", f"{_name(record)}: delivered, never sent")
            return
        copy = message.copies.get(record.position)
        if copy is not None:
            self._delivered_again(record, copy)
            return
        message.copies[record.position] = _Copy(record.at_us)
        self.at_risk.delivered_us.append(record.at_us)
        if len(message.copies) > 1:
            self._second_copy(record, message)
            return
        self.verdict.delivered += 1
        lane = (record.topic, message.key)
        last = self._last.get(lane, -1)
        if record.sequence < last:
            self.verdict.add("out of order", f"{_name(record)}: first delivered after {last} of its key {message.key}")
        else:
            self._last[lane] = record.sequence

    def _second_copy(self, record: Record, message: _Message) -> None:
        first_us, last_us = message.sent_us - CLOCK_US, message.receipt_us + CLOCK_US
        if self._producer_breaks.first_in(record.topic, first_us, last_us) is not None:
            self.verdict.second_copies += 1
        else:
            self.verdict.add(
                "duplicated",
                f"{_name(record)}: a second copy at {record.position}, and no connection broke in its flight",
            )

    def _delivered_again(self, record: Record, copy: _Copy) -> None:
        until_us = min(record.at_us, self._settled_us(copy.acknowledged_us)) + CLOCK_US
        broke_us = self._consumer_breaks.during(record.topic, copy.delivered_us - CLOCK_US, until_us)
        if broke_us is not None:
            self.verdict.second_deliveries += 1
            self.verdict.latest_again_us = max(self.verdict.latest_again_us, broke_us - copy.acknowledged_us)
        else:
            self.verdict.add(
                "delivered again",
                f"{_name(record)}: the copy at {record.position} came again after it was acknowledged",
            )
        copy.delivered_us = record.at_us

    def _settled_us(self, acknowledged_us: int) -> int:
        """Return the time at which the brokers have run for `settle_us` since."""
        settled_us = acknowledged_us + self._settle_us
        for begun_us, ended_us in self._hung:
            if begun_us >= settled_us:
                break
            settled_us += max(0, ended_us - max(begun_us, acknowledged_us))
        return settled_us

    def end(self) -> Verdict:
        """Check for missing messages, after all records."""
        for (topic, sequence), message in self._messages.items():
            if message.place is None:
                continue
            if not message.copies:
                self.verdict.add(
                    "lost", f"topic {topic}, message {sequence}: a receipt for {message.place}, no delivery"
                )
            elif message.place not in message.copies:
                self.verdict.add(
                    "misplaced",
                    f"topic {topic}, message {sequence}: a receipt for {message.place}, delivered at "
                    f"{list(message.copies)}",
                )
        self.at_risk.sort()
        return self.verdict


@dataclass(slots=True)
class AtRisk:
    """Messages in flight at a moment."""

    sent_us: list[int] = field(default_factory=list)
    receipts_us: list[int] = field(default_factory=list)
    delivered_us: list[int] = field(default_factory=list)
    acknowledged_us: list[int] = field(default_factory=list)
    by_topic_us: dict[int, list[int]] = field(default_factory=dict)
    """Times of receipts."""

    def receipt(self, topic: int, at_us: int) -> None:
        self.receipts_us.append(at_us)
        self.by_topic_us.setdefault(topic, []).append(at_us)

    def sort(self) -> None:
        for times in (
            self.sent_us,
            self.receipts_us,
            self.delivered_us,
            self.acknowledged_us,
            *self.by_topic_us.values(),
        ):
            times.sort()

    def unanswered(self, at_us: int) -> int:
        """Return the messages sent without a receipt then."""
        return _before(self.sent_us, at_us) - _before(self.receipts_us, at_us)

    def unacknowledged(self, at_us: int) -> int:
        """Return the messages delivered whose acknowledgement had not, or not certainly, left the client then."""
        return _before(self.delivered_us, at_us) - _before(self.acknowledged_us, at_us - GROUPING_US)

    def stored(self, at_us: int) -> int:
        """Return the messages with a receipt then, which must not be lost."""
        return _before(self.receipts_us, at_us)

    def longest_silence_us(self, first_us: int, last_us: int) -> int:
        """Return the longest time that a topic was without a receipt, beginning in that span."""
        longest = 0
        for times in self.by_topic_us.values():
            start, end = bisect_left(times, first_us), bisect_right(times, last_us)
            around = times[max(0, start - 1) : end + 1]
            longest = max(longest, *(later - earlier for earlier, later in pairwise(around)), 0)
        return longest


def _before(times: Sequence[int], at_us: int) -> int:
    return bisect_right(times, at_us)


def _name(record: Record) -> str:
    return f"topic {record.topic}, message {record.sequence}"
