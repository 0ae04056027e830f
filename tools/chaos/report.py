"""Report of a chaos run: faults, messages in flight at their time, findings of the checker."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tools.chaos.run import Outcome
from tools.chaos.schedule import Injected

KINDS = ("lost", "misplaced", "duplicated", "delivered again", "out of order", "strange", "failed")
"""Kinds of findings of the checker."""
AFTER_US = 10_000_000
"""Time after a fault in which the longest silence is measured."""


def faults_table(outcome: Outcome) -> Table:
    """Return a line for each kind of fault, with the maximum of all faults of that kind.

    Columns: messages sent without a receipt; delivered and not acknowledged; stored (with a receipt); time that a topic
    then had no receipt."""
    made = Table(
        title="faults, and what was at risk",
        caption="messages sent without a receipt, delivered without an acknowledgement, stored; "
        "the longest time without a receipt on a topic",
    )
    columns = ("who", "how", "times", "no receipt", "no ack", "stored", "silence")
    for column in columns:
        made.add_column(column, justify="left" if column in ("who", "how") else "right")
    assert outcome.checker is not None
    risk = outcome.checker.at_risk
    kinds: dict[tuple[str, str], list[Injected]] = {}
    for fault in outcome.faults:
        kinds.setdefault((fault.group.value, fault.how.value), []).append(fault)
    for (who, how), found in sorted(kinds.items()):
        silences = [risk.longest_silence_us(each.at_us, each.at_us + AFTER_US) / 1e6 for each in found]
        made.add_row(
            who,
            how,
            str(len(found)),
            f"{max(risk.unanswered(each.at_us) for each in found)}",
            f"{max(risk.unacknowledged(each.at_us) for each in found)}",
            f"{max(risk.stored(each.at_us) for each in found)}",
            f"{max(silences):.1f} s",
        )
    return made


def verdict_table(outcome: Outcome) -> Table:
    verdict, copies = outcome.verdict, outcome.copies
    made = Table(show_header=False)
    made.add_column("what")
    made.add_column("figure", justify="right")
    rows = (
        ("seed", f"{outcome.seed}"),
        ("faults injected", f"{len(outcome.faults)}" + (f" ({outcome.skipped} left out)" if outcome.skipped else "")),
        ("connections broken", f"{outcome.breaks[0]} of producers, {outcome.breaks[1]} of consumers"),
        ("messages sent", f"{verdict.sent}"),
        ("with a receipt", f"{verdict.receipts} ({outcome.rate:.0f}/s)"),
        ("delivered", f"{verdict.delivered}"),
        ("second copies, allowed", f"{verdict.second_copies}"),
        ("second deliveries, allowed", f"{verdict.second_deliveries}"),
        ("  longest after its acknowledgement", f"{verdict.latest_again_us / 1e6:.2f} s"),
        *((kind, f"{verdict.counts.get(kind, 0)}") for kind in KINDS),
        ("copies at the end", f"{copies.get('copies')} of {copies.get('ledgers')} ledgers"),
        ("bad copies, each time they were read", ", ".join(map(str, outcome.rounds))),
        ("errors in the servers' logs", f"{len(outcome.errors)}"),
    )
    for row in rows:
        made.add_row(*row)
    return made


def show(outcome: Outcome, console: Console) -> None:
    console.print(faults_table(outcome))
    console.print(verdict_table(outcome))
    for kind, examples in outcome.verdict.examples.items():
        for example in examples:
            console.print(f"{kind}: {example}", highlight=False, markup=False)
    for text, count in Counter(_event(line) for line in outcome.errors).most_common(10):
        console.print(f"log, {count} times: {text}", highlight=False, markup=False)


def _event(line: str) -> str:
    """Return an error of a log without its time."""
    name, _, rest = line.partition(": ")
    return f"{name}: {rest.partition(' ')[2] if rest.startswith('timestamp=') else rest}"[:200]


def write(outcome: Outcome, path: Path) -> None:
    """Write the same as JSON."""
    value = {
        "seed": outcome.seed,
        "seconds": outcome.seconds,
        "rate": outcome.rate,
        "faults": [
            {
                "group": each.group.value,
                "how": each.how.value,
                "name": each.name,
                "atUs": each.at_us,
                "readyUs": each.ready_us,
            }
            for each in outcome.faults
        ],
        "sent": outcome.verdict.sent,
        "receipts": outcome.verdict.receipts,
        "delivered": outcome.verdict.delivered,
        "secondCopies": outcome.verdict.second_copies,
        "secondDeliveries": outcome.verdict.second_deliveries,
        "broken": outcome.verdict.counts,
        "copies": outcome.copies,
        "errors": outcome.errors,
    }
    path.write_text(json.dumps(value, indent=1))
