"""Why producers of a topic wait (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.explain import causes
from broker.explain.causes import Explanation, Reason

SHOWN_MAX = 20
"""Names in the details of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """Facts about the producers of one topic and its log, of one moment."""

    topic: str
    closing: bool = False
    fenced: bool = False
    terminated: bool = False
    no_room: str = ""
    producers: tuple[str, ...] = ()
    pending: int = 0
    """Entries published and not confirmed."""
    pending_bytes: int = 0
    switching: bool = False
    trouble: str = ""
    """Why the last attempt to get the next ledger failed."""
    ledger_id: int = -1
    bookies: tuple[str, ...] = ()
    """State of the open ledger."""
    failed_bookies: Mapping[str, str] = field(default_factory=dict)
    """Bookies that are not replaced, and the reason of their failure."""
    budget_bytes: int = 0
    budget_limit: int = 0
    is_over_budget: bool = False
    full: str = ""
    """A producer whose connection is not read, since too many of its sends are unanswered."""
    in_flight: int = 0
    in_flight_max: int = 0
    holder: str = ""
    """The producer that has the topic for itself, or keeps others from it."""
    claims: tuple[str, ...] = ()
    """Producers that wait for exclusive access."""
    settling: bool = False
    """A producer waits until its earlier sends are durable."""
    reasons: tuple[Reason, ...] = ()
    """Reasons of other rooms; see `doors`."""


def explain(facts: Publishing, *, since_ms: int | None = None) -> Explanation:
    """Return the cause for which producers wait. `since_ms`: since when nothing was confirmed, if that is known."""
    reason = _reason(facts)
    details: dict[str, object] = {
        "topic": facts.topic,
        "producers_count": len(facts.producers),
        "producers": list(facts.producers[:SHOWN_MAX]),
        "pending": facts.pending,
        "pending_bytes": facts.pending_bytes,
        "ledger": facts.ledger_id,
        "bookies": ", ".join(facts.bookies) or "none",
    }
    details.update(reason.details)
    return Explanation(
        subject=f"producers of {facts.topic}",
        cause=reason.cause,
        details=details,
        since_ms=since_ms if reason.since_ms is None else reason.since_ms,
    )


def _reason(facts: Publishing) -> Reason:
    if facts.fenced:
        return Reason(causes.LOG_FENCED, {})
    if facts.closing:
        return Reason(causes.TOPIC_CLOSING, {})
    if facts.terminated:
        return Reason(causes.TERMINATED, {})
    if facts.no_room:
        return Reason(causes.DISK_FULL, {"reason": facts.no_room})
    return _of_log(facts) or _of_producers(facts)


def _of_log(facts: Publishing) -> Reason | None:
    if facts.switching and facts.pending:
        return Reason(causes.LEDGER_SWITCHING, {"trouble": facts.trouble or "nothing has failed"})
    if facts.pending and facts.failed_bookies:
        failed = ", ".join(f"{name}: {why}" for name, why in facts.failed_bookies.items())
        return Reason(causes.BOOKIES_MISSING, {"bookies": failed})
    if facts.is_over_budget:
        return Reason(causes.PUBLISH_BUDGET, {"bytes": facts.budget_bytes, "limit": facts.budget_limit})
    if facts.full:
        return Reason(
            causes.CONNECTION_FULL,
            {"producer": facts.full, "in_flight": facts.in_flight, "limit": facts.in_flight_max},
        )
    return None


def _of_producers(facts: Publishing) -> Reason:
    if facts.reasons:
        return facts.reasons[0]
    if facts.pending:  # behind the reasons, since entries may just be on their way as the producers are held back
        return Reason(causes.NOT_CONFIRMED, {})
    if facts.claims:
        return Reason(
            causes.EXCLUSIVE_ACCESS,
            {"holder": facts.holder, "waiting": facts.claims[0], "waiting_count": len(facts.claims)},
        )
    if facts.settling:
        return Reason(causes.DEDUPLICATION_SETTLING, {})
    return Reason(causes.PRODUCERS_FLOWING if facts.producers else causes.NO_PRODUCERS, {})
