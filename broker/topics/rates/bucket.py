"""Token buckets (pure): a rate as messages and bytes that may pass now. The caller says what time it is, in seconds.

A bucket holds what its rate gives in one period, and is full at first. More than it holds may be taken, since entries
come and go whole: it is in debt then, and nothing passes until that is paid. So the rate holds over any longer time.

A relative rate comes on top of that at which is published, which counts as often as the period has seconds. (Pulsar
adds messages per second to messages per period, so that with a longer period consumers fall behind.)

Source: Pulsar's AsyncTokenBucket (4.x), whose buckets hold a period as well, and
DispatchRateLimiterAsyncTokenBucketImpl.
"""

from __future__ import annotations

from typing import Final, NamedTuple

UNLIMITED: Final = 1 << 40
"""Messages that pass where there is no rate."""
_SLACK: Final = 1e-6
"""Part of a token that may be missing from rounding."""


class Rate(NamedTuple):
    """Messages and bytes in a period. 0 or below: no limit."""

    messages: int
    bytes: int
    period_s: int = 1
    relative: bool = False
    """True if they come on top of the rate of publishing."""

    def __bool__(self) -> bool:
        """Return whether anything is limited."""
        return self.messages > 0 or self.bytes > 0


class _Bucket:
    """Tokens of one kind."""

    __slots__ = ("_at", "_burst", "_per_s", "tokens")

    def __init__(self, count: int, period_s: int, now: float) -> None:
        self._burst = count
        self._per_s = count / period_s
        self._at = now
        self.tokens = float(count)
        """Tokens at the last look; below 0: debt."""

    def give(self, count: int, period_s: int, now: float) -> None:
        """Give so many tokens in a period from now on."""
        self.fill(now)
        self._burst = count
        self._per_s = count / period_s
        self.tokens = min(self.tokens, count)

    def fill(self, now: float) -> float:
        """Add what came since the last look, and return the tokens there are."""
        if now > self._at:
            self.tokens = min(self._burst, self.tokens + (now - self._at) * self._per_s)
            self._at = now
        return self.tokens

    def wait_s(self, now: float) -> float:
        """Return the time until there is a token."""
        return max(0.0, (1 - self.fill(now)) / self._per_s)


class RateBucket:
    """Account of what may pass at a rate: of messages, of bytes, or of both."""

    __slots__ = ("_bytes", "_messages", "present", "rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate = rate
        self.present = rate
        """Rate that holds now: of a relative one, with that of publishing."""
        self._messages = _Bucket(rate.messages, rate.period_s, now) if rate.messages > 0 else None
        self._bytes = _Bucket(rate.bytes, rate.period_s, now) if rate.bytes > 0 else None

    def change(self, rate: Rate, now: float) -> None:
        """Give at another rate from now on. A debt stays, and so do tokens, up to what the new rate gives."""
        self._messages = _changed(self._messages, rate.messages, rate.period_s, now)
        self._bytes = _changed(self._bytes, rate.bytes, rate.period_s, now)
        self.rate = self.present = rate

    def follow(self, published: tuple[float, float], now: float) -> None:
        """Let a relative rate come on top of what is published a second: messages and bytes."""
        rate = self.rate
        if not rate.relative:
            return
        messages, size = (int(each * rate.period_s) for each in published)
        if self._messages is not None:
            self.present = self.present._replace(messages=rate.messages + messages)
            self._messages.give(self.present.messages, rate.period_s, now)
        if self._bytes is not None:
            self.present = self.present._replace(bytes=rate.bytes + size)
            self._bytes.give(self.present.bytes, rate.period_s, now)

    def take(self, messages: int, size: int, now: float) -> None:
        """Take what has passed."""
        if self._messages is not None:
            self._messages.fill(now)
            self._messages.tokens -= messages
        if self._bytes is not None:
            self._bytes.fill(now)
            self._bytes.tokens -= size

    def wait_s(self, now: float) -> float:
        """Return the time until something may pass; 0: now."""
        waits = [each.wait_s(now) for each in (self._messages, self._bytes) if each is not None]
        longest = max(waits, default=0.0)
        return longest if longest > _SLACK else 0.0

    def allowed(self, mean_size: float, now: float) -> int:
        """Return how many messages of that size may pass now, at least 1 if anything may."""
        if self.wait_s(now) > 0:
            return 0
        found = UNLIMITED
        if self._messages is not None:
            found = max(1, int(self._messages.tokens + _SLACK))
        if self._bytes is not None:
            found = min(found, max(1, int(self._bytes.tokens / mean_size)) if mean_size else 1)
        return found


def _changed(known: _Bucket | None, count: int, period_s: int, now: float) -> _Bucket | None:
    if count <= 0:
        return None
    bucket = _Bucket(count, period_s, now)
    if known is not None:
        bucket.tokens = min(bucket.tokens, known.fill(now))
    return bucket


class SubscribeWindow:
    """Attempts to subscribe by each consumer, counted in periods that follow each other.

    Source: Pulsar's SubscribeRateLimiter, which forgets all consumers after each period."""

    __slots__ = ("_began", "_counts", "count", "period_s", "refused")

    def __init__(self, count: int, period_s: int, now: float) -> None:
        self.count = count
        self.period_s = period_s
        self._began = now
        self._counts: dict[tuple[str, str, int], int] = {}
        self.refused = 0
        """Attempts in this period that were too many."""

    def take(self, consumer: tuple[str, str, int], now: float) -> bool:
        """Count an attempt by a consumer (address, name, id); return False if it is one too many."""
        if now - self._began >= self.period_s:
            self._counts.clear()
            self._began, self.refused = now, 0
        made = self._counts.get(consumer, 0)
        if made >= self.count:
            self.refused += 1
            return False
        self._counts[consumer] = made + 1
        return True

    def left_s(self, now: float) -> float:
        """Return the time until the next period begins; 0 or less: with the next attempt."""
        return self._began + self.period_s - now
