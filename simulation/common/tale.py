"""The tale of a history: its main events, and the part of them that led to a violation.

Not the trace: that has every message, and is for finding where two runs part. Here are faults, metadata writes, and
what happened to ledgers and their entries, so that what happened to one entry can be picked out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from simulation.machines.trace import now

FAULT = "Fault"
ALWAYS = ("Drawn", "Fault", "Healed", "HostRestarted", "HostResumed", "BookieOpened", "ProcessEnded")


@dataclass(frozen=True, slots=True)
class Event:
    """Event of a tale. `fields` may have its ledger, and its entries, `first` to `last`."""

    time: float
    host: str
    name: str
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        text = "".join(f" {key}={value}" for key, value in self.fields.items())
        return f"{self.time:12.6f}  {self.host:5} {self.name}{text}"

    def concerns(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether it concerns this ledger and, if it has entries, this one (-1: any)."""
        if self.fields.get("ledger") != ledger_id:
            return False
        if entry_id < 0 or "first" not in self.fields:
            return True
        return bool(self.fields["first"] <= entry_id <= self.fields["last"])


class Tale:
    """Events in order; none are kept unless `on`."""

    def __init__(self, *, on: bool = True) -> None:
        self.on = on
        self.events: list[Event] = []

    def add(self, host: str, name: str, fields: Mapping[str, Any]) -> None:
        if self.on:
            self.events.append(Event(now(), host, name, fields))

    def about(self, ledger_id: int, entry_id: int) -> Iterator[Event]:
        """Return the chain of events of an entry: its own, those of its ledger, and the faults meanwhile."""
        own = [event for event in self.events if event.concerns(ledger_id, entry_id)]
        begin = own[0].time if own else 0.0
        for event in self.events:
            if event.concerns(ledger_id, entry_id) or (
                event.name == "Drawn" or (event.name in ALWAYS and "ledger" not in event.fields and event.time >= begin)
            ):
                yield event

    def all(self) -> Iterator[Event]:
        yield from self.events
