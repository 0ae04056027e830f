"""The subscription or policy that keeps the ledgers of a log (pure).

The decision is that of `managed_ledger.trimming`; here it is told. Ledgers next to each other with the same cause are
one answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.explain import causes
from broker.explain.causes import Cause, Explanation
from managed_ledger.ledger_list import LedgerInfo
from managed_ledger.trimming import Choice, Kept, Retention


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The slowest durable cursor."""

    cursor: str
    kind: str
    """Its kind, such as "subscription"."""
    mark_delete: str
    backlog: int
    why: str
    """Why it does not move on."""


def explain(
    topic: str,
    ledgers: Sequence[LedgerInfo],
    choice: Choice,
    holder: Holder | None,
    retention: Retention,
    *,
    current_size: int,
) -> list[Explanation]:
    """Return why ledgers are kept, from the first on.

    Args:
        choice: the decision of `trimmable` about them.
        holder: the slowest durable cursor, if there is one.
        current_size: bytes of the last ledger while it is open.
    """
    if not ledgers:
        return [Explanation(subject=f"ledgers of {topic}", cause=causes.NO_LEDGERS, details={"topic": topic})]
    due = len(choice.found)
    answers: list[Explanation] = []
    if due:
        answers.append(_answer(topic, causes.LEDGER_DUE, ledgers[:due]))
    kept = ledgers[due:]
    if not kept:
        return answers
    last = kept[-1]
    before = kept[:-1]
    if before and choice.kept is Kept.CURSOR and holder is not None:
        details = {
            "cursor": holder.cursor,
            "kind": holder.kind,
            "mark_delete": holder.mark_delete,
            "backlog": holder.backlog,
            "why": holder.why,
        }
        answers.append(_answer(topic, causes.LEDGER_CURSOR, before, **details))
    elif before and choice.kept is Kept.RETENTION:
        details = {"time_ms": retention.time_ms, "size": retention.size}
        answers.append(_answer(topic, causes.LEDGER_RETENTION, before[:1], **details))
        if before[1:]:
            answers.append(_answer(topic, causes.LEDGER_BEHIND, before[1:], kept=before[0].ledger_id))
    answers.append(_answer(topic, causes.LEDGER_CURRENT, [last], open_bytes=current_size))
    return answers


def _answer(topic: str, cause: Cause, ledgers: Sequence[LedgerInfo], **details: object) -> Explanation:
    first, last = ledgers[0].ledger_id, ledgers[-1].ledger_id
    return Explanation(
        subject=f"ledgers {first} to {last} of {topic}" if first != last else f"ledger {first} of {topic}",
        cause=cause,
        details={
            "topic": topic,
            "first": first,
            "last": last,
            "count": len(ledgers),
            "bytes": sum(info.size for info in ledgers),
            **details,
        },
    )
